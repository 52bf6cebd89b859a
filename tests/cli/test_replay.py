"""``streambench replay``, and the captures of ``streambench run``."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from streambench.recording import Recording
from tests.job.project import Project

TASK = """
import streambench as sb

class Ratio(sb.StreamTask):
    def init(self, context):
        self.store = context.store("n")

    def process(self, envelope, collector, coordinator):
        self.store.put("all", (self.store.get("all") or 0) + 1)
        collector.send("log.out", envelope.message["n"] / envelope.message["of"])
"""
JOB = """
task.class=ratio.py:Ratio
task.inputs=log.numbers
systems.log.samza.factory=log
systems.log.path=log
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
stores.n.factory=memory
stores.n.key.serde=string
stores.n.msg.serde=integer
systems.k.samza.factory=kafka
systems.k.bootstrap.servers=h:1
systems.k.sasl.plain.password=hunter2-secret
"""
MESSAGES = "".join(f'{{"n": {n}, "of": {of}}}\n' for n, of in ((1, 2), (3, 4), (5, 0)))


@pytest.fixture
def broken(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    """A job that fails at its third message."""
    monkeypatch.chdir(project.directory)
    Path("ratio.py").write_text(TASK)
    Path("ratio.properties").write_text(JOB)
    project.ok("streams", "create", "log.numbers", "-c", "ratio.properties")
    project.ok("send", "log.numbers", "-c", "ratio.properties", stdin=MESSAGES)
    return project


def captured(project: Project, *options: str) -> str:
    error = project.fails("run", "ratio.properties", "--until", "caught-up", "-q", *options)
    found = re.search(r"captured: streambench replay (\S+)", error)
    assert found is not None, error
    return found[1]


def test_a_failure_is_replayed_mended_and_made_a_test(
    broken: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = captured(broken)
    assert "ZeroDivisionError" in broken.fails("replay", path)
    failed = broken.run("replay", path).stderr
    assert 'ratio.py", line 10' in failed
    assert '\n        message  {"n": 5, "of": 0}\n' in failed
    Path("mended.py").write_text(TASK.replace('/ envelope.message["of"]', '/ (envelope.message["of"] or 1)'))
    assert "3 of 3 messages processed, and it no longer fails" in broken.ok(
        "replay", path, "--task", "mended.py:Ratio"
    )
    assert "written: test_ratio.py" in broken.ok("replay", path, "--to-test", "test_ratio.py")
    assert 'TASK = str(HERE / "ratio.py") + ":Ratio"' in Path("test_ratio.py").read_text()


def test_a_damaged_capture_is_refused(broken: Project) -> None:
    whole = Path(captured(broken)).read_bytes()
    cut, header = Path("cut.capture"), Path("header.capture")
    cut.write_bytes(whole[:-2_000])
    assert "cut.capture is damaged: its end is missing" in broken.fails("replay", "cut.capture")
    at = whole.index(b'"kind":"capture"')
    header.write_bytes(whole[: at + 8] + b"\xff" + whole[at + 9 :])
    assert "header.capture is damaged: its header cannot be read" in broken.fails("replay", "header.capture")


def test_a_task_that_is_not_there_names_option_and_file(broken: Project) -> None:
    path = captured(broken)
    error = broken.fails("replay", path, "--task", "nofile.py:X")
    assert f"error: --task: there is no file {Path('nofile.py').resolve()}" in error
    assert "error: --task: ratio.py has no 'X'" in broken.fails("replay", path, "--task", "ratio.py:X")


def test_a_task_that_is_gone_is_asked_for_by_its_options(
    broken: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = captured(broken)
    file = Path("ratio.py").resolve()
    file.unlink()
    # As in a process that did not run it.
    monkeypatch.setattr("streambench.debug.replay.replay.factory_here", lambda *_: None)
    for name in [name for name, each in sys.modules.items() if getattr(each, "__file__", "") == str(file)]:
        monkeypatch.delitem(sys.modules, name)
    for options in ([], ["--to-test", "test_ratio.py"]):
        error = broken.fails("replay", path, *options)
        assert "give it with --task=FILE.py:CLASS" in error
        assert "with --recorded-source" in error


def test_a_failure_is_shrunk_and_made_a_test(broken: Project) -> None:
    path = captured(broken)
    shown = broken.run("replay", path, "--shrink")
    small = Path(path).with_name("1-c0.small.capture")
    assert f"shrunk to 1 of 3 messages: {small}" in shown.stdout
    assert "it fails after 0 of 1 messages" in shown.stderr
    assert len(Recording.read(small)) == 1
    shown_again = broken.ok("replay", path, "--shrink", "--to-test", "test_ratio.py")
    assert "written: test_ratio.py" in shown_again
    assert len(Recording.read("test_ratio.recording")) == 1


def test_a_test_that_cannot_be_written_is_refused_before_shrinking(broken: Project) -> None:
    path = captured(broken)
    error = broken.fails("replay", path, "--shrink", "--to-test", "tests/test_ratio.py")
    assert "there is no directory tests; make it: mkdir -p tests" in error
    assert not Path(path).with_name("1-c0.small.capture").exists()


def test_what_no_longer_fails_cannot_be_shrunk(broken: Project) -> None:
    path = captured(broken)
    Path("mended.py").write_text(TASK.replace('/ envelope.message["of"]', ""))
    error = broken.fails("replay", path, "--shrink", "--task", "mended.py:Ratio")
    assert "does not fail when it is run again: there is nothing to shrink" in error


def test_a_replay_stops_where_a_condition_holds(broken: Project) -> None:
    path = captured(broken)
    shown = broken.ok("replay", path, "--until", "message['n'] == 3")
    assert 'before 2: log.numbers.0@1\n        message  {"n": 3, ' in shown
    Path("mended.py").write_text(TASK.replace('/ envelope.message["of"]', ""))
    mended = ("--task", "mended.py:Ratio")
    assert "held at none" in broken.fails("replay", path, "--until", "message['n'] == 7", *mended)


@pytest.mark.parametrize(
    ("condition", "stop"),
    [
        ("output.message == 0.5", "stopped behind 1: output.message is 0.5"),
        ("after == 2", "stopped behind 2: after is 2"),
    ],
)
def test_a_replay_stops_behind_the_message_of_an_output_or_change(
    broken: Project, condition: str, stop: str
) -> None:
    path = captured(broken)
    assert broken.ok("replay", path, "--until", condition).splitlines()[-1] == stop


def test_a_replay_that_fails_where_a_condition_on_errors_holds_fails(broken: Project) -> None:
    shown = broken.run("replay", captured(broken), "--until", "error is not None")
    assert shown.returncode == 1
    assert "it fails after 2 of 3 messages" in shown.stderr


def test_a_file_in_the_way_of_a_shrunk_recording_is_kept(broken: Project) -> None:
    path = captured(broken)
    there = Path(path).with_name("1-c0.small.capture")
    there.write_text("my notes")
    error = broken.fails("replay", path, "--shrink")
    assert f"cannot save to {there}: there is a file of that name, which is no recording" in error
    assert there.read_text() == "my notes"


def test_a_capture_goes_where_the_command_says(broken: Project) -> None:
    assert captured(broken, "--capture", "there") == "there/ratio-1/1-c0.capture"
    assert Path("there/ratio-1/1-c0.capture").is_file()


def test_no_secret_stands_in_what_a_failure_leaves(broken: Project) -> None:
    path = captured(broken)
    recording = Recording.read(path)
    assert b"hunter2-secret" not in Path(path).read_bytes()
    assert "hunter2-secret" not in f"{recording.header} {recording._rows}"
    broken.ok("replay", path, "--to-test", "test_ratio.py")
    assert b"hunter2-secret" not in Path("test_ratio.recording").read_bytes()


def test_a_replay_shows_how_far_it_is(broken: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def draw(line: Any) -> None:
        drawn.append(line if isinstance(line, str) else line.__rich__())

    def status(console: Console, line: Any) -> AbstractContextManager[Any]:
        draw(line)
        return nullcontext(SimpleNamespace(update=draw))

    monkeypatch.setattr(Console, "status", status)
    path = captured(broken)
    broken.run("replay", path)
    assert drawn[0] == f"reading {path}" and re.fullmatch(rf"reading {path}: \d+%", drawn[1])
    assert drawn[-2] == f"opening {path}"
    assert re.fullmatch(r"replaying: 0 of \d messages", drawn[-1])


def test_an_interrupted_replay_says_that_nothing_has_left_it(
    broken: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = captured(broken)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streambench.recording.recording.read_rows", interrupt)
    ended = broken.run("replay", path)
    assert ended.returncode == 130
    assert ended.stderr.startswith("interrupted; a replay is in memory, and nothing of it has left that\n")
