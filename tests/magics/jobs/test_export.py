"""``%stream export``: a job of the notebook as files, which need no notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from streambench.config import Config
from streambench.imports import by_path
from streambench_magics.errors import MagicError
from tests.magics.conftest import Shell

BEFORE = """\
import math
from decimal import Decimal as Number
LIMIT = 100

def late(message):
    return Number(message["delay"]) > LIMIT and math.isfinite(message["delay"])
"""

DELAYS = """%%streamtask delays
import streambench as sb

class Delays(sb.StreamTask):
    def init(self, context):
        self.airports = context.store("airports")

    def process(self, envelope, collector, coordinator):
        self.airports.put(envelope.key, self.airports.get(envelope.key, 0) + 1)
        if late(envelope.message):
            collector.send("log.late", {"airport": envelope.key, "n": self.airports.get(envelope.key)})
"""

FUNCTIONS = """%%streamtask delays
def init(context):
    context.store("airports").put("begun", 1)

def process(envelope, collector, coordinator, context):
    if late(envelope.message):
        collector.send("log.late", {"airport": envelope.key})
"""

CONFIG = """%%streamconfig settings
systems.log.samza.factory=log
systems.log.path=data
systems.log.samza.key.serde=string
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
systems.hook.samza.factory=webhook
systems.hook.port=0
systems.hook.token=brunhilde
stores.airports.factory=memory
stores.airports.changelog=log.airports-changelog
stores.airports.key.serde=string
stores.airports.msg.serde=json
task.checkpoint.system=log
"""


@pytest.fixture
def job(ip_empty: Shell) -> Shell:
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create log.flights --partitions 2 --config settings")
    ip_empty.run("flights = [{'a': a, 'delay': d} for a, d in [('ORD', 120), ('ORD', 5), ('JFK', 300)]]")
    ip_empty.run("%stream send log.flights --from flights --key-field a --config settings")
    ip_empty.run(BEFORE)
    return ip_empty


def create(shell: Shell, cell: str) -> None:
    shell.run(cell)
    shell.run("%stream create delays --config settings --inputs log.flights")


def command(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("cell", [DELAYS, FUNCTIONS], ids=["class", "functions"])
def test_what_is_exported_runs_by_command_and_passes_its_test(
    job: Shell, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(job, cell)
    report = job.run("%stream export sent/away")
    said = "delays runs on 3 messages of log.flights, in memory, for its test (--no-run: no test)\n"
    assert report.startswith(said)
    directory = Path("sent/away").resolve()
    assert "sent/away has task.py, job.properties, requirements.txt, test_task.py, messages.json" in report
    assert "1 passed" in command(directory, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_task.py")
    monkeypatch.setenv("SYSTEMS_HOOK_TOKEN", "brunhilde")
    command(directory, "-m", "streambench", "run", "job.properties", "--until", "caught-up")
    job.run("%stream peek log.late --config settings")
    assert {row["message"]["airport"] for row in job.value} == {"ORD", "JFK"}


def test_a_store_of_a_changelog_alone_is_exported(job: Shell) -> None:
    only = "\n".join(line for line in CONFIG.splitlines() if "stores." not in line or "changelog" in line)
    job.run(only)
    create(job, DELAYS)
    job.run("%stream export away")
    assert "1 passed" in command(Path("away"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_task.py")


def test_a_job_of_a_file_is_exported_with_its_code(job: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("here/parts").mkdir(parents=True)
    Path("here/parts/delays.py").write_text(BEFORE.replace("100", "50") + DELAYS.partition("\n")[2])
    settings = CONFIG.partition("\n")[2].replace("path=data", "path=../data")
    Path("here/delays.properties").write_text(
        settings + "task.class=parts/delays.py:Delays\ntask.inputs=log.flights\njob.name=delays\n"
    )
    job.run("%stream create delays --config here/delays.properties")
    report = job.run("%stream export sent/away")
    directory = Path("sent/away").resolve()
    assert "sent/away has parts/delays.py, job.properties, requirements.txt, test_task.py, " in report
    assert "1 passed" in command(directory, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_task.py")
    monkeypatch.setenv("SYSTEMS_HOOK_TOKEN", "brunhilde")
    command(directory, "-m", "streambench", "run", "job.properties", "--until", "caught-up")
    job.run("%stream peek log.late --config settings")
    assert {row["message"]["airport"] for row in job.value} == {"ORD", "JFK"}
    with pytest.raises(MagicError, match=r"away has parts/delays\.py, .* already"):
        job.run("%stream export sent/away")


def test_a_replay_of_a_task_of_a_file_is_exported_with_it(job: Shell) -> None:
    Path("parts").mkdir()
    Path("parts/delays.py").write_text(BEFORE + DELAYS.partition("\n")[2])
    create(job, DELAYS)
    job.run("%stream record delays kept.recording")
    job.run("%stream step 2")
    job.run("%stream stop")
    for number, options in enumerate(("--task parts/delays.py:Delays", "--task Imported")):
        job.names["Imported"] = by_path(Config({}), "task.class", "parts/delays.py:Delays")
        job.run(f"%stream replay kept.recording {options}")
        assert f"away{number} has parts/delays.py, job" in job.run(f"%stream export replay away{number}")
        assert Config.from_file(f"away{number}/job.properties")["task.class"] == "parts/delays.py:Delays"


def test_what_is_exported_can_be_packaged(job: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    create(job, DELAYS)
    job.run("%stream export away")
    directory = Path("away").resolve()
    needs = (directory / "requirements.txt").read_text()
    assert "delays.zip: 5 files" in command(directory, "-m", "streambench", "package", "job.properties")
    with ZipFile(directory / "delays.zip") as archive:
        assert "task.py" in archive.namelist()
        assert archive.read("streambench_job/requirements.txt").decode() == needs
    (directory / "task.py").unlink()
    monkeypatch.setenv("SYSTEMS_HOOK_TOKEN", "brunhilde")
    command(directory, "-m", "streambench", "run", "delays.zip", "--until", "caught-up")
    job.run("%stream peek log.late --config settings")
    assert {row["message"]["airport"] for row in job.value} == {"ORD", "JFK"}


def test_secrets_are_not_exported(job: Shell) -> None:
    create(job, DELAYS)
    report = job.run("%stream export away")
    assert "systems.hook.token from the environment variable SYSTEMS_HOOK_TOKEN" in report
    assert not any("brunhilde" in each.read_text() for each in Path("away").iterdir())
    assert Config.from_file("away/job.properties")["systems.hook.token"] == "${env:SYSTEMS_HOOK_TOKEN}"


def test_an_object_that_no_file_can_hold_is_named(job: Shell) -> None:
    job.run("LIMIT = Number(100)")
    create(job, DELAYS)
    with pytest.raises(MagicError, match=r"uses LIMIT of the notebook \(Decimal\).* in its init\(\)"):
        job.run("%stream export away")
    assert not Path("away").exists()


def test_a_file_in_the_place_of_the_directory_is_named_first(
    job: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    create(job, DELAYS)
    Path("away").write_text("mine")
    for directory in ("away", "away/below"):
        with pytest.raises(MagicError, match="away is a file: name a directory"):
            job.run(f"%stream export {directory}")
    assert "runs on" not in capsys.readouterr().out


def test_files_that_are_there_stay_as_they_are(job: Shell) -> None:
    create(job, DELAYS)
    Path("away").mkdir()
    Path("away/task.py").write_text("mine")
    with pytest.raises(MagicError, match=r"away has task\.py already"):
        job.run("%stream export away")
    assert [each.name for each in Path("away").iterdir()] == ["task.py"]
    assert Path("away/task.py").read_text() == "mine"


def test_without_messages_there_is_no_test_and_that_is_said(job: Shell) -> None:
    job.run("%stream streams create log.empty --config settings")
    job.run(DELAYS)
    job.run("%stream create delays --config settings --inputs log.empty")
    assert "no test was written: the inputs are empty" in job.run("%stream export away")
    assert not Path("away/test_task.py").exists()


def test_an_export_without_a_run_does_not_run_the_task(job: Shell) -> None:
    job.run(DELAYS.replace("late(envelope.message)", "calls.append(envelope)").replace(
        "class Delays", "calls = []\n\nclass Delays"
    ))  # fmt: skip
    job.run("%stream create delays --config settings --inputs log.flights")
    assert job.run("%stream export --no-run away").splitlines()[:2] == [
        "away has task.py, job.properties, requirements.txt",
        "no test was written: --no-run leaves it out",
    ]
    assert job.names["calls"] == [] and not Path("away/test_task.py").exists()
    job.run("%stream export once_more")
    assert len(job.names["calls"]) == 3


def test_the_command_of_an_export_quotes_its_path(job: Shell) -> None:
    create(job, DELAYS)
    said = job.run('%stream export "sent away"').splitlines()[-1]
    assert said.startswith("streambench run 'sent away/job.properties' goes on from the checkpoints")
