"""Staged writes: what several processes wrote is appended once, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambench.errors import CorruptDataError, MessageTooLargeError, StreamSystemError
from streambench.process_identity import ProcessIdentity, identity_of
from streambench.system.log import open_log
from streambench.system.log.notes import write_note
from streambench.system.log.partition import Partition
from streambench.system.log.staging import STAGED, StagedFile, StagedWrite
from streambench.system.log.streams import Log

Numbers = Sequence[int]

sizes = st.sampled_from([1, 30, 1 << 20])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path, batch_messages=3) as log:
        log.create("out", 2)
        yield log


def stage(write: StagedWrite, step: int, numbers: Numbers) -> list[StagedFile]:
    """Stage numbers as one task does: even ones for partition 0, odd ones for partition 1."""
    files = write.stage(step)
    for number in numbers:
        row = {"key": None, "message": b"%d" % number, "timestamp": None, "headers": None}
        files.write(number % 2, pa.RecordBatch.from_pylist([row], schema=STAGED))
    return files.close()


def read(log: Log, stream: str = "out") -> list[int]:
    """The numbers of the stream, in the order of each partition."""
    found = []
    for number in range(log.stream(stream).partitions):
        for batch in log.partition(stream, number).read(0, 1 << 30):
            found += [int(value) for value in batch.column(3).to_pylist()]
    return found


def staged_files(log: Log) -> list[str]:
    return [str(path.relative_to(log.path)) for path in log.path.glob(".staging/**/*") if path.is_file()]


def test_staged_messages_are_seen_once_the_step_is_committed(log: Log) -> None:
    write = StagedWrite(log, "out", "query")
    files = [*stage(write, 0, range(10)), *stage(write, 0, [10, 12])]
    stage(write, 0, [99])  # an attempt that did not succeed
    assert read(log) == []
    assert write.commit(0, files)
    assert read(log) == [0, 2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9]
    assert staged_files(log) == [".staging/out/query/done.json"]
    assert log.streams() == ["out"]


def test_a_step_that_is_repeated_is_not_appended_again(log: Log) -> None:
    write = StagedWrite(log, "out", "query")
    for step in (3, 4):
        assert write.commit(step, stage(write, step, [step]))
    assert not write.commit(4, stage(write, 4, [4, 5, 6]))
    assert not write.commit(3, stage(write, 3, [1]))
    assert read(log) == [4, 3]
    assert (write.last(), staged_files(log)) == (4, [".staging/out/query/done.json"])


class Crash(BaseException):
    """The process ends here."""


def crash_at(monkeypatch: pytest.MonkeyPatch, count: int, *, after: bool) -> None:
    """Have the process end before or after its append number ``count``."""
    append, calls = Partition.append_columns, iter(range(1000))

    def counted(self: Partition, *arguments: Any, **named: Any) -> Any:
        last = next(calls) == count
        if last and not after:
            raise Crash
        found = append(self, *arguments, **named)
        if last:
            raise Crash
        return found

    monkeypatch.setattr(Partition, "append_columns", counted)


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("count", range(5))
def test_a_commit_goes_on_where_it_died(
    log: Log, monkeypatch: pytest.MonkeyPatch, count: int, after: bool, batch: int
) -> None:
    write = StagedWrite(log, "out", "query")
    files = stage(write, 7, range(12))
    with monkeypatch.context() as patched, pytest.raises(Crash):
        crash_at(patched, count, after=after)
        write.commit(7, files)
        raise Crash  # the last of all appends is number 3
    write.discard(7, files)  # as Spark does when a commit has failed
    with open_log(log.path, batch_messages=batch) as restarted:
        again = StagedWrite(restarted, "out", "query")
        # Spark stages the step once more, and may deal the rows out otherwise.
        again.commit(7, [*stage(again, 7, range(11, 5, -1)), *stage(again, 7, range(6))])
        assert read(restarted) == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]


def test_an_older_record_is_finished_by_what_the_partition_has(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = commit_in_part(log, monkeypatch)
    for batch, crash in ((1, 2), (100, 1), (2, 99)):
        with (
            monkeypatch.context() as patched,
            suppress(Crash),
            open_log(log.path, batch_messages=batch) as restarted,
        ):
            crash_at(patched, crash, after=True)
            StagedWrite(restarted, "out", "query").commit(7, files)
    assert read(log) == [0, 2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11, 13]
    assert staged_files(log) == [".staging/out/query/done.json"]


def test_an_older_record_whose_messages_are_gone_is_refused(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = commit_in_part(log, monkeypatch)
    partition = log.partition("out", 0)
    partition.roll()
    min(log.path.glob("out/0/0*.arrow")).unlink()
    with pytest.raises(StreamSystemError, match=r"log.out.0: the step of .*7.json was appended in part. How"):
        StagedWrite(log, "out", "query").commit(7, files)


def commit_in_part(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[StagedFile]:
    """A step of which two appends are there, with an older record, which names only the files."""
    write = StagedWrite(log, "out", "query")
    files = stage(write, 7, range(14))
    with monkeypatch.context() as patched, pytest.raises(Crash):
        crash_at(patched, 1, after=True)
        write.commit(7, files)
    write_note(log.path / ".staging" / "out" / "query" / "7.json", files)
    return files


def test_a_staged_file_that_was_cut_is_refused(log: Log) -> None:
    write = StagedWrite(log, "out", "query")
    files = stage(write, 0, range(12))
    path = log.path / ".staging" / "out" / "query" / files[0].path
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        first = reader.read_next_batch()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, STAGED) as writer:
        writer.write_batch(first)
    with pytest.raises(CorruptDataError, match=r"0.arrow has 1 of 6 staged messages; remove the directory"):
        write.commit(0, files)
    assert read(log) == []


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 99), max_size=8), st.integers(0, 6)), max_size=5), st.data()
)
def test_every_step_is_there_once_after_any_crashes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    with (
        open_log(tmp_path_factory.mktemp("log"), batch_messages=2) as log,
        pytest.MonkeyPatch.context() as patch,
    ):
        log.create("out", 2)
        for step, (numbers, crash) in enumerate(steps):
            write = StagedWrite(log, "out", "query")
            with patch.context() as patched:
                crash_at(patched, crash, after=data.draw(st.booleans()))
                with suppress(Crash):
                    write.commit(step, stage(write, step, numbers))
            changed = {"batch_messages": data.draw(st.integers(1, 9)), "batch_bytes": data.draw(sizes)}
            with open_log(log.path, **changed) as restarted:
                write = StagedWrite(restarted, "out", "query")
                write.commit(step, stage(write, step, sorted(numbers)))
        assert sorted(read(log)) == sorted(number for numbers, _ in steps for number in numbers)


def test_a_write_without_a_name_leaves_nothing(log: Log) -> None:
    write = StagedWrite(log, "out", "unnamed", once=False)
    write.begin()
    write.commit(0, stage(write, 0, range(4)))
    assert (read(log), staged_files(log)) == ([0, 2, 1, 3], [])


def test_a_task_that_outlives_its_write_leaves_nothing(log: Log) -> None:
    write = StagedWrite(log, "out", "unnamed", once=False)
    write.begin()
    late = write.stage(0)
    write.discard(0, stage(write, 0, range(4)))
    row = {"key": None, "message": b"4", "timestamp": None, "headers": None}
    with pytest.raises(StreamSystemError, match="the write has ended without this process"):
        late.write(0, pa.RecordBatch.from_pylist([row], schema=STAGED))
    assert list((log.path / ".staging" / "out").iterdir()) == []


def test_what_is_discarded_is_gone(log: Log) -> None:
    write = StagedWrite(log, "out", "query")
    write.discard(0, stage(write, 0, [1]))
    assert staged_files(log) == []
    assert write.commit(0, stage(write, 0, [2]))
    assert read(log) == [2]


def test_a_writer_that_gives_up_leaves_what_others_staged_under_its_name(log: Log) -> None:
    one, other = StagedWrite(log, "out", "query"), StagedWrite(log, "out", "query")
    files = stage(one, 0, [1, 2])
    other.discard(0, stage(other, 0, [1, 2]))
    assert one.commit(0, files)
    assert read(log) == [2, 1]


def test_a_task_whose_step_another_process_does_meanwhile_says_so(log: Log) -> None:
    late = StagedWrite(log, "out", "query").stage(0)
    row = {"key": None, "message": b"1", "timestamp": None, "headers": None}
    late.write(0, pa.RecordBatch.from_pylist([row], schema=STAGED))
    other = StagedWrite(log, "out", "query")
    assert other.commit(0, stage(other, 0, [1]))
    with pytest.raises(StreamSystemError, match=r"0.arrow is not there: the write has ended without this"):
        late.close()


def test_a_step_that_another_process_does_first_is_no_error(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, other = StagedWrite(log, "out", "query"), StagedWrite(log, "out", "query")
    files, decide = stage(late, 0, [1, 2]), late._decide

    def decide_late(step: int, files: Sequence[StagedFile]) -> Any:
        assert other.commit(0, stage(other, 0, [1, 2]))
        return decide(step, files)

    monkeypatch.setattr(late, "_decide", decide_late)
    assert not late.commit(0, files)
    assert (read(log), staged_files(log)) == ([2, 1], [".staging/out/query/done.json"])


def test_a_repeat_removes_what_killed_processes_left_of_a_step(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = StagedWrite(log, "out", "query")
    files = [*stage(killed, 0, [1]), *stage(killed, 0, [2])]
    stage(killed, 0, [9])  # an attempt that did not succeed

    def crash(step: int) -> None:
        raise Crash

    monkeypatch.setattr(killed, "_clean", crash)
    with pytest.raises(Crash):
        killed.commit(0, files)
    assert len(staged_files(log)) == 5
    for _ in range(2):
        stage(StagedWrite(log, "out", "query"), 0, [5])  # an executor that is killed in the repeat
        repeat = StagedWrite(log, "out", "query")
        ahead = stage(repeat, 1, [3])
        assert not repeat.commit(0, stage(repeat, 0, [1, 2]))
        assert staged_files(log) == [".staging/out/query/done.json", f".staging/out/query/{ahead[0].path}"]
        repeat.discard(1, ahead)
    assert read(log) == [2, 1]


def test_a_step_that_is_finished_late_takes_no_later_one_back(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, successor = StagedWrite(log, "out", "query"), StagedWrite(log, "out", "query")
    files = stage(frozen, 0, [0])
    flush = Partition.flush

    def freeze(partition: Partition) -> None:
        flush(partition)
        monkeypatch.setattr(Partition, "flush", flush)
        assert successor.commit(0, []) and successor.commit(1, stage(successor, 1, [2, 4]))

    monkeypatch.setattr(Partition, "flush", freeze)
    frozen.commit(0, files)
    assert not successor.commit(1, stage(successor, 1, [2, 4]))
    assert (read(log), successor.last()) == ([0, 2, 4], 1)


def test_files_on_another_machine_are_missed_before_anything_is_written(log: Log) -> None:
    write = StagedWrite(log, "out", "query")
    files = [*stage(write, 0, [1]), StagedFile(0, "0/elsewhere/0.arrow", 5)]
    with pytest.raises(StreamSystemError, match=r"elsewhere/0.arrow is not there: all processes .* share"):
        write.commit(0, files)
    assert read(log) == []


def test_a_staged_file_that_is_lost_behind_its_record_is_named(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = StagedWrite(log, "out", "query")
    files = stage(write, 0, range(4))
    with monkeypatch.context() as patched, pytest.raises(Crash):
        crash_at(patched, 0, after=False)
        write.commit(0, files)
    (log.path / ".staging" / "out" / "query" / files[1].path).unlink()
    with pytest.raises(StreamSystemError, match=r"what was staged in \S+/1.arrow is not there"):
        write.commit(0, files)


def test_a_message_that_is_too_large_is_refused_where_it_is_staged(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=10) as log:
        log.create("out", 1)
        files = StagedWrite(log, "out", "query").stage(0)
        row = {"key": b"key", "message": b"12345678", "timestamp": None, "headers": None}
        with pytest.raises(
            MessageTooLargeError, match=r"log.out.0: a message of 11 bytes .*max.message.bytes=10"
        ):
            files.write(0, pa.RecordBatch.from_pylist([row], schema=STAGED))
        row |= {"message": b"1", "headers": [("name", b"123")]}
        with pytest.raises(MessageTooLargeError, match="a message of 11 bytes"):
            files.write(0, pa.RecordBatch.from_pylist([row], schema=STAGED))


def left_by_another(log: Log) -> tuple[subprocess.Popen[str], ProcessIdentity]:
    """A process that owns a write, with one staged message, and how it is known."""
    process = subprocess.Popen(["sleep", "600"], text=True)
    owner = identity_of(process.pid)
    assert owner is not None
    write = StagedWrite(log, "out", "left", once=False)
    write.begin(owner)
    stage(write, 0, [1])
    return process, owner


def test_what_a_killed_owner_left_goes_with_the_next_write(log: Log) -> None:
    process, owner = left_by_another(log)
    write = StagedWrite(log, "out", "next", once=False)
    try:
        write.begin()
        assert len(list(log.path.glob(".staging/out/left/0/*/*.arrow"))) == 1  # its owner lives
        assert not owner.is_gone
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    write.begin()
    assert [path.name for path in (log.path / ".staging" / "out").iterdir()] == ["next"]


def test_what_an_unknown_owner_left_goes_after_a_day(log: Log) -> None:
    StagedWrite(log, "out", "left", once=False).begin(ProcessIdentity("elsewhere", "1", 1, "1"))
    write = StagedWrite(log, "out", "next", once=False)
    write.begin()
    left = log.path / ".staging" / "out" / "left"
    assert left.exists()
    for path in (left / "owner.json", left):
        os.utime(path, (1, 1))
    write.begin()
    assert not left.exists()


def test_named_writes_are_kept_until_they_are_repeated(log: Log) -> None:
    named = StagedWrite(log, "out", "query")
    files = stage(named, 0, [1])
    StagedWrite(log, "out", "next", once=False).begin()
    assert named.commit(0, files)
    assert read(log) == [1]
