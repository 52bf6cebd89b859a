"""How the command line begins."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from itertools import pairwise

import pytest

from streambench.cli.commands import HELP, load
from tests.job.project import Project

INTERRUPTED = """
import signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["streambench", "keys"]
from streambench.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    "module", ["streambench.errors", "msgspec", "streambench.cli.app", "typer", "streambench.cli.keys"]
)
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_job_runs_without_standard_streams(project: Project) -> None:
    """As a service that closes them has it: no file that is opened later may get their numbers."""
    project.fill(5)
    command = shlex.join(project.command("run", "job.properties", "--until", "caught-up"))
    subprocess.run(f"{command} <&- >&- 2>&-", shell=True, cwd=project.directory, check=True)
    assert [row["lag"] for row in project.rows("checkpoints")] == [0, 0]
    listed = shlex.join(project.command("streams", "job.properties"))
    done = subprocess.run(
        f"{listed} >&-", shell=True, cwd=project.directory, check=True, capture_output=True, text=True
    )
    assert done.stderr == ""


def test_it_begins_where_nothing_heavy_is_imported_yet(project: Project) -> None:
    begun = (
        "import sys, streambench.cli.entry; print([name for name in ('typer', 'rich', 'pyarrow') if name in "
        "sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )
    done = subprocess.run(project.command("--version"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("streambench ")


LINGERING = """
import threading
import streambench as sb

class Late(sb.StreamTask):
    def init(self, context):
        self.end = threading.Event()
        threading.Thread(target=self.end.wait, name="poller").start()

    def process(self, envelope, collector, coordinator):
        pass
"""


def test_a_thread_of_a_task_that_goes_on_is_named_and_ended_by_ctrl_c(project: Project) -> None:
    project.fill(4, partitions=1)
    (project.directory / "lingering.py").write_text(LINGERING)
    project.configure({"task.class": "lingering.py:Late"})
    with project.start("run", "job.properties", "--until", "caught-up", "--quiet") as command:
        assert command.stderr is not None
        assert command.stderr.readline() == "waiting for the thread poller of the task; Ctrl-C ends it\n"
        command.send_signal(signal.SIGINT)
        out, errors = command.communicate()
    assert (command.returncode, errors) == (0, "")
    assert "caught up with its inputs; 4 messages" in out


def test_no_packages_are_asked_for_entry_points_where_a_start_needs_none() -> None:
    asked = "import sys, streambench, streambench.imports; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


IMPORTED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = ["streambench", *{arguments!r}]
from streambench.cli.entry import main
main()
"""

#: Begins as each command does, then goes on in a process for each: what all of them import is imported once.
HELPED = """
import json, os, sys
from streambench.cli.entry import main
import streambench.cli.app
for command in {commands!r}:
    sys.stdout.flush()
    if os.fork() == 0:
        sys.argv = ["streambench", command, "--help"]
        sys.stdout = open(os.devnull, "w")
        try:
            main()
        finally:
            sys.stderr.write(json.dumps([command, *sys.modules]) + "\\n")
            sys.stderr.flush()
            os._exit(0)
    os.wait()
"""
HEAVY = {"pyarrow", "numpy", "pandas", "polars", "pyspark", "kafka", "pika", "httpx", "rocksdict"}
LOOP = "streambench.container.event_loop"
SHARED = {"streambench.config", "streambench.cli.output"}
COMMANDS = {f"streambench.cli.{name}" for name in HELP}


def imported(*arguments: str, completing: str | None = None) -> tuple[str, set[str]]:
    """What the command line prints, and the modules that it has imported by then."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("_STREAMBENCH", "COMP_"))
    }
    if completing is not None:
        place = str(len(completing.split(" ")) - 1)
        environment |= {
            "_STREAMBENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": completing,
            "COMP_CWORD": place,
        }
    program = [sys.executable, "-c", IMPORTED.format(arguments=arguments)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_the_version_and_the_help_import_no_command() -> None:
    for option in ("--version", "--help"):
        said, modules = imported(option)
        assert "streambench" in said
        assert not modules & (HEAVY | COMMANDS | SHARED)
    assert "rich" not in imported("--version")[1]


@pytest.fixture(scope="module")
def helped() -> dict[str, set[str]]:
    """By command, the modules that its help has imported."""
    program = HELPED.format(commands=list(HELP))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = [json.loads(line) for line in done.stderr.splitlines()]
    return {command: set(modules) for command, *modules in said}


@pytest.mark.parametrize("command", HELP)
def test_the_help_of_a_command_imports_that_command_and_nothing_heavy(
    command: str, helped: dict[str, set[str]]
) -> None:
    modules = helped[command]
    with_its_own = {f"streambench.cli.{command}"} | ({"streambench.cli.run"} if command == "demo" else set())
    assert modules & COMMANDS == with_its_own
    assert not modules & HEAVY
    assert command == "demo" or LOOP not in modules


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("streambench pe", "peek"),
        ("streambench ", "checkpoints"),
        ("streambench run --un", "--until"),
        ("streambench kafka st", "status"),
        ("streambench run --until ", "caught-up"),
        ("streambench checkpoints --rewind o", "oldest"),
        ("streambench deploy --master lo", "local[2]"),
        ("streambench bench co", "container"),
        ("streambench bench log sto", "stores"),
        ("streambench bench --ro", "--rounds"),
    ],
)
def test_the_tab_key_offers_names_without_importing_anything_heavy(words: str, offered: str) -> None:
    said, modules = imported(completing=words)
    assert offered in said.split()
    assert not modules & HEAVY
    assert (
        modules & COMMANDS <= {f"streambench.cli.{words.split()[1]}"}
        if len(words.split()) > 2
        else not modules & (COMMANDS | SHARED)
    )


@pytest.mark.parametrize("command", ["run", "deploy"])
def test_the_help_fits_a_narrow_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said, _ = imported(command, "--help")
    text = [line.strip() for line in said.partition("╭")[0].splitlines()]
    shorter = [(line, after) for line, after in pairwise(text) if line and after and len(line) < 50]
    assert not [each for each in shorter if not each[0].startswith("streambench")]
    assert "<bool>" not in said
    assert "-h" in said.split()


@pytest.mark.parametrize("name", HELP)
def test_every_name_of_the_help_is_a_command(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert command.help
    assert HELP[name].endswith(".")
