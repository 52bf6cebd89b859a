"""The capture of a container that fails: the state and messages from which its failure can be replayed.

It costs nothing before a failure. At the failure, it takes the state of the failing task from the last
commit, and reads the messages since then again from their streams. Their replay leads to the state before the
failing message, without what that one wrote before it failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint
from streambench.container.observe.status import ContainerStatus
from streambench.container.restore import Restore, restore_all
from streambench.container.runtime import Runtime
from streambench.container.tasks.task_instance import TaskInstance
from streambench.errors import StreambenchError, StreamSystemError, TaskError, described
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.recording.captures import (
    capture_directory,
    capture_limit,
    is_captured,
    name_capture,
    save_capture,
)
from streambench.recording.file import RecordingWriter, Row
from streambench.recording.header import TaskStart, new_header, written
from streambench.recording.recording import batch_row, plain_row, value_columns
from streambench.recording.stream_rows import failure_row, stream_rows
from streambench.store.engine import StoreEngine
from streambench.store.expiry import raw_engine
from streambench.store.memory import MemoryEngine
from streambench.system import reader

log = logging.getLogger(__name__)

_PATIENCE_S = 20.0
_PER_MESSAGE = 60
_BLOCK = 10_000

Message = IncomingMessageEnvelope


class _TooLargeError(Exception):
    """More than ``task.capture.mb`` is to be captured, or reading it takes too long."""


class _Budget:
    """The bytes and seconds that are left for a capture."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._until = time.monotonic() + _PATIENCE_S

    def take(self, size: int) -> None:
        """Take bytes. Raises _TooLargeError."""
        self._left -= size
        if self._left < 0 or time.monotonic() > self._until:
            raise _TooLargeError


class _Content(Struct):
    """The content of a capture. ``is_committed``: state and messages begin at the last commit; else the state
    is that at the failure, and only the failing message is there."""

    starts: list[TaskStart]
    stores: list[Row]
    messages: list[Message]
    notes: list[str]
    is_committed: bool
    ordered: bool


def capture_failure(status: ContainerStatus, runtime: Runtime | None, error: BaseException) -> None:
    """Write a capture of a container that has just failed, and name it in the error.

    What goes wrong with it is only logged: the failure is what the caller must see."""
    if runtime is None or not is_captured(error):
        return
    try:
        directory = capture_directory(status.config, status.name, runtime.checkpoints.directory)
        if directory is None:
            return
        write = partial(_write, status, runtime) if status.capture is None else status.capture
        path = save_capture(directory, status.number, partial(write, error))
    except Exception as problem:
        log.warning("%s: no capture of the failure was written: %s", status.name, described(problem))
    else:
        name_capture(error, path)


def _write(status: ContainerStatus, runtime: Runtime, error: BaseException, path: Path) -> None:
    limit = capture_limit(status.config)
    tasks = [each for each in status.tasks if not isinstance(error, TaskError) or each.name == error.task]
    try:
        content = _since_commit(status, runtime, tasks, error, limit)
    except (_TooLargeError, StreambenchError, OSError) as problem:
        reason = (
            f"more than task.capture.mb={limit >> 20} were read since"
            if isinstance(problem, _TooLargeError)
            else str(problem)
        )
        content = _at_failure(status, tasks, error, limit, reason)
    header = new_header(
        "capture", status.config, status.name, status.number, status.factory, content.starts,
        now_ms=status.clock.now_ms(), after_init=not content.is_committed, ordered=content.ordered,
    )  # fmt: skip
    count = len(content.messages)
    place = (error.ssp, error.offset) if isinstance(error, TaskError) else None
    first = next((at for at, each in enumerate(content.messages) if (each.ssp, each.offset) == place), count)
    with RecordingWriter(path, written(header)) as writer:
        outbox = runtime.outbox
        streams = stream_rows(status.systems, outbox.streams, outbox.size_limits)
        writer.write([*content.stores, *streams])
        for start in range(0, count, _BLOCK):
            writer.write_columns(_columns(content.messages[start : start + _BLOCK], start))
        notes = [plain_row("note", count, each) for each in content.notes]
        batch = [batch_row(count, count - first)] if count - first > 1 else []
        writer.write([*batch, *notes, failure_row(error, first), Row("end", count)])


