"""The end of ``run``: failures that were ignored, and messages that no window has followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streambench.cli.app import app
from streambench.job.result import ContainerRun, RunResult

TASK = """
import streambench as sb

class Sums(sb.StreamTask):
    sum = 0

    def process(self, envelope, collector, coordinator):
        self.sum += int(envelope.message)

    def window(self, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), b"%d" % self.sum))
"""
JOB = """
job.name=sums
task.class=task.py:Sums
task.inputs=log.in
task.window.ms=3600000
task.ignored.exceptions=ValueError
task.dead.letter.stream=log.dead
task.ignored.exceptions.dead.letter=true
systems.log.samza.factory=log
systems.log.path=data
systems.log.samza.offset.default=oldest
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "task.py").write_text(TASK)
    path = tmp_path / "job.properties"
    path.write_text(JOB)
    done("streams", "create", "log.in", "-c", str(path))
    done("send", "log.in", "-c", str(path), text='1\n"x"\n3\n"y"\n')
    return path


def done(*arguments: str, text: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=text)
    assert result.exit_code == 0, result.output
    return result


def test_a_run_ends_with_the_places_of_ignored_failures(job: Path) -> None:
    shown = done("run", str(job), "--until", "caught-up").stdout.splitlines()
    assert "2 failures ignored (ValueError)" in shown[-2]
    assert shown[-1].startswith(
        "  ignored 2 ValueError, the first: Partition 0 failed at log.in.0@1 (task.py:8): ValueError: "
    )
    (first, second) = map(json.loads, done("peek", "log.dead", "--json", "-c", str(job)).stdout.splitlines())
    assert "x" in str(first["message"]) and "task.py" in str(first["headers"]["dead-letter.traceback"])


def test_a_run_says_how_many_messages_no_window_has_followed(job: Path) -> None:
    told = done("run", str(job), "--messages", "4").stderr
    assert "window() has not run after the last 4 messages" in told and "task.window.at.end=true" in told
    job.write_text(job.read_text() + "task.window.at.end=true\n")
    assert "window()" not in done("run", str(job), "--until", "caught-up").stderr
    assert done("peek", "log.out", "--json", "-c", str(job)).stdout.count("\n") == 1


def test_a_program_gets_the_same(job: Path) -> None:
    rows = map(json.loads, done("run", str(job), "--until", "caught-up", "--json").stdout.splitlines())
    (end,) = [row for row in rows if row["event"] != "progress"]
    (kind,) = end["passed_over"]["kinds"]
    assert (kind["kind"], kind["count"], kind["ssp"], kind["offset"], kind["line"]) == (
        "ValueError",
        2,
        "log.in.0",
        "1",
        "task.py:8",
    )
    assert end["windows_left"]["messages"] == 4


def test_a_run_that_begins_behind_all_messages_says_so_at_its_end(job: Path) -> None:
    job.write_text(JOB.replace("systems.log.samza.offset.default=oldest\n", ""))
    ended = done("run", str(job), "--until", "caught-up")
    assert "0 messages in " in ended.stdout
    assert "warning: log.in is read only from where its end was at the first start" in ended.stderr
    job.write_text(JOB.replace("default=oldest", "default=upcoming"))
    assert done("run", str(job), "--until", "caught-up").stderr == ""


@pytest.mark.parametrize("goal", [(), ("--messages", "2")])
def test_a_quiet_run_that_shows_nothing_takes_no_snapshots(
    job: Path, monkeypatch: pytest.MonkeyPatch, goal: tuple[str, ...]
) -> None:
    asked: list[object] = []

    def run_job(*arguments: object, on_snapshots: object, **options: object) -> RunResult:
        asked.append(on_snapshots)
        return RunResult("sums", (ContainerRun(0, 2, {}, 0.0, "count"),), 0.0)

    monkeypatch.setattr("streambench.job.run.run", run_job)
    done("run", str(job), "--quiet", *goal)
    assert asked == [None]
