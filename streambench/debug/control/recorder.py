"""The recorder of a session: writes what its history reads to a file, block by block."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from streambench.chunk import ArrowChunk, Chunk, Messages
from streambench.container.container import Container
from streambench.container.trace import TraceEvent
from streambench.debug.history.attributes import TaskMemory
from streambench.debug.history.block import Block
from streambench.debug.history.history import History
from streambench.errors import described
from streambench.metrics.registry import Counter as MetricCounter
from streambench.metrics.registry import Gauge, Timer
from streambench.model import SystemStream
from streambench.recording.file import (
    BLOCK_BYTES,
    BLOCK_MESSAGES,
    BLOCK_S,
    RecordingWriter,
    Row,
    columns_of,
)
from streambench.recording.header import TaskStart, code_of, new_header, remember_code, written
from streambench.recording.recording import (
    EVENTS,
    TEXT,
    CodeChange,
    adopt_row,
    batch_row,
    code_row,
    plain_row,
    text_note,
    value_columns,
)
from streambench.recording.stream_rows import failure_row, stream_rows
from streambench.recording.values import packed
from streambench.redaction import redacted
from streambench.store.engine import StoreEngine
from streambench.store.overlay import OverlayEngine
from streambench.store.traced import traced_engine

log = logging.getLogger(__name__)

DEFAULT_MB = 1024
_MB = 1 << 20
_ROWS = 20_000
_GROWTH = 8

_Message = tuple[str, Any, Any, int | None, Mapping[str, bytes] | None]


class Recorded(Struct, frozen=True):
    """A recording that has ended: its file, with so many messages and bytes. ``reason``: why it ended by
    itself (its size, a full disk), else empty."""

    path: Path
    messages: int
    size: int
    reason: str = ""


class Recorder:
    """Records a container from its present position on. To be used on the thread that drives it, or while
    none does.

    What cannot be written, or a file that reaches its size, ends the recording with a warning, and not the
    job. ``is_open``: it still records. ``problem``: why it could not write. ``reason``: why it ended by
    itself, else empty."""

    def __init__(
        self,
        history: History,
        path: Path,
        limit_mb: int = DEFAULT_MB,
        *,
        since: Block | None = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """``since``: a block of the history, to begin with, for a capture. ``on_end`` is called where it ends
        by itself. Raises OSError where the file cannot be created."""
        self.path = path
        self.is_open = True
        self.problem: Exception | None = None
        self.reason = ""
        self._is_writing = False
        self._on_end = on_end
        self._history = history
        self._limit_mb = limit_mb
        self._start = history.latest if since is None else since.start
        self._numbers = list(history.numbers if since is None else since.numbers)
        self._flush_by = time.monotonic() + BLOCK_S
        self._order: list[int] = []
        self._rows: list[Row] = []
        self._streams: set[SystemStream] = set()
        self._as_text: set[SystemStream] = set()
        container = history.container
        factory = container.factory if since is None else since.factory
        header = new_header(
            "recording" if since is None else "capture", container.config, container.name, container.number,
            factory, task_starts(container, since), has_batches=True,
            now_ms=container.status.clock.now_ms() if since is None else since.now_ms,
        )  # fmt: skip
        self._header, self._codes = header, 0
        self._writer = RecordingWriter(path, written(header))
        self._names = [str(ssp) for ssp in history.inputs.ssps]
        self._try(lambda: self._write_state(since))
        self._size_before = self._writer.size

    def note(
        self,
        order: Sequence[int],
        events: Sequence[TraceEvent],
        ticks: Sequence[tuple[int, int, int]],
        batches: Iterable[tuple[int, int]],
    ) -> None:
        self._order.extend(order)
        self._rows += [batch_row(end - self._start, count) for end, count in batches]
        left = deque(ticks)
        for number, each in enumerate(events):
            self._note_ticks(left, number)
            if each.kind in EVENTS:
                at = each.position - self._start
                self._rows.append(plain_row(each.kind, at, list(each.tasks), timestamp=each.now_ms))
        self._note_ticks(left, len(events))

    def _note_ticks(self, ticks: deque[tuple[int, int, int]], number: int) -> None:
        """Note the readings of the clock before an event."""
        while ticks and ticks[0][2] <= number:
            at, now, _ = ticks.popleft()
            self._rows.append(Row("clock", max(0, at - self._start), timestamp=now))

    def note_swap(self, position: int, factory: Any, *, init: bool, is_undone: bool = False) -> None:
        """Note the code that was exchanged at a position. ``is_undone``: with the former attributes."""
        at = position - self._start
        self._rows.append(code_row(self._change(position, factory, init=init)))
        if is_undone:
            text = f"a swap was undone after {at:,} of the messages: a replay keeps what its init() made"
            self._rows.append(plain_row("note", at, text))

    def note_adopted(self, branch: Sequence[tuple[int, Any, bool]]) -> None:
        """Note the branch that was adopted: each swap with its position, its code, and whether ``init`` was
        called. Messages, windows and batches are those that were noted before."""
        changes = [self._change(position, factory, init=init) for position, factory, init in branch]
        self._rows.append(adopt_row(changes))

    def _change(self, position: int, factory: Any, *, init: bool) -> CodeChange:
        """A swap, whose code this process remembers."""
        self._codes += 1
        remember_code(self._header, self._codes, factory)
        return CodeChange(position - self._start, code_of(factory), init, self._codes)

    def is_due(self, position: int) -> bool:
        """True where so much is not written yet, or for so long, that a flush is due. A process that is
        killed loses no more than that, and what its last iterations have processed."""
        if not self.is_open:
            return False
        waiting = position - self._start - self._done
        return waiting >= BLOCK_MESSAGES or time.monotonic() >= self._flush_by

    def flush(self) -> None:
        """Write what was noted since the last call."""
        self._flush_by = time.monotonic() + BLOCK_S
        if self.is_open and (self._order or self._rows):
            self._try(self._flush)

    def close(self, error: BaseException | None = None) -> None:
        """End the recording. ``error``: what the container failed with."""
        if error is None:
            self.flush()
        if self.is_open:
            self._try(lambda: self._end(error))
            self.is_open = False

    def give_up(self, reason: str) -> None:
        """End the recording behind its last whole block, on another thread than the one that drives the
        container. It stays open while that thread is writing to it."""
        if self.is_open and not self._is_writing:
            lacks = f"it lacks at most about {BLOCK_MESSAGES:,} messages or {BLOCK_S:g} s before that"
            self._cut(reason, f"; {lacks}")

    def _try(self, what: Callable[[], None]) -> None:
        self._is_writing = True
        try:
            what()
        except Exception as error:
            # Whatever it is: a recording must not end the job that it records.
            self.problem = error
            reason = (error.strerror or error) if isinstance(error, OSError) else described(error)
            self._cut(str(reason))
        finally:
            self._is_writing = False

    def _cut(self, reason: str, lacks: str = "") -> None:
        """End the file behind its last whole block, with a warning. ``lacks``: what it lacks."""
        ends = f"ends after {self._done} messages: {reason}{lacks}"
        self._writer.cut([plain_row("note", self._done, f"the recording {ends}"), Row("end", self._done)])
        more = "" if lacks else "; the job goes on"
        log.warning("%s: the recording %s %s%s", self._history.container.name, self.path, ends, more)
        self._has_ended(reason)

    def _has_ended(self, reason: str) -> None:
        """Note that it ended by itself. Nothing more is kept for it."""
        self.is_open, self.reason = False, reason
        self._order, self._rows = [], []
        self._on_end()

    @property
    def recorded(self) -> Recorded:
        """The recording so far."""
        return Recorded(self.path, self._done, self._writer.size, self.reason)

    @property
    def _done(self) -> int:
        """The number of messages in the file."""
        return self._writer.messages

    def _write_state(self, since: Block | None) -> None:
        """Write the present stores and attributes, or those at the begin of a block."""
        history = self._history
        rows: list[Row] = []
        values: dict[tuple[str, str], dict[bytes, bytes | None]] = {}
        if since is not None:
            values = dict(zip(history.trace.stores, history.values_before(since), strict=True))
        for task in history.container.tasks:
            rows += attribute_rows(TaskMemory(task) if since is None else since.memory[task.name], task.name)
            for name, store in sorted(task.stores.items()):
                entries = OverlayEngine(traced_engine(store.engine).engine, values.get((task.name, name), {}))
                rows = self._write_entries(task.name, name, entries, rows)
        self._writer.write(rows)

    def _write_entries(self, task: str, store: str, entries: StoreEngine, rows: list[Row]) -> list[Row]:
        """Write the entries of a store behind these rows; the rows that are not written yet."""
        limit = min(BLOCK_BYTES, self._limit_mb * _MB)
        size = sum(len(each.message or b"") for each in rows)
        for key, value in entries.range(None, None):
            rows.append(Row("store", 0, task, store, key=key, message=value))
            size += len(key) + len(value)
            if len(rows) < _ROWS and size < limit:
                continue
            self._writer.write(rows)
            rows, size = [], 0
            if self._writer.size > self._limit_mb * _MB:
                note = f"the store {store} of {task} is too large: a replay begins with a part of it"
                return [plain_row("note", 0, note)]
        return rows

    def _flush(self) -> None:
        """Write what was noted, and end the recording where it has reached its size."""
        if self._write_noted(has_limit=True):
            return
        reason = f"at its size, {self._limit_mb} MB: record(path, mb=...) allows more"
        note = f"the recording ended {reason}"
        rows = [row for row in self._rows if row.position <= self._done]
        self._writer.write([*rows, plain_row("note", self._done, note), Row("end", self._done)])
        self._writer.close()
        log.warning("%s: %s", self._history.container.name, note)
        self._has_ended(reason)

    def _write_noted(self, *, has_limit: bool) -> bool:
        """Write what was noted; False where the file has reached its size with that, or before all of it."""
        self._rows = [*self._new_streams(), *self._rows]
        while self._order:
            count = self._fitting() if has_limit else _ROWS
            part, self._order = self._order[:count], self._order[count:]
            self._write_messages(part, self._following(Counter(part)), self._rows_up_to(len(part)))
            if has_limit and self._is_full:
                return False
        self._writer.write(self._rows)
        self._rows = []
        return not (has_limit and self._is_full)

    @property
    def _is_full(self) -> bool:
        return self._writer.size > self._limit_mb * _MB

    def _fitting(self) -> int:
        """The number of messages to write before the size of the file is looked at, by their mean so far."""
        mean = max(1, (self._writer.size - self._size_before) // max(1, self._done))
        left = (self._limit_mb * _MB - self._writer.size) // mean
        return max(1, min(_ROWS, left, _GROWTH * self._done))

    def _rows_up_to(self, count: int) -> list[Row]:
        """Take the rows that belong to the next messages. They stand in one block with these: a file that is
        cut has no messages without their windows."""
        rows, end = self._rows, self._done + count
        # The branch that an "adopt" brings begins before the rows that it replaces, and stands behind them.
        if self._order and any(row.kind == "adopt" for row in rows):
            return []
        self._rows = [row for row in rows if self._order and row.position > end]
        return [row for row in rows if not self._order or row.position <= end]

    def _new_streams(self) -> list[Row]:
        """The numbers of partitions of streams that the tasks have sent to since the last call."""
        container = self._history.container
        new = [each for each in container.runtime.outbox.streams if each not in self._streams]
        self._streams.update(new)
        return stream_rows(container.status.systems, new, container.runtime.outbox.size_limits)

    def _end(self, error: BaseException | None) -> None:
        # Whole, whatever its size: the failing message and the failure belong to what leads there.
        self._write_noted(has_limit=False)
        if error is not None:
            self._write_failing()
            self._rows.append(failure_row(error, self._history.container.processed - self._start))
        self._writer.write([*self._rows, Row("end", self._done)])
        self._writer.close()

    def _write_failing(self) -> None:
        """Write the message at which the container failed, or its batch."""
        progress = self._history.container.status.progress
        failing, count = progress.unfinished, progress.unfinished_count
        if failing is None:
            return
        index = self._history.inputs.indexes[failing.ssp]
        found = list(self._following({index: count}).get(index, ()))
        if found and found[0][0] == failing.offset:
            self._write_messages([index] * len(found), {index: iter(found)})
            if len(found) > 1:
                self._rows.append(batch_row(self._done, len(found)))

    def _following(self, counts: Mapping[int, int]) -> dict[int, Iterator[_Message]]:
        """The next messages of partitions, so many of each."""
        inputs = self._history.inputs
        chunks = inputs.since(self._numbers)
        return {
            index: islice(_messages(chunks[inputs.ssps[index]]), count) for index, count in counts.items()
        }

    def _write_messages(
        self, order: Sequence[int], found: Mapping[int, Iterator[_Message]], more: Sequence[Row] = ()
    ) -> None:
        """Write messages, and these rows in the same block."""
        rows = [next(found[index]) for index in order]
        for index, count in Counter(order).items():
            self._numbers[index] += count
        offsets, keys, messages, timestamps, headers = map(list, zip(*rows, strict=True))
        key_data, key_as = value_columns(keys)
        data, data_as = value_columns(messages)
        if TEXT in key_as or TEXT in data_as:
            self._warn_of_text(order, key_as, data_as)
        columns: dict[str, list[Any]] = {
            "kind": ["message"] * len(order),
            "position": list(range(self._done + 1, self._done + len(order) + 1)),
            "source": [self._names[index] for index in order],
            "offset": offsets, "key": key_data, "message": data, "timestamp": timestamps,
            "headers": headers, "key_as": key_as, "message_as": data_as,
        }  # fmt: skip
        if more:
            nothing = [None] * len(order)
            columns = {
                name: [*columns.get(name, nothing), *values] for name, values in columns_of(more).items()
            }
        self._writer.write_columns(columns)

    def _warn_of_text(self, order: Sequence[int], *forms: Sequence[str | None]) -> None:
        """Warn of the streams whose messages cannot be kept, once."""
        for index, of_message in zip(order, zip(*forms, strict=True), strict=True):
            stream = self._history.inputs.ssps[index].system_stream
            if TEXT in of_message and stream not in self._as_text:
                self._as_text.add(stream)
                log.warning("%s: %s", self._history.container.name, text_note(stream))


def write_capture(history: History, error: BaseException, path: Path, limit: int) -> None:
    """Write a capture of a container that failed, from as long ago as fits into ``limit`` bytes. Raises
    what it could not be written for."""
    history.read()
    size, first = history.inputs.size, history.oldest
    length = max(1, history.latest - first)
    block = next(
        (each for each in history.blocks if (history.latest - each.start) / length * size <= limit),
        history.blocks[-1],
    )
    recorder = Recorder(history, path, limit // _MB, since=block)
    factory = block.factory
    for each in history.since(block):
        # The first block begins with the attributes that its swap has made.
        if each is not block and (each.factory is not factory or each.init or each.is_undone):
            recorder.note_swap(each.start, each.factory, init=each.init, is_undone=each.is_undone)
            factory = each.factory
        ticks = [(at, now, _events_before(each, at, callbacks)) for at, now, callbacks in each.ticks]
        recorder.note(each.order, each.events, ticks, each.batches)
    recorder.close(error)
    if recorder.problem is not None:
        raise recorder.problem


def _events_before(block: Block, position: int, callbacks: int) -> int:
    """The number of events of a block before a reading of the clock at a position, after so many callbacks
    without a message."""
    before = sum(each.position < position for each in block.events)
    count = callbacks - block.first_callback
    if count <= 0:
        return before
    positions = [number for number, each in enumerate(block.events, start=1) if each.kind != "commit"]
    return max(before, positions[count - 1]) if count <= len(positions) else before


def task_starts(container: Container, since: Block | None = None) -> list[TaskStart]:
    """The tasks of a container where they stand now, or stood at the begin of a block."""
    found = []
    for task in container.tasks:
        offsets = [each.offset for each in task.subscriptions]
        if since is not None:
            offsets = [offset for offset, _ in since.offsets[task.name]]
        at = list(zip(task.subscriptions, offsets, strict=True))
        found.append(
            TaskStart(
                name=task.name,
                number=task.model.number,
                partitions=[str(ssp) for ssp in task.model.partitions],
                offsets={str(each.ssp): offset for each, offset in at if offset is not None},
                starts={str(each.ssp): each.start for each, offset in at if offset is None},
            )
        )
    return found


def attribute_rows(memory: TaskMemory, task: str) -> list[Row]:
    """The attributes of a task's object in one row, and notes of those that cannot be kept. Metrics and other
    handles of the container, which ``init`` makes, are left out."""
    handles = set(map(id, memory.handles))
    values = {**memory.attributes, **{f"context.user{name}": value for name, value in memory.user.items()}}
    kept, rows = {}, []
    for name, value in values.items():
        if id(value) in handles or isinstance(value, MetricCounter | Gauge | Timer):
            continue
        reason = _why_not_kept(value)
        if reason:
            note = f"{task}: the attribute {name} is not recorded ({reason}); a replay has what init() makes"
            rows.append(plain_row("note", 0, note))
        else:
            kept[name] = value
    return [plain_row("attributes", 0, kept, task=task), *rows]


def _why_not_kept(value: Any) -> str:
    """The reason for which an attribute is not to be recorded, else empty."""
    try:
        packed(value)
    except Exception as error:
        return str(error)
    text = repr(value)
    return "" if redacted(text) == text else "it holds a secret of the configuration"


def _messages(chunks: Iterator[Messages]) -> Iterator[_Message]:
    for each in chunks:
        chunk = each.lists() if isinstance(each, ArrowChunk) else cast("Chunk", each)
        nothing = [None] * len(chunk)
        yield from zip(
            chunk.offsets, chunk.keys, chunk.messages, chunk.timestamps or nothing, chunk.headers or nothing,
            strict=True,
        )  # fmt: skip