def _columns(messages: Sequence[Message], done: int) -> dict[str, list[Any]]:
    key_data, key_as = value_columns([each.key for each in messages])
    data, data_as = value_columns([each.message for each in messages])
    return {
        "kind": ["message"] * len(messages),
        "position": list(range(done + 1, done + len(messages) + 1)),
        "source": [str(each.ssp) for each in messages],
        "offset": [each.offset for each in messages],
        "key": key_data,
        "message": data,
        "timestamp": [each.timestamp for each in messages],
        "headers": [each.headers for each in messages],
        "key_as": key_as,
        "message_as": data_as,
    }


def _since_commit(
    status: ContainerStatus, runtime: Runtime, tasks: Sequence[TaskInstance], error: BaseException, limit: int
) -> _Content:
    """State and positions of the last commit, and the messages since. Raises _TooLargeError and what systems
    raise."""
    budget = _Budget(limit)
    last = runtime.checkpoints.read_last()
    unknown = Checkpoint({})
    notes = _notes_of_commit(tasks)
    read = {
        each.name: _messages_of(status, each, last.get(each.name, unknown), error, budget) for each in tasks
    }
    stores: list[Row] = []
    for task in tasks:
        found, lacking = _committed_stores(status, runtime, task, last.get(task.name, unknown), budget)
        stores += found
        notes += lacking
    ordered = all(sum(map(bool, each.values())) < 2 for each in read.values())
    if not ordered:
        notes.append(
            "the messages of each partition are in their order; that between partitions is by their "
            "timestamps, else in turns: it was not recorded"
        )
    starts = [_start(each, last.get(each.name, unknown)) for each in tasks]
    return _Content(starts, stores, _merged(read, error), notes, is_committed=True, ordered=ordered)


def _notes_of_commit(tasks: Sequence[TaskInstance]) -> list[str]:
    notes = []
    if any(task.window is not None and task.window_ms != task.window_committed for task in tasks):
        notes.append("calls of window() since the last commit are not in it")
    notes.append("attributes of a task are what its init() makes, as after a restart at the last commit")
    return notes


def _start(task: TaskInstance, checkpoint: Checkpoint) -> TaskStart:
    starts = {each.ssp: each.start for each in task.subscriptions if each.ssp not in checkpoint.offsets}
    return TaskStart(
        name=task.name,
        number=task.model.number,
        partitions=[str(ssp) for ssp in task.model.partitions],
        offsets={str(ssp): offset for ssp, offset in checkpoint.offsets.items()},
        starts={str(ssp): checkpoint.starts.get(ssp, start) for ssp, start in starts.items()},
    )


def _messages_of(
    status: ContainerStatus, task: TaskInstance, checkpoint: Checkpoint, error: BaseException, budget: _Budget
) -> dict[SystemStreamPartition, list[Message]]:
    """The messages of a task since its last commit, and the failing one, as their streams hold them."""
    found = {}
    for each in task.subscriptions:
        ssp, committed = each.ssp, checkpoint.offsets.get(each.ssp)
        to = each.offset
        if isinstance(error, TaskError) and error.task == task.name and error.ssp == ssp:
            to = error.last_offset or error.offset
        if to is None or to == committed:
            continue
        admin = status.systems.admin(ssp.system)
        if not admin.replayable:
            raise StreamSystemError(f"{ssp} keeps nothing that could be read again")
        start = checkpoint.starts.get(ssp, each.start) if committed is None else admin.after(committed)
        found[ssp] = list(_read(status, ssp, start, to, budget))
    return found


def _read(
    status: ContainerStatus, ssp: SystemStreamPartition, start: str, to: str, budget: _Budget
) -> Iterator[Message]:
    """The messages of a partition from ``start`` up to and with the offset ``to``."""
    consumer = status.systems.consumer(ssp.system, status.metrics)
    with closing(reader.follow(consumer, {ssp: start})) as lists:
        for arrived in lists:
            budget.take(0)
            for envelope in arrived:
                budget.take(_PER_MESSAGE + _size(envelope.key) + _size(envelope.message))
                yield envelope
                if envelope.offset == to:
                    return
            if not arrived and consumer.at_head(ssp):
                raise StreamSystemError(f"{ssp} does not hold the message at {to} any more")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (bytes, str)) else 0 if value is None else 200


