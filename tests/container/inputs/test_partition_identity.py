"""Inputs of the checkpoint's name that were replaced since, and those that only seem to be."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.checkpoint.api import Checkpoint
from streambench.container.outputs.direct_writer import writing
from streambench.model import SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.memory import memory_streams
from streambench.system.systems import Systems

STREAM = sb.SystemStream("in", "a")
SSP = SystemStreamPartition("in", "a", 0)
TASK = "Partition 0"
COMMON = {
    "job.name": "reads",
    "task.inputs": "in.a",
    "systems.in.samza.offset.default": "oldest",
    "task.checkpoint.system": "file",
}


def job(directory: Path, system: str, **more: Any) -> sb.Config:
    """A job that reads one stream of a kind of system, and keeps its checkpoints elsewhere."""
    path = {} if system == "memory" else {"systems.in.path": directory / "streams"}
    return sb.Config(
        COMMON
        | {"systems.in.samza.factory": system, "task.checkpoint.path": directory / "checkpoints"}
        | path
        | more
    )


def created(config: sb.Config, messages: Iterable[bytes] = (), partitions: int = 1) -> None:
    Systems(config).admin("in").create(STREAM, partitions)
    sent(config, messages)


def sent(config: sb.Config, messages: Iterable[bytes]) -> None:
    with writing(Systems(config), STREAM, 1, "test") as writer:
        writer.send(sb.OutgoingMessageEnvelope(STREAM, message, partition=0) for message in messages)


def made_anew(config: sb.Config, messages: Iterable[bytes] = ()) -> None:
    Systems(config).admin("in").delete(STREAM)
    created(config, messages)


class Reads(sb.StreamTask):
    """Keeps what it has read."""

    read: list[bytes]

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        self.read.append(envelope.message)


def started(config: sb.Config) -> tuple[sb.Container, list[bytes]]:
    read: list[bytes] = []
    container = sb.Container.from_config(config, type("Reads", (Reads,), {"read": read}))
    container.start()
    return container, read


def ran(config: sb.Config, messages: int | None = None) -> list[bytes]:
    """What the next run of the job reads."""
    container, read = started(config)
    container.run("caught-up" if messages is None else messages)
    container.stop()
    return read


def is_told(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether it was said, and nothing else, that the input is another one. Forgets it."""
    told = [record.getMessage() for record in caplog.records]
    caplog.clear()
    assert all("is not what it was when Partition 0 made its checkpoint" in each for each in told)
    return bool(told)


@pytest.fixture
def memory() -> Iterable[None]:
    memory_streams("in").partitions.clear()
    yield
    memory_streams("in").partitions.clear()


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("system", ["log", "memory"])
def test_a_recreated_stream_is_read_from_where_the_default_says(
    system: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, system)
    created(config, [b"1", b"2"])
    assert ran(config) == [b"1", b"2"]
    made_anew(config, [b"one", b"two", b"three"])
    assert ran(config) == [b"one", b"two", b"three"]
    assert is_told(caplog)
    sent(config, [b"four"])
    assert ran(config) == [b"four"]
    assert not is_told(caplog)


def test_the_report_names_partition_task_what_is_done_and_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "log")
    created(config, [b"1", b"2"])
    ran(config)
    made_anew(config, [b"one"])
    ran(config)
    assert [record.getMessage() for record in caplog.records] == [
        "in.a.0 is not what it was when Partition 0 made its checkpoint: it was deleted and made again "
        "since, or replaced, so that the "
        "offset in the checkpoint, 1, means nothing in it (to choose another: streambench checkpoints "
        "--rewind in.a.0@OFFSET -c JOB.properties); "
        "reading begins at 0 (samza.offset.default=oldest)"
    ]


def test_exactly_once_the_outputs_of_the_new_stream_are_all_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(
        tmp_path, "log", **{"task.processing.guarantee": "exactly-once", "task.checkpoint.system": "in"}
    )

    def copy(
        envelope: sb.IncomingMessageEnvelope, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator
    ) -> None:
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("in", "b"), envelope.message))

    created(config, [b"1", b"2"])
    sb.run(config, task=copy)
    made_anew(config, [b"one", b"two", b"three"])
    sb.run(config, task=copy)
    assert is_told(caplog)
    sb.run(config, task=copy)
    outputs = config.with_values({"task.inputs": "in.b", "job.name": "looks"})
    assert ran(outputs) == [b"1", b"2", b"one", b"two", b"three"]
    assert not is_told(caplog)


