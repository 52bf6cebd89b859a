"""The history of a container: what it takes to show any of its last positions again.

A position is the number of messages processed since the start. The history is kept in *blocks*. A block
begins with a copy of what tasks keep in memory, and holds the order of its messages, what they overwrote in
stores, and what they sent. Stores of a former position are those of now with the overwritten values put
above; memory of tasks is that of the last block, with the messages since then processed again.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from streambench.container.container import Container
from streambench.container.trace import Sent, Trace, TraceEvent
from streambench.debug.attributes import TaskMemory, shared_by_class
from streambench.debug.batches import Batches
from streambench.debug.recorded_inputs import RecordedInputs
from streambench.debug.wording import words
from streambench.debug.writes import StoreWrite, Values, Writes
from streambench.errors import ContainerStateError, SerdeError
from streambench.serde.streams import decoded
from streambench.store.traced import traced_engine

if TYPE_CHECKING:
    from streambench.chunk import Messages
    from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition

DEFAULT_MB = 256
_MB = 1 << 20
_ssp = attrgetter("ssp")
_SHORTEST_NS = 20_000_000
_BLOCKS, _LEAST_BLOCK = 8, 64 << 10
_COPY_SHARE = 20
"""Copies of what tasks keep in memory take at most one part in so many of the time."""


class Reader(Protocol):
    """Gets what a history reads, to record it."""

    def note(
        self,
        order: Sequence[int],
        events: Sequence[TraceEvent],
        ticks: Sequence[tuple[int, int, int]],
        batches: Iterable[tuple[int, int]],
    ) -> None:
        """Note messages, by the places of their partitions, events, readings of the clock, each with the
        number of these events before it, and batches, as ``Batches`` has them."""

    def flush(self) -> None:
        """Read the noted messages, some of which may be dropped after this."""

    def is_due(self, position: int) -> bool:
        """True where a flush is due, at this position."""


class Block:
    """A part of the history, from position ``start`` on. ``size``: in bytes, roughly; ``copied``: at first.

    ``order``: the partitions of its messages, by their places; ``batches``: which of them a task got at
    once. A block ends where a batch does. ``numbers``: per partition, the messages chosen before it.
    ``offsets``: per task its offsets, and where it begins later than its partition. ``keyless``: per
    stream, the messages without a key sent before it. ``first_output``, ``first_write``: the numbers of
    its first output and of its first write to a store, counted from the start; the ``sent`` and
    ``written`` of its events are such numbers, too. ``ticks``: readings of the clock: the position, the
    time, and the callbacks without a message before it, which are ``first_callback`` before the block."""

    __slots__ = (
        "batches", "copied", "events", "factory", "first_callback", "first_output", "first_write", "keyless",
        "memory", "now_ms", "numbers", "offsets", "order", "outputs", "size", "start", "ticks", "writes",
    )  # fmt: skip

    def __init__(
        self,
        start: int,
        container: Container,
        numbers: Sequence[int],
        keyless: dict[SystemStream, int],
        first_output: int = 0,
        first_write: int = 0,
        first_callback: int = 0,
    ) -> None:
        self.start = start
        self.first_output, self.first_write = first_output, first_write
        self.first_callback = first_callback
        self.factory = container.factory
        self.now_ms = container.status.clock.now_ms()
        self.numbers = array("q", numbers)
        self.keyless = dict(keyless)
        self.memory = {task.name: TaskMemory(task) for task in container.tasks}
        self.offsets = {
            task.name: [(each.offset, each.skip_before) for each in task.subscriptions]
            for task in container.tasks
        }
        self.order = array("L")
        self.batches = Batches()
        self.writes = Writes()
        self.outputs: list[Sent] = []
        self.events: list[TraceEvent] = []
        self.ticks: list[tuple[int, int, int]] = []
        self.copied = 500 + 8 * len(numbers) + sum(each.size for each in self.memory.values())
        self.size = self.copied

    @property
    def end(self) -> int:
        """The position after its last message."""
        return self.start + len(self.order)


class History:
    """The history of a container from its start on.

    ``limit_mb``: the most memory; the oldest part is dropped where it needs more. ``latest``: the newest
    position, ``oldest`` the first that can be shown. To be made before the container starts, and to be used
    on the thread that drives it, or while none does.
    """

    def __init__(self, container: Container, limit_mb: int = DEFAULT_MB) -> None:
        self.container = container
        self.limit = limit_mb * _MB
        self.blocks: deque[Block] = deque()
        self.trace = Trace()
        self.is_dropped = self.is_named = self.is_shared_named = False
        self.reader: Reader | None = None
        self.moving: Callable[[], tuple[int, int]] | None = None
        """The position and the target of the last move of a replica, which may go on; for any thread."""
        self._inputs: RecordedInputs | None = None
        self._numbers: list[int] = []
        self._keyless: dict[SystemStream, int] = {}
        self._last_commit = 0
        self._sent = self._written = 0
        self._pending: list[Sent] = []
        self._next_ns = 0
        self._took_ns = 0
        self._is_due = False
        self._earlier: list[Sent] = []
        self._known: tuple[int, Values] | None = None
        """The values after so many of the blocks, which were asked for last."""
        self._unfinished: dict[int, dict[bytes, bytes | None]] = {}
        container.trace(self.trace)

    def begin(self) -> None:
        """Begin at position 0: the container has started, and has the state that it begins with."""
        self.trace.clear()
        self._inputs = RecordedInputs(self.container.runtime.multiplexer.partitions)
        self._numbers = [0] * len(self._inputs.ssps)
        self._add_block()
        self.trace.on_check = self._on_check

    @property
    def has_begun(self) -> bool:
        """True once the container has started."""
        return bool(self.blocks)

    @property
    def is_kept(self) -> bool:
        """True where the stores can be looked at: they are open, or their last entries were kept."""
        return all(
            traced_engine(store.engine).is_kept
            for task in self.container.tasks
            for store in task.stores.values()
        )

    @property
    def latest(self) -> int:
        """The newest position."""
        self.read()
        return self.trace.position

    @property
    def oldest(self) -> int:
        """The first position that can be shown."""
        return self.blocks[0].start

    @property
    def size(self) -> int:
        """The memory that it takes, in bytes, roughly."""
        return self.inputs.size + sum(each.size for each in self.blocks)

    @property
    def numbers(self) -> Sequence[int]:
        """Per input partition, the messages chosen so far."""
        self.read()
        return self._numbers

    @property
    def pending(self) -> Sequence[Sent]:
        """The outputs that wait for the next commit, also those of positions that were dropped; none where
        outputs leave at once."""
        self.read()
        return self._pending

    @property
    def last_commit(self) -> int:
        """The position of the last commit of any task."""
        self.read()
        return self._last_commit

    @property
    def inputs(self) -> RecordedInputs:
        """The recorded messages."""
        if self._inputs is None:
            raise ContainerStateError(f"there is no history yet: {words('start')} begins it")
        return self._inputs

    def uncopied(self) -> dict[str, str]:
        """The memory of tasks that no position brings back, by its name, with the reason."""
        found = {
            f"{task}: {name}": reason
            for task, memory in self.blocks[-1].memory.items()
            for name, reason in memory.shared.items()
        }
        for name in shared_by_class(self.container.factory):
            found[name] = "an attribute of the class, which all its objects share"
        return found

    def read(self) -> None:
        """Take what the trace holds into the last block."""
        trace, inputs, block = self.trace, self.inputs, self.blocks[-1]
        inputs.add(trace.chunks)
        base, unfinished = trace.base, self._drop_unfinished()
        batches = [each for each in trace.batches if each[0] <= trace.position]
        order, where = self._read_choices(batches)
        where.update(dict.fromkeys(unfinished, -1))
        block.order.extend(order)
        block.batches.extend(batches)
        if trace.traced:
            self._known = None
            self._note_unfinished(where)
        former = block.writes.size
        block.writes.add(trace.traced, where, base)
        size = 8 * len(order) + 16 * len(trace.batches) + block.writes.size - former
        self._read_commits()
        for sent in trace.sent:
            position = sent.at if isinstance(sent.at, int) else where.get(id(sent.at), base)
            if position < 0:
                continue
            sent.at = position
            block.outputs.append(with_turn(sent, self._keyless))
            size += 250 + (len(sent.message) if isinstance(sent.message, bytes) else 300)
        ticks = [
            (at if isinstance(at, int) else where.get(id(at), base), now, number, callbacks)
            for at, now, number, callbacks in trace.ticks
        ]
        block.ticks += [(at, now, callbacks) for at, now, _, callbacks in ticks]
        block.events.extend(
            event._replace(sent=self._sent + event.sent, written=self._written + event.written)
            for event in trace.events
        )
        self._sent = block.first_output + len(block.outputs)
        self._written = block.first_write + len(block.writes)
        if self.reader is not None:
            self.reader.note(order, trace.events, [each[:3] for each in ticks], batches)
        block.size += size
        trace.clear()

    def _read_choices(self, batches: Sequence[tuple[int, int]]) -> tuple[array[int], dict[int, int]]:
        """The partitions of the chosen messages by their places, and the positions of what was chosen by its
        identity. A batch has one entry for all its messages."""
        trace, places, numbers = self.trace, self.inputs.places, self._numbers
        chosen, base = trace.chosen, trace.base
        is_asked = bool(trace.traced or trace.sent or trace.ticks)
        order, where, done = array("L"), dict[int, int](), 0
        for end, count in (*batches, (trace.position, 0)):
            first = end - count - base
            singles = chosen[done:first]
            single_places = list(map(places.__getitem__, map(_ssp, singles)))
            order.extend(single_places)
            for place, times in Counter(single_places).items():
                numbers[place] += times
            if is_asked:
                where.update(zip(map(id, singles), range(base + done + 1, base + first + 1), strict=True))
            if count:
                place = places[chosen[first].ssp]
                order.extend(array("L", [place]) * count)
                numbers[place] += count
                where[id(chosen[first])] = end
            done = end - base
        return order, where

    def settle(self) -> None:
        """Read the trace, and begin another block where it is time. Between two messages."""
        self._is_due = False
        self.read()
        last = self.blocks[-1]
        # Also where copies are slow: only whole blocks can be dropped.
        is_large = last.size - last.copied > max(_LEAST_BLOCK, self.limit // _BLOCKS)
        if last.order and (is_large or time.perf_counter_ns() >= self._next_ns):
            self._add_block()
        elif self.reader is not None and self.reader.is_due(self.trace.position):
            self.reader.flush()

    def cut(self) -> None:
        """Begin another block: from here on the code is another, or memory was changed from outside."""
        self.read()
        self._add_block()

    def restart(self, outputs: list[Sent], pending: list[Sent]) -> None:
        """Forget all positions but the newest: the container has got another state. ``outputs``: those that
        led to it, which are shown on; ``pending``: those of them that wait for the commit."""
        self.read()
        self._earlier, self._pending = outputs, pending
        self.blocks.clear()
        self._add_block()
        self.is_dropped = True
        self.inputs.drop_before(self._numbers)

    def block_at(self, position: int) -> Block:
        """The block from which a position is reached. Raises ContainerStateError."""
        self.read()
        if not self.oldest <= position <= self.latest:
            reach = f"from {self.oldest:,} to {self.latest:,}"
            why = (
                f" ({self.limit // _MB} MB hold no more: Session(container, history=MB))"
                if self.is_dropped
                else ""
            )
            raise ContainerStateError(
                f"position {position:,} is not in the history, which reaches {reach}{why}"
            )
        return next(block for block in reversed(self.blocks) if block.start <= position)

    def values_at(self, position: int) -> Values:
        """The values of stores at a position, where they differ from those of now."""
        block = self.block_at(position)
        values = self._values_after(block)
        block.writes.undo(values, position)
        return values

    def values_before(self, block: Block) -> Values:
        """The same for the begin of a block."""
        values = self._values_after(block)
        block.writes.undo(values)
        return values

    def _values_after(self, block: Block) -> Values:
        """The same for the end of a block; kept for the next call, often for a block close before."""
        self.read()
        blocks = list(self.blocks)
        wanted, end = blocks.index(block) + 1, len(blocks)
        known = self._known
        if known is not None and known[0] >= wanted:
            end, found = known[0], [dict(each) for each in known[1]]
        else:
            found = [dict(self._unfinished.get(number, {})) for number in range(len(self.trace.stores))]
        for later in reversed(blocks[wanted:end]):
            later.writes.undo(found)
        self._known = wanted, found
        return [dict(each) for each in found]

    def undo_writes(self, values: Values, first: int, to: int | None = None) -> None:
        """Put into ``values`` what the writes from number ``first`` on, and before ``to``, have overwritten.
        Numbers are those of events."""
        for block in reversed(self.blocks):
            start = block.first_write
            if to is None or start < to:
                block.writes.undo_between(values, max(0, first - start), None if to is None else to - start)
            if start <= first:
                break

    def writes_from(self, first: int) -> Iterator[StoreWrite]:
        """The writes to stores from a number on, in order."""
        self.read()
        for block in self.blocks:
            if block.first_write + len(block.writes) > first:
                yield from block.writes.part(max(0, first - block.first_write))

    def outputs_from(self, first: int) -> Iterator[Sent]:
        """The outputs from a number on, in order."""
        self.read()
        for block in self.blocks:
            if block.first_output + len(block.outputs) > first:
                yield from block.outputs[max(0, first - block.first_output) :]

    def since(self, first: Block) -> list[Block]:
        """The blocks from this one on."""
        blocks = list(self.blocks)
        return blocks[blocks.index(first) :]

    def failed_messages(self) -> tuple[list[Messages], IncomingMessageEnvelope]:
        """The message or the batch at which the container failed, as it was read, and the first one decoded
        for the task."""
        self.read()
        progress = self.container.status.progress
        failed = progress.unfinished
        assert failed is not None
        place = self.inputs.places[failed.ssp]
        pieces = self.inputs.copies(place, self._numbers[place], progress.unfinished_count)
        return pieces, self._decoded(pieces[0].part(0, 1).envelopes()[0])

    def edges(self, position: int) -> tuple[int, int]:
        """The positions before and after the batch that holds the message of a position; most messages are a
        batch of their own."""
        self.read()
        for block in reversed(self.blocks):
            if block.start < position <= block.end:
                return block.batches.edges(position)
        return position - 1, position

    def next_edge(self, position: int) -> int:
        """The first position from this one on that is not inside of a batch."""
        return self.edges(position)[1]

    def last_edge(self, position: int) -> int:
        """The last position up to this one that is not inside of a batch."""
        begin, end = self.edges(position)
        return position if end == position else begin

    def take_back_unfinished(self) -> None:
        """Take back what the message at which the container failed has written to stores."""
        self.read()
        unfinished, self._unfinished, self._known = self._unfinished, {}, None
        tasks = {task.name: task for task in self.container.tasks}
        self.trace.active = False
        try:
            for number, formers in unfinished.items():
                task, store = self.trace.stores[number]
                tasks[task].stores[store].overwrite(formers)
        finally:
            self.trace.active = True

    def place_of(self, position: int) -> tuple[SystemStreamPartition, str] | None:
        """The partition and offset of the message at a position; None where it is not known any more."""
        found = self._number_of(position)
        if found is None:
            return None
        place, number = found
        return self.inputs.ssps[place], self.inputs.offset(place, number)

    def places(self) -> Iterator[tuple[int, SystemStreamPartition, str]]:
        """The position, partition and offset of each message, in order."""
        self.read()
        for block in self.blocks:
            numbers = list(block.numbers)
            for position, place in enumerate(block.order, start=block.start + 1):
                yield position, self.inputs.ssps[place], self.inputs.offset(place, numbers[place])
                numbers[place] += 1

    def message_at(self, position: int) -> IncomingMessageEnvelope | None:
        """The message at a position, decoded where that is possible; None where it is not known any more."""
        found = self._number_of(position)
        if found is None:
            return None
        place, number = found
        return self._decoded(self.inputs.message(place, number))

    def _decoded(self, raw: IncomingMessageEnvelope) -> IncomingMessageEnvelope:
        lane = self.container.runtime.multiplexer.partitions[raw.ssp]
        message = decoded(raw, lane.key_serde, lane.message_serde)
        return raw if isinstance(message, SerdeError) else message

    def position_of(self, ssp: SystemStreamPartition, offset: str) -> int | None:
        """The position after a message was processed last; None where it is not in the history."""
        self.read()
        place = self.inputs.places.get(ssp)
        number = None if place is None else self.inputs.number(place, offset)
        if place is None or number is None:
            return None
        for block in reversed(self.blocks):
            left = number - block.numbers[place]
            if left < 0:
                continue
            for at, each in enumerate(block.order, start=block.start + 1):
                if each == place:
                    if left == 0:
                        return at
                    left -= 1
            return None
        return None

    def writes(self, since: int = 0, to: int | None = None) -> Iterator[StoreWrite]:
        """The writes to stores at positions after ``since`` and up to ``to``, in order."""
        for block in self._blocks_between(since, to):
            yield from block.writes.between(since, to)

    def events(self, since: int = 0, to: int | None = None) -> Iterator[TraceEvent]:
        """The windows, ends of inputs and commits after a position and up to another one (None: all)."""
        for block in self._blocks_between(since, to):
            for event in block.events:
                if since < event.position and (to is None or event.position <= to):
                    yield event

    def outputs(self, since: int = 0, to: int | None = None) -> Iterator[tuple[int, Sent]]:
        """The outputs of messages after ``since`` and up to ``to``, in order."""
        blocks = self._blocks_between(since, to)
        for sent in chain(self._earlier, *(block.outputs for block in blocks)):
            position = sent.at
            if isinstance(position, int) and position > since and (to is None or position <= to):
                yield position, sent

    def _blocks_between(self, since: int, to: int | None) -> list[Block]:
        self.read()
        return [block for block in self.blocks if block.end > since and (to is None or block.start <= to)]

    def _number_of(self, position: int) -> tuple[int, int] | None:
        """The place of the partition of the message at a position, and its number there."""
        self.read()
        for block in reversed(self.blocks):
            if block.start < position <= block.end:
                before = block.order[: position - block.start]
                place = before[-1]
                return place, block.numbers[place] + before.count(place) - 1
        return None

    def _read_commits(self) -> None:
        """Take the commits of the trace, and the outputs that none of them has taken along."""
        trace, committed = self.trace, 0
        for event in trace.events:
            if event.kind == "commit" and event.tasks:
                self._last_commit = event.position
                committed = event.sent
                self._pending = []
        if self.container.runtime.outbox.whole:
            self._pending += trace.sent[committed:]

    @property
    def _has_failed(self) -> bool:
        return self.container.state == "failed"

    def _drop_unfinished(self) -> list[int]:
        """Drop the message at which the container failed; its identity."""
        chosen = self.trace.chosen
        if not self._has_failed:
            return []
        done = max(0, self.container.processed - self.trace.base)
        unfinished = [id(envelope) for envelope in chosen[done:]]
        del chosen[done:]
        return unfinished

    def _note_unfinished(self, where: Mapping[int, int]) -> None:
        """Note what the message at which the container failed has overwritten in stores."""
        if not self._has_failed:
            return
        traced = self.trace.traced
        fields = (traced[field::5] for field in range(4))
        for at, store, key, former in zip(*fields, strict=True):
            if where.get(id(at), 0) < 0:
                self._unfinished.setdefault(store, {}).setdefault(key, former)

    def _add_block(self) -> None:
        if self.reader is not None:
            self.reader.flush()
        self._known = None
        began = time.perf_counter_ns()
        self.blocks.append(
            Block(
                self.trace.position, self.container, self._numbers, self._keyless, self._sent, self._written,
                self.trace.callbacks,
            )
        )  # fmt: skip
        ended = time.perf_counter_ns()
        self._next_ns = ended + max(_SHORTEST_NS, (ended - began) * _COPY_SHARE)
        while len(self.blocks) > 1 and self.size > self.limit:
            self.blocks.popleft()
            self.is_dropped = True
            self.inputs.drop_before(self.blocks[0].numbers)

    def _on_check(self) -> None:
        reader = self.reader
        if self._is_due:
            return
        if time.perf_counter_ns() >= self._next_ns or (
            reader is not None and reader.is_due(self.trace.position)
        ):
            self._is_due = True
            self.container.post(self.settle)


class _Turn(int):
    """The number of an output among those of its stream that go to the partitions by turns."""


def is_turn(partition_key: Any) -> bool:
    """True where an output went to the partitions by turns; its partition key is then its number."""
    return isinstance(partition_key, _Turn)


def with_turn(sent: Sent, counts: dict[SystemStream, int]) -> Sent:
    """An output with its number, where it goes to the partitions by turns. ``counts``: per stream, those
    before it; it is added."""
    if sent.partition is not None or sent.key is not None or sent.partition_key is not None:
        return sent
    count = counts.get(sent.stream, 0)
    counts[sent.stream] = count + 1
    sent.partition_key = _Turn(count)
    return sent
