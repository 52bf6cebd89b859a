"""The pytest files that are made of recordings."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import streambench as sb
from streambench import debug
from streambench.container.container import Container
from streambench.debug import Recording
from streambench.debug.control.session import Session
from streambench.errors import SerdeError, StreambenchError
from streambench.recording.file import RecordingWriter
from tests.container.test_failure_capture import config_of, put

TASK = """
import streambench as sb

class Sums(sb.StreamTask):
    def init(self, context):
        self.store = context.store("n")

    def process(self, envelope, collector, coordinator):
        key = envelope.message["key"]
        self.store.put(key, (self.store.get(key) or 0) + 1)
        if envelope.message.get("bad"):
            raise ValueError("a bad message")
        collector.send("log.out", {"key": key, "n": self.store.get(key)})
"""
CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a task."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "sums.py").write_text(TASK)
    return tmp_path / "project"


def config_in(project: Path, task: str) -> sb.Config:
    """The configuration of the job, as its properties file gives it."""
    text = "\n".join(f"{key}={value}" for key, value in config_of(project, task__class=task).items())
    return sb.Config.from_text(text, directory=project)


def recorded(project: Path, *keys: str, task: str = "sums.py:Sums", bad: bool = False) -> Recording:
    """The recording of a run over messages with these keys."""
    config = config_in(project, task)
    put(config, "log.in", *({"key": key} for key in keys), *([{"key": "c", "bad": True}] if bad else []))
    session = Session(Container.from_config(config))
    session.record(project / "run.recording")
    session.start()
    if bad:
        with pytest.raises((sb.TaskError, SerdeError)):
            session.step(1000)
    else:
        session.step(1000)
    session.stop()
    return Recording.read(project / "run.recording")


def outcome_of(*tests: Path) -> str:
    """The output of pytest, with a line for each test."""
    # Without plugins, which take longer to import than the tests to run.
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    if len(tests) > 1:
        command.append("--import-mode=importlib")  # they have the same name
    folder = Path(os.path.commonpath([test.parent for test in tests]))
    command += [str(test.relative_to(folder)) for test in tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


def moved(project: Path) -> Path:
    """The same directory under another name."""
    return project.rename(project.with_name("elsewhere"))


def copied(project: Path, name: str) -> Path:
    """A copy of the directory."""
    return Path(shutil.copytree(project, project.with_name(name)))


def test_the_test_of_a_failure_moves_and_is_red_until_the_task_is_mended(project: Path) -> None:
    (project / "tests").mkdir()
    recorded(project, *"aba", bad=True).to_test(project / "tests" / "test_sums.py")
    red = moved(project)
    mended = copied(red, "mended")
    (mended / "sums.py").write_text(TASK.replace('raise ValueError("a bad message")', "return"))
    found = outcome_of(*(each / "tests" / "test_sums.py" for each in (red, mended)))
    assert "FAILED elsewhere/tests/test_sums.py" in found and "a bad message" in found
    assert "PASSED mended/tests/test_sums.py" in found


def test_the_test_of_an_output_that_cannot_be_sent_is_red(project: Path) -> None:
    tests = []
    for number, extras in enumerate(("headers={'a': 5}", "timestamp='x'", "timestamp=10**30")):
        bad = f'collector.send("log.out", key, {extras})'
        sends = copied(project, f"sends{number}")
        (sends / "sums.py").write_text(TASK.replace('raise ValueError("a bad message")', bad))
        recorded(sends, *"aba", bad=True).to_test(sends / "test_sums.py")
        tests.append(sends.rename(project.with_name(f"moved{number}")) / "test_sums.py")
    found = outcome_of(*tests)
    assert found.count("what it sent to log.out cannot be sent") >= 3
    assert [f"FAILED moved{number}/test_sums.py" in found for number in range(3)] == [True] * 3


def test_the_test_of_a_run_without_a_failure_holds_what_it_did(project: Path) -> None:
    recorded(project, *"aba").to_test(project / "test_sums.py")
    first = moved(project)
    text = (first / "test_sums.py").read_text()
    for line in (
        '    "log.out": [',
        '        (0, None, {"key": "a", "n": 2}),',
        'STORES = {"Partition 0": {"n": {"a": 2, "b": 1}}}',
        'OFFSETS = {"Partition 0": {"log.in.0": "2"}}',
    ):
        assert f"{line}\n" in text
    # Another behaviour is wanted: the test asks for it, then the task is mended.
    asked = copied(first, "asked")
    (asked / "test_sums.py").write_text(re.sub(r'("[abn]": \d)(?=[,}])', r"\g<1>0", text))
    mended = copied(asked, "mended")
    (mended / "sums.py").write_text(TASK.replace("or 0) + 1", "or 0) + 10"))
    found = outcome_of(*(each / "test_sums.py" for each in (first, asked, mended)))
    assert "PASSED elsewhere/test_sums.py" in found
    assert "FAILED asked/test_sums.py" in found
    assert "assert found.outputs == OUTPUTS" in found
    assert "PASSED mended/test_sums.py" in found


def test_a_module_beside_the_configuration_is_found_from_a_folder_of_tests(project: Path) -> None:
    (project / "tests").mkdir()
    sys.modules.pop("sums", None)
    recorded(project, "a", task="sums.Sums").to_test(project / "tests" / "test_sums.py")
    test = moved(project) / "tests" / "test_sums.py"
    assert 'TASK = "sums:Sums"' in test.read_text()
    assert "1 passed" in outcome_of(test)


def test_a_module_is_imported_where_pytest_finds_it(project: Path) -> None:
    sys.modules.pop("sums", None)
    recorded(project, "a", task="sums.Sums").to_test(project / "test_sums.py")
    test = moved(project) / "test_sums.py"
    assert "from sums import Sums\n" in test.read_text()
    assert "1 passed" in outcome_of(test)


def test_much_stands_in_a_test_as_digests(project: Path) -> None:
    recorded(project, *(f"{number:03}{'x' * 300}" for number in range(120))).to_test(project / "test_sums.py")
    text = (project / "test_sums.py").read_text()
    assert len(text) < 20_000
    assert "70 more: sha256 " in text
    assert "Long values stand as digests." in text
    assert "1 passed" in outcome_of(project / "test_sums.py")


def test_what_a_test_cannot_be_written_for_is_refused_with_the_remedy(project: Path) -> None:
    recording = recorded(project, "a")
    with pytest.raises(StreambenchError, match=r"no directory .*no where; make it: mkdir -p '.*no where'"):
        recording.to_test(project / "no where" / "test_sums.py")
    with pytest.raises(StreambenchError, match=r"name a file test_NAME\.py"):
        recording.to_test(project / "run.recording")
    with pytest.raises(StreambenchError, match="a file of that name, which runs no recording"):
        recording.to_test(project / "sums.py")
    with pytest.raises(sb.ConfigError, match="was defined in a function.*--task"):
        recording.to_test(project / "test_sums.py", task=lambda envelope, collector, coordinator: None)
    assert not (project / "test_sums.py").exists()


def test_a_recording_that_belongs_to_no_test_is_not_replaced(project: Path) -> None:
    recording = recorded(project, "a")
    other = project / "test_sums.recording"
    other.write_bytes((project / "run.recording").read_bytes())
    before = other.read_bytes()
    with pytest.raises(StreambenchError, match=r"would replace .*test_sums\.recording.*; name another"):
        recording.to_test(project / "test_sums.py")
    assert (other.read_bytes(), (project / "test_sums.py").exists()) == (before, False)
    Recording.read(other).to_test(project / "test_sums.py")
    assert (project / "test_sums.py").exists()


def test_a_test_that_cannot_be_written_leaves_the_former_one(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = recorded(project, *"ab")
    recording.to_test(project / "test_sums.py")
    before = {path.name: path.read_bytes() for path in project.glob("*test_sums*")}

    def full(self: object, rows: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RecordingWriter, "write", full)
    with pytest.raises(StreambenchError, match=r"cannot write .*: No space left on device; name a file"):
        recording.to_test(project / "test_sums.py")
    assert {path.name: path.read_bytes() for path in project.glob("*test_sums*")} == before


@pytest.mark.parametrize("folder", ["x{y}", 'a "quoted" one'])
def test_the_path_of_a_task_may_have_braces_and_quotes(project: Path, folder: str) -> None:
    (project / folder).mkdir()
    (project / "sums.py").rename(project / folder / "sums.py")
    (project / "tests").mkdir()
    test = recorded(project, "a", task=f"{folder}/sums.py:Sums").to_test(project / "tests" / "test_sums.py")
    names: dict[str, Any] = {"__file__": str(test), "__name__": "test_sums"}
    exec(compile(test.read_text(), test, "exec"), names)
    names["test_sums_1_does_what_it_did"]()


def test_a_task_that_fails_now_is_mended_before_its_outputs_are_expected(project: Path) -> None:
    recording = recorded(project, *"ab")
    (project / "sums.py").write_text(TASK.replace('get("bad")', 'get("key")'))
    recording = Recording(recording.header, recording._rows)
    with pytest.raises(StreambenchError, match="after 0 messages: .*a bad message.*; mend it first"):
        recording.to_test(project / "test_sums.py", task=f"{project}/sums.py:Sums")


def test_a_test_is_written_again_over_itself(project: Path) -> None:
    recording = recorded(project, "a")
    first = recording.to_test(project / "test_sums.py").read_text()
    assert recording.to_test(project / "test_sums.py").read_text() == first
    assert debug.open(project / "test_sums.recording").position == 1
    assert re.search(r'"directory":"\."', (project / "test_sums.recording").read_bytes().decode("latin1"))


def test_the_task_of_a_cell_with_a_magic_gets_a_test(project: Path) -> None:
    recorded(project, "a")
    of_cell(project, f"files = !ls\n{TASK}").to_test(project / "test_sums.py")
    text = (project / "test_sums.py").read_text()
    assert "!ls" not in text
    assert "1 passed" in outcome_of(project / "test_sums.py")


def test_a_source_that_is_not_python_gets_no_test_and_says_so(project: Path) -> None:
    recorded(project, "a")
    with pytest.raises(sb.ConfigError, match="source of Sums is not Python: .*give the task"):
        of_cell(project, f"{TASK}\nselect * from x").to_test(project / "test_sums.py")


def of_cell(project: Path, source: str) -> Recording:
    """The recording of a directory, as if its task had stood in a cell."""
    recording = Recording.read(project / "run.recording")
    code = replace(recording.header.task, file="", source=source)
    return recording.with_header(replace(recording.header, task=code))