def test_where_a_task_has_begun_in_a_new_stream_is_known_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if it is the offset at which it had begun in the old one."""
    config = job(tmp_path, "log", **{"systems.in.samza.offset.default": "upcoming"})
    created(config)
    assert ran(config) == []
    made_anew(config)
    assert ran(config) == []
    assert is_told(caplog)
    sent(config, [b"one", b"two"])
    assert ran(config) == [b"one", b"two"]
    assert not is_told(caplog)


def test_a_stream_recreated_while_read_is_not_mistaken_for_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "log")
    created(config, [b"1", b"2"])
    container, _ = started(config)
    container.run(2)
    made_anew(config, [b"one", b"two", b"three"])
    container.stop()
    assert ran(config) == [b"one", b"two", b"three"]
    assert is_told(caplog)


@pytest.mark.parametrize("system", ["log", "file"])
def test_a_checkpoint_that_knows_nothing_of_identities_is_taken_as_it_is(
    system: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, system)
    created(config, [b"1", b"2", b"3"])
    second = {"log": "1", "file": "3"}[system]
    manager = checkpoint_manager(config, "reads-1")
    manager.rewind({TASK: Checkpoint({SSP: second})}, now_ms=0)
    manager.close()
    assert ran(config) == [b"3"]
    assert not is_told(caplog)


# What is still the same


def test_a_log_that_is_copied_elsewhere_is_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = job(tmp_path, "log")
    created(config, [b"1", b"2"])
    ran(config)
    shutil.copytree(tmp_path / "streams", tmp_path / "elsewhere", copy_function=shutil.copyfile)
    shutil.rmtree(tmp_path / "streams")
    config = config.with_values({"systems.in.path": tmp_path / "elsewhere"})
    sent(config, [b"3"])
    assert ran(config) == [b"3"]
    assert not is_told(caplog)


def test_a_log_that_grew_and_lost_its_oldest_to_retention_is_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "log", **{"systems.in.segment.bytes": 1000, "systems.in.retention.bytes": 2000})
    created(config)
    for number in range(20):
        sent(config, [bytes([number]) * 500])
    assert ran(config)[-1] == bytes([19]) * 500
    admin = Systems(config).admin("in")
    admin.grow(STREAM, 3)
    sent(config, [b"last"])
    assert admin.metadata([STREAM])[STREAM][0].oldest != "0"
    assert ran(config) == [b"last"]
    assert not is_told(caplog)


# Files


def written(path: Path, *lines: str) -> None:
    """Put a file there, in place of what may be there."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f".new.{path.name}")
    data = "".join(f"{line}\n" for line in lines).encode()
    new.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    os.replace(new, path)


@pytest.mark.parametrize("follow", ["true", "false"])
@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".txt"])
@pytest.mark.parametrize("length", [1, 2000])
def test_a_file_that_was_replaced_is_read_from_where_the_default_says(
    ending: str, follow: str, length: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file", **{"systems.in.follow": follow})
    path = tmp_path / f"streams/a{ending}"
    written(path, "1", *["11" * length, "12" * length])
    assert len(ran(config)) == (2 if ending == ".csv" else 3)
    written(path, "1", *["21" * length, "22" * length, "23" * length])
    assert len(ran(config)) == (3 if ending == ".csv" else 4)
    assert is_told(caplog)
    assert ran(config) == []
    assert not is_told(caplog)


def test_a_compressed_file_is_known_by_what_is_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file")
    path = tmp_path / "streams/a.jsonl.gz"
    written(path, "11", "12")
    assert ran(config) == [b"11", b"12"]
    path.write_bytes(gzip.compress(b"11\n12\n13\n", compresslevel=1, mtime=7))
    assert ran(config) == [b"13"]
    assert not is_told(caplog)
    written(path, "21", "22", "23", "24")
    assert ran(config) == [b"21", b"22", b"23", b"24"]
    assert is_told(caplog)


@pytest.mark.parametrize("follow", ["true", "false"])
@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_a_file_that_grows_is_the_same(
    follow: str, ending: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file", **{"systems.in.follow": follow})
    path = tmp_path / f"streams/a{ending}"
    written(path, *(["name"] if ending == ".csv" else []))
    for number in range(8):
        with path.open("a") as file:
            file.write(f"{number * 11}\n" + f"{'7' * 700}\n")
        assert len(ran(config, messages=1)) == 1
        assert len(ran(config)) == 1
    assert path.stat().st_size > 5000
    assert not is_told(caplog)


def test_a_file_may_be_edited_behind_what_was_processed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file")
    path = tmp_path / "streams/a.jsonl"
    written(path, "1", "wrong", "3")
    assert ran(config, messages=1) == [b"1"]
    written(path, "1", "2", "3")
    assert ran(config) == [b"2", b"3"]
    assert not is_told(caplog)


def test_a_file_that_was_emptied_is_another_one_from_then_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file")
    path = tmp_path / "streams/a.jsonl"
    written(path, "1", "2")
    ran(config)
    written(path)
    assert ran(config) == []
    assert is_told(caplog)
    written(path, "1", "2", "3")
    assert ran(config) == [b"1", b"2", b"3"]
    assert not is_told(caplog)


def test_a_file_replaced_while_processed_is_not_mistaken_for_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file")
    path = tmp_path / "streams/a.jsonl"
    written(path, "1", "2")
    container, read = started(config)
    container.run(2)
    written(path, "11", "12", "13")
    container.stop()
    assert read == [b"1", b"2"]
    assert ran(config) == [b"11", b"12", b"13"]
    assert is_told(caplog)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_replaced_after_it_was_read_is_committed_as_the_one_read(
    is_replaced: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file", **{"systems.in.follow": "true"})
    path = tmp_path / "streams/a.jsonl"
    written(path, "1")
    container, read = started(config)
    with path.open("a") as file:
        file.write("2\n")
    container.run(2)
    if is_replaced:
        written(path, "11", "12", "13")
    else:
        path.unlink()
    container.stop()
    caplog.clear()  # there is no last snapshot of a file that is gone
    assert read == [b"1", b"2"]
    written(path, "11", "12", "13")
    assert ran(config) == [b"11", b"12", b"13"]
    assert is_told(caplog)


def test_what_comes_into_an_empty_file_between_two_runs_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file", **{"systems.in.samza.offset.default": "upcoming"})
    path = tmp_path / "streams/a.jsonl"
    written(path)
    assert ran(config) == []
    written(path, "1", "2")
    assert ran(config) == [b"1", b"2"]
    assert not is_told(caplog)


def test_a_file_may_be_deleted_when_it_has_been_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(tmp_path, "file")
    path = tmp_path / "streams/a.jsonl"
    written(path, "1", "2")
    container, _ = started(config)
    container.run(2)
    path.unlink()
    container.stop()
    caplog.clear()  # there is no last snapshot of it
    written(path, "1", "2", "3")
    assert ran(config) == [b"3"]
    assert not is_told(caplog)
