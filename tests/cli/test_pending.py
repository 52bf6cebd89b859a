"""Outputs that are committed and not visible yet: after a process ended between the commit and its outputs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streambench.checkpoint.pending_writes import PendingWrites
from streambench.cli.app import app
from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import StreambenchError
from streambench.model import SystemStream
from streambench.planning.pending_commits import pending_for
from streambench.system.producers_applier import ProducersApplier

TASK = """
import streambench as sb

class Forward(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(
            sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), envelope.message, partition=0)
        )
"""
JOB = """
job.name=forward
task.class=task.py:Forward
task.inputs=log.in
task.processing.guarantee=exactly-once
systems.log.samza.factory=log
systems.log.path=data
systems.log.samza.offset.default=oldest
"""
OUT = SystemStream("log", "out")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job whose process ended right after its second commit."""
    (tmp_path / "task.py").write_text(TASK)
    path = tmp_path / "job.properties"
    path.write_text(JOB)
    done("streams", "create", "log.in", "-c", str(path))
    done("send", "log.in", "-c", str(path), text="1\n2\n3\n")
    container = Container(Config.from_file(path))
    container.start()
    container.run(2)
    container.commit()
    container.run(1)

    def dies(self: ProducersApplier, effects: PendingWrites) -> None:
        raise StreambenchError("the process ends here")

    with monkeypatch.context() as patch:
        patch.setattr(ProducersApplier, "apply", dies)
        with pytest.raises(StreambenchError, match="ends here"):
            container.commit()
    return path


def done(*arguments: str, text: str | None = None) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(arguments), input=text)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("command", [["checkpoints"], ["peek", "log.out", "--json"], ["streams"]])
def test_commands_say_what_is_committed_and_not_visible_yet(job: Path, command: list[str]) -> None:
    shown, told = done(*command, "-c", str(job))
    assert shown.count("\n") <= 3
    assert told.count("warning: ") == 1
    assert "forward-1, container 0: its process ended right after a commit" in told and "log.out (1)" in told
    done("run", str(job), "--until", "caught-up")
    shown, told = done(*command, "-c", str(job))
    assert told == ""


def test_another_stream_and_another_name_of_the_system(job: Path) -> None:
    config = Config.from_file(job)
    assert not pending_for(config, [SystemStream("log", "in")])
    other = Config({"systems.other.samza.factory": "log", "systems.other.path": str(job.parent / "data")})
    (found,) = pending_for(other, [SystemStream("other", "out")])
    assert found.messages == {SystemStream("other", "out"): 1}


def test_what_a_living_process_is_about_to_write_is_not_told(job: Path) -> None:
    container = Container(Config.from_file(job))
    container.start()
    container.commit()
    assert not pending_for(Config.from_file(job), [OUT])
    container.stop()


def test_damaged_checkpoints_do_not_keep_streams_from_being_read(job: Path) -> None:
    for record in job.parent.glob("data/_jobs/*/g*/c0/*.json"):
        record.write_bytes(b"damaged")
    shown, told = done("peek", "log.out", "-c", str(job))
    assert shown.count("\n") == 2 and told == ""