def _merged(
    read: Mapping[str, Mapping[SystemStreamPartition, list[Message]]], error: BaseException
) -> list[Message]:
    """The messages in one order, by timestamp where there are some, else in turns; the failing one is last. A
    partition of several tasks stands there once."""
    lists: dict[SystemStreamPartition, list[Message]] = {}
    for of_task in read.values():
        for ssp, messages in of_task.items():
            if len(messages) > len(lists.get(ssp, ())):
                lists[ssp] = messages
    failing: list[Message] = []
    if isinstance(error, TaskError) and error.ssp in lists:
        of_failing = lists[error.ssp]
        first = next(at for at, each in enumerate(of_failing) if each.offset == error.offset)
        failing, lists[error.ssp] = of_failing[first:], of_failing[:first]
    ranked = [
        [(each.timestamp or 0, at, place, each) for at, each in enumerate(messages)]
        for place, messages in enumerate(lists.values())
    ]
    # Of sorted lists or not: it takes their heads, so that each partition stays in its order.
    merged = [each for _, _, _, each in merge(*ranked, key=itemgetter(0, 1, 2))]
    return [*merged, *failing]


def _committed_stores(
    status: ContainerStatus, runtime: Runtime, task: TaskInstance, checkpoint: Checkpoint, budget: _Budget
) -> tuple[list[Row], list[str]]:
    """The stores of a task as of its last commit, from their changelogs, and notes of what they lack."""
    rows: list[Row] = []
    notes = []
    task_stores = runtime.task_stores
    for name, store in sorted(task.stores.items()):
        ssp = task_stores.changelogs(task.name).get(name)
        if ssp is None:
            engine = raw_engine(store.engine)
            notes.append(f"the store {name} has no changelog: it is as it was at the failure")
        else:
            engine = MemoryEngine()
            filled = task_stores.definitions[name].with_expiry(engine, status.clock.now_ms)
            admin = status.systems.admin(ssp.system)
            here = status.systems.metadata_of([ssp])[ssp.system_stream][ssp.partition]
            restore = Restore(filled, ssp, here, checkpoint.changelogs.get(name), admin.compare, store=name)
            restore_all(
                status.systems.consumer(ssp.system, status.metrics), [restore], lambda: budget.take(0)
            )
        found = _entries(task.name, name, engine, budget)
        if found is None:
            notes.append(f"the store {name} is too large (task.capture.mb): a replay begins without it")
        rows += found or []
    return rows, notes


def _entries(task: str, store: str, engine: StoreEngine, budget: _Budget) -> list[Row] | None:
    rows = []
    try:
        for key, value in engine.range(None, None):
            budget.take(_PER_MESSAGE + len(key) + len(value))
            rows.append(Row("store", 0, task, store, key=key, message=value))
    except _TooLargeError:
        return None
    return rows


def _at_failure(
    status: ContainerStatus, tasks: Sequence[TaskInstance], error: BaseException, limit: int, reason: str
) -> _Content:
    """The state at the failure, and the failing message."""
    undone = bool(status.config.names("task.ignored.exceptions"))
    notes = [f"it does not begin at the last commit ({reason}), but at the failing message"]
    if not undone:
        notes.append("what the failing message wrote to stores before it failed is in their state")
    notes.append("attributes of a task are what its init() makes")
    budget = _Budget(limit)
    stores: list[Row] = []
    for task in tasks:
        for name, store in sorted(task.stores.items()):
            store.take_back()
            found = _entries(task.name, name, raw_engine(store.engine), budget)
            if found is None:
                notes.append(f"the store {name} is too large (task.capture.mb): a replay begins without it")
            stores += found or []
    starts = [_start(each, Checkpoint(each.offsets())) for each in tasks]
    messages: list[Message] = []
    progress = status.progress
    if isinstance(error, TaskError) and error.ssp is not None and progress.unfinished is not None:
        messages = [_again(status, error, progress.unfinished)]
    return _Content(starts, stores, messages, notes, is_committed=False, ordered=True)


def _again(status: ContainerStatus, error: TaskError, envelope: Message) -> Message:
    """The failing message as its stream holds it; where it cannot be read again, encoded once more."""
    assert error.ssp is not None and error.offset is not None
    admin = status.systems.admin(envelope.ssp.system)
    if admin.replayable:
        return next(_read(status, envelope.ssp, error.offset, error.offset, _Budget(1 << 40)))
    assert status.multiplexer is not None
    partition = status.multiplexer.partitions[envelope.ssp]
    serdes = partition.key_serde, partition.message_serde
    key, message = (
        value if serde is None or value is None else serde.to_bytes(value)
        for serde, value in zip(serdes, (envelope.key, envelope.message), strict=True)
    )
    return Message(envelope.ssp, envelope.offset, key, message, envelope.timestamp, envelope.headers)
