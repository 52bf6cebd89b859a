"""Readers of a damaged log: an error by default, a warning with ``fail.on.data.loss=false``."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from streambench.cli.app import app
from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import ConfigError, CorruptDataError
from streambench.model import IncomingMessageEnvelope
from streambench.system.log import open_log
from streambench.system.log.header import read_header
from streambench.system.log.segment import Segment, frames
from streambench.system.log.settings import Settings
from streambench.task import MessageCollector, StreamTask, TaskCoordinator
from tests.faults.damage import Counts
from tests.faults.damage import build as build_job
from tests.faults.damage import config as job_config

GUARANTEES = ("at-least-once", "exactly-once")
LAST = 11

Damage = Callable[[list[Path]], object]


def build(directory: Path) -> list[Path]:
    """Twelve messages in three segments of four batches; the last segment is appended to."""
    with open_log(directory) as streams:
        streams.create("s")
        partition = streams.partition("s", 0)
        for number in range(LAST + 1):
            partition.append(None, [b"%d" % number])
            partition.flush()
            if number in (3, 7):
                partition.roll()
    return sorted((directory / "s" / "0").glob("*.arrow"))


def ends(path: Path) -> list[int]:
    """Where the batches of a segment end."""
    with open(path, "rb") as file:
        start = read_header(path, file.fileno()).size
        return [
            found.end for found in frames(Segment(0, path), file.fileno(), start) if hasattr(found, "end")
        ]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Damage, set[int]]] = {
    "a bit of a sealed batch": (lambda files: flip(files[1], ends(files[1])[0] - 4), {4}),
    "a bit of a batch's metadata": (lambda files: flip(files[1], ends(files[1])[0] + 60), {5}),
    "the end of a sealed segment": (lambda files: os.truncate(files[1], ends(files[1])[1]), {6, 7}),
    "a sealed segment": (lambda files: files[1].unlink(), {4, 5, 6, 7}),
    "the header of a segment": (lambda files: flip(files[1], 40), set()),
    "the first segment": (lambda files: files[0].unlink(), {0, 1, 2, 3}),
    "a bit of an active batch": (lambda files: flip(files[2], ends(files[2])[1] - 4), {9}),
    "a bit of the last batch": (lambda files: flip(files[2], ends(files[2])[3] - 4), {11}),
    "the end of the log": (lambda files: os.truncate(files[2], ends(files[2])[2]), {11}),
    "the last segment": (lambda files: files[2].unlink(), {8, 9, 10, 11}),
    "every segment": (lambda files: [each.unlink() for each in files], set(range(LAST + 1))),
}

damaged = pytest.mark.parametrize(("damage", "lost"), DAMAGES.values(), ids=DAMAGES)


def config(directory: Path, loose: bool, guarantee: str = "at-least-once") -> Config:
    return Config(
        {
            "job.name": "reads",
            "task.inputs": "log.s",
            "task.processing.guarantee": guarantee,
            "systems.log.samza.factory": "log",
            "systems.log.path": str(directory),
            "systems.log.samza.offset.default": "oldest",
            "systems.log.samza.msg.serde": "json",
            "systems.log.fail.on.data.loss": str(not loose).lower(),
        }
    )


class Numbers(StreamTask):
    seen: ClassVar[list[int]] = []

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        self.seen.append(envelope.message)


def run(settings: Config) -> list[int]:
    """Run a job until it has caught up; the numbers that it processed."""
    Numbers.seen = []
    container = Container(settings, Numbers)
    try:
        container.start()
        container.run("caught-up")
        container.stop()
    finally:
        container.abandon()
    return Numbers.seen


def lines(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)


@damaged
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_job_goes_on_behind_damage_where_told_so(
    tmp_path: Path, guarantee: str, damage: Damage, lost: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    files = build(tmp_path)
    damage(files)
    with pytest.raises(CorruptDataError, match=f"{tmp_path}/s/0/"):
        run(config(tmp_path, False, guarantee))
    before = Numbers.seen
    caplog.clear()
    expected = [number for number in range(LAST + 1) if number not in lost]
    assert expected[: len(before)] == before
    assert run(config(tmp_path, True, guarantee)) == expected
    warned = lines(caplog)
    assert f"{tmp_path}/s/0/" in warned and "fail.on.data.loss=false" in warned
    if lost:
        assert f"{min(lost)} to " in warned
    assert run(config(tmp_path, True, guarantee)) == []


@damaged
def test_a_reader_behind_damage_reads_what_a_repair_lets_in(
    tmp_path: Path, damage: Damage, lost: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    damage(build(tmp_path))
    with open_log(tmp_path, fail_on_data_loss="false") as readers, open_log(tmp_path) as writers:
        partition = readers.partition("s", 0)
        cursor = partition.cursor(partition.bounds()[0])
        seen = []
        while not cursor.at_head or not seen:
            # By twos, so that batches are cut where they are read past the damage too.
            batches = cursor.read(2)
            seen += [number for batch in batches for number in batch.column(0).to_pylist()]
            if cursor.at_head:
                break
        assert seen == [number for number in range(LAST + 1) if number not in lost]
        warnings = lines(caplog)
        assert cursor.read(2) == [] and lines(caplog) == warnings
        writer = writers.partition("s", 0)
        writer.repair()
        offsets = writer.append(None, [b"new"])
        assert offsets is not None and offsets.start > LAST
        assert [row["value"] for batch in cursor.read(9) for row in batch.to_pylist()] == [b"new"]


def test_appends_behind_damage_are_read_as_they_come(tmp_path: Path) -> None:
    files = build(tmp_path)
    with open_log(tmp_path) as writers, open_log(tmp_path, fail_on_data_loss="false") as readers:
        writer, reader = writers.partition("s", 0), readers.partition("s", 0)
        writer.append(None, [b"12"])
        flip(files[2], ends(files[2])[1] - 4)
        cursor = reader.cursor(8)
        seen = [row["offset"] for batch in cursor.read(100) for row in batch.to_pylist()]
        seen += [row["offset"] for batch in cursor.read(100) for row in batch.to_pylist()]
        for number in range(13, 16):
            writer.append(None, [b"%d" % number])
            writer.flush()
            seen += [row["offset"] for batch in cursor.read(100) for row in batch.to_pylist()]
            assert reader.bounds() == (0, number + 1)
    assert seen == [8, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("loose", (False, True))
def test_a_checkpoint_behind_a_lost_end_is_no_reason_to_begin_again(
    tmp_path: Path, guarantee: str, loose: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = build(tmp_path)
    settings = config(tmp_path, loose, guarantee)
    assert len(run(settings)) == LAST + 1
    os.truncate(files[2], ends(files[2])[1])
    if loose:
        assert run(settings) == []
        assert "fail.on.data.loss=false" in lines(caplog)
    else:
        with pytest.raises(CorruptDataError, match=r"before offset 12 was committed .* messages 10 to 11 "):
            run(settings)
    # Without the recovery point nothing says that there was more.
    (tmp_path / "s" / "0" / "recovery-point.json").unlink()
    assert run(settings) == list(range(10))
    assert "goes on at 12, but the partition holds 0 to 10" in lines(caplog)


@pytest.mark.parametrize("loose", (False, True))
def test_peek_shows_what_lies_behind_damage(tmp_path: Path, loose: bool) -> None:
    files = build(tmp_path / "streams")
    files[1].unlink()
    job = tmp_path / "job.properties"
    settings = config(tmp_path / "streams", loose)
    job.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    words = ["peek", "log.s", "-c", str(job), "--from", "oldest", "--limit", "100", "--json"]
    result = CliRunner().invoke(app, words)
    offsets = [int(json.loads(line)["offset"]) for line in result.stdout.splitlines() if line[:1] == "{"]
    there = [0, 1, 2, 3, 8, 9, 10, 11] if loose else [0, 1, 2, 3]
    assert offsets == (there if loose else there[: len(offsets)])
    assert (result.exit_code == 0) is loose
    assert loose or isinstance(result.exception, CorruptDataError) or str(files[0]) in result.output


def test_state_is_never_restored_past_damage(tmp_path: Path) -> None:
    build_job(tmp_path, "at-least-once")
    changelog = sorted((tmp_path / "damaged-1-state-changelog" / "0").glob("*.arrow"))
    flip(changelog[0], ends(changelog[0])[0] - 4)
    settings = Config({**job_config(tmp_path, "at-least-once"), "systems.log.fail.on.data.loss": "false"})
    container = Container(settings, Counts)
    with pytest.raises(CorruptDataError, match="damaged-1-state-changelog"):
        container.start()
    container.abandon()


def test_the_setting_is_true_or_false() -> None:
    assert Settings().fail_on_data_loss
    assert not Settings().with_values({"fail.on.data.loss": "FALSE"}).fail_on_data_loss
    with pytest.raises(ConfigError, match=r"fail\.on\.data\.loss: 'no' is neither true nor false"):
        Settings().with_values({"fail.on.data.loss": "no"})
