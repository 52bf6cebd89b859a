"""The log of a container's blocks: it takes in what the trace holds, and drops the oldest part.

A block begins with a copy of what tasks keep in memory. It holds the order of its messages, what they
overwrote in stores, and what they sent.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from streambench.container.container import Container
from streambench.container.trace import Sent, Trace, TraceEvent
from streambench.debug.history.block import NOTE_SIZE, Block, BlockTail, output_size
from streambench.debug.history.recorded_inputs import RecordedInputs
from streambench.debug.history.round_robin import with_round_robin_number
from streambench.debug.history.writes import Values
from streambench.errors import ContainerStateError
from streambench.serde.streams import StreamSerdes
from streambench.wording import words

if TYPE_CHECKING:
    from streambench.model import SystemStream

DEFAULT_MB = 256
MB = 1 << 20
_ssp = attrgetter("ssp")
_SHORTEST_NS = 20_000_000
_BLOCKS, _LEAST_BLOCK = 8, 64 << 10
_COPY_SHARE = 20
"""Copies of what tasks keep in memory take at most one part in so many of the time."""


class Reader(Protocol):
    """A recorder, as a history sees it: it gets all that the history reads."""

    def note(
        self,
        order: Sequence[int],
        events: Sequence[TraceEvent],
        ticks: Sequence[tuple[int, int, int]],
        batches: Iterable[tuple[int, int]],
    ) -> None:
        """Note messages, by the indices of their partitions, with events, readings of the clock, and batches.

        Each reading has the number of these events before it. ``batches`` is as ``Batches`` has them."""

    def flush(self) -> None:
        """Read the noted messages, some of which may be dropped after this."""

    def is_due(self, position: int) -> bool:
        """True where a flush is due, at this position."""


class BlockLog:
    """The blocks of a container from its start on, up to the newest message.

    ``limit_mb``: the most memory; the oldest part is dropped where it needs more. ``latest``: the newest
    position, ``oldest`` the first that can be shown. To be made before the container starts. To be used on
    the thread that drives it, or while none does: between two messages, as ``Session.between`` calls.
    """

    def __init__(self, container: Container, limit_mb: int = DEFAULT_MB) -> None:
        self.container = container
        self.limit = limit_mb * MB
        self.blocks: deque[Block] = deque()
        self.trace = Trace()
        self.guard: Callable[[], AbstractContextManager[object]] = nullcontext
        """Entered to read the trace. Raises where another thread drives the container, which fills it."""
        self.is_dropped = False
        self.reader: Reader | None = None
        self._inputs: RecordedInputs | None = None
        self._numbers: list[int] = []
        self._serdes = StreamSerdes(container.config)
        self._keyless: dict[SystemStream, int] = {}
        self._last_commit = 0
        self._committed: dict[str, dict[int, int]] = {}
        """Per task and partition, by its index, the messages chosen before its last commit."""
        self._sent = self._written = 0
        self._pending: list[Sent] = []
        self._next_ns = 0
        self._is_due = False
        self._known: tuple[int, Values] | None = None
        """The values after so many of the blocks, which were asked for last."""
        self._unfinished: dict[int, dict[bytes, bytes | None]] = {}
        container.trace(self.trace)

    def begin(self) -> None:
        """Begin at position 0: the container has started, and has the state that it begins with."""
        self.trace.clear()
        self._inputs = RecordedInputs(self.container.runtime.multiplexer.partitions)
        self._numbers = [0] * len(self._inputs.ssps)
        indexes = self._inputs.indexes
        self._committed = {
            task.name: dict.fromkeys((indexes[each.ssp] for each in task.subscriptions), 0)
            for task in self.container.tasks
        }
        self._add_block()
        self.trace.on_check = self._on_check

    @property
    def has_begun(self) -> bool:
        """True once the container has started."""
        return bool(self.blocks)

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
        with self.guard():
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
    def uncommitted(self) -> int:
        """The number of messages that at least one of their tasks has not committed."""
        self.read()
        committed: dict[int, int] = {}
        for of_task in self._committed.values():
            for index, number in of_task.items():
                committed[index] = min(committed.get(index, number), number)
        return sum(self._numbers[index] - number for index, number in committed.items())

    @property
    def inputs(self) -> RecordedInputs:
        """The recorded messages."""
        if self._inputs is None:
            raise ContainerStateError(f"there is no history yet: {words('start')} begins it")
        return self._inputs

    def read(self) -> None:
        """Take what the trace holds into the last block. Raises what ``guard`` raises."""
        with self.guard():
            self._read()

    def _read(self) -> None:
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
        self._read_commits(order, base)
        for sent in trace.sent:
            position = sent.at if isinstance(sent.at, int) else where.get(id(sent.at), base)
            if position < 0:
                continue
            sent.at = position
            block.outputs.append(with_round_robin_number(sent, self._keyless, self._serdes))
            size += output_size(sent)
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
        block.size += size + NOTE_SIZE * (len(trace.events) + len(ticks))
        trace.clear()

    def _read_choices(self, batches: Sequence[tuple[int, int]]) -> tuple[array[int], dict[int, int]]:
        """The partitions of the chosen messages by their indexes, and the positions of what was chosen by its
        identity. A batch has one entry for all its messages."""
        trace, indexes, numbers = self.trace, self.inputs.indexes, self._numbers
        chosen, base = trace.chosen, trace.base
        is_asked = bool(trace.traced or trace.sent or trace.ticks)
        order, where, done = array("L"), dict[int, int](), 0
        for end, count in (*batches, (trace.position, 0)):
            first = end - count - base
            singles = chosen[done:first]
            single_indexes = list(map(indexes.__getitem__, map(_ssp, singles)))
            order.extend(single_indexes)
            for index, times in Counter(single_indexes).items():
                numbers[index] += times
            if is_asked:
                where.update(zip(map(id, singles), range(base + done + 1, base + first + 1), strict=True))
            if count:
                index = indexes[chosen[first].ssp]
                order.extend(array("L", [index]) * count)
                numbers[index] += count
                where[id(chosen[first])] = end
            done = end - base
        return order, where

    def maintain(self) -> None:
        """Read the trace, and begin another block where it is time. Between two messages."""
        self._is_due = False
        self.read()
        last = self.blocks[-1]
        # Also where copies are slow: only whole blocks can be dropped.
        is_large = last.size - last.copied > max(_LEAST_BLOCK, self.limit // _BLOCKS)
        # Without messages, windows alone make it large.
        if is_large or (last.order and time.perf_counter_ns() >= self._next_ns):
            self._add_block()
        elif self.reader is not None and self.reader.is_due(self.trace.position):
            self.reader.flush()

    def cut(self, *, init: bool = False, is_undone: bool = False) -> None:
        """Begin another block: from here on the code is another, or memory was changed from outside.
        ``init``: that of the code was called; ``is_undone``: a swap with it was undone."""
        self.read()
        self._add_block()
        self.blocks[-1].init, self.blocks[-1].is_undone = init, is_undone

    def drop_after(self, position: int) -> list[BlockTail]:
        """Drop what is after a position; its messages by the block, the oldest first. Other blocks have to
        take its place."""
        self.read()
        tails: list[BlockTail] = []
        while self.blocks[-1].start > position:
            last = self.blocks.pop()
            tails.append(last.drop_after(last.start - 1))
        tails.append(self.blocks[-1].drop_after(position))
        return tails[::-1]

    def put_in_place(self, blocks: Sequence[Block], pending: list[Sent]) -> None:
        """Add blocks that lead to the newest position, in the place of what was dropped. ``pending``: the
        outputs that wait for the commit."""
        self.blocks.extend(blocks)
        last = self.blocks[-1]
        self._sent = last.first_output + len(last.outputs)
        self._written = last.first_write + len(last.writes)
        self._pending = pending
        self._add_block()

    def since(self, first: Block) -> list[Block]:
        """The blocks from this one on."""
        blocks = list(self.blocks)
        return blocks[blocks.index(first) :]

    def _values_after(self, block: Block) -> Values:
        """The values of stores at the end of a block, where they differ from the current ones.

        Kept for the next call, often for a block close before."""
        self.read()
        blocks = list(self.blocks)
        wanted, end = blocks.index(block) + 1, len(blocks)
        known, self._known = self._known, None  # taken: an interrupt leaves none that is half undone
        if known is not None and known[0] >= wanted:
            end, found = known
        else:
            found = [dict(self._unfinished.get(number, {})) for number in range(len(self.trace.stores))]
        for later in reversed(blocks[wanted:end]):
            later.writes.undo(found)
        self._known = wanted, found
        return [dict(each) for each in found]

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

    def _read_commits(self, order: array[int], base: int) -> None:
        """Take the commits of the trace, and the outputs that none of them has taken along. ``order``: the
        partitions of its messages, after the position ``base``."""
        trace, committed = self.trace, 0
        last: dict[str, int] = {}
        for event in trace.events:
            if event.kind == "commit" and event.tasks:
                self._last_commit = event.position
                committed = event.sent
                self._pending = []
                last.update(dict.fromkeys(event.tasks, event.position))
        later = {position: Counter(order[position - base :]) for position in set(last.values())}
        for task, position in last.items():
            for index in self._committed[task]:
                self._committed[task][index] = self._numbers[index] - later[position][index]
        if self.container.runtime.outbox.commits_all_tasks:
            self._pending += [each for each in trace.sent[committed:] if not each.is_refused]

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
        container, firsts = self.container, (self._sent, self._written, self.trace.callbacks)
        self.blocks.append(
            Block(
                self.trace.position, container.tasks, container.factory, container.status.clock.now_ms(),
                self._numbers, self._keyless, firsts,
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
            self.container.post(self.maintain)
