"""The history of a container: what it takes to show any of its last positions again.

A position is the number of messages processed since the start. The history is kept in blocks. Stores of a
former position are the current ones with the overwritten values put above. Memory of tasks is that of the
last block, with the messages since then processed again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from streambench.container.container import Container
from streambench.container.trace import Sent, TraceEvent
from streambench.debug.history.attributes import shared_by_class
from streambench.debug.history.block import Block, position_of
from streambench.debug.history.block_log import DEFAULT_MB, MB, BlockLog
from streambench.debug.history.writes import StoreWrite, Values
from streambench.errors import ContainerStateError, SerdeError
from streambench.serde.streams import decoded
from streambench.store.traced import traced_engine
from streambench.wording import words

if TYPE_CHECKING:
    from streambench.chunk import Messages
    from streambench.debug.history.recorded_inputs import RecordedPartition
    from streambench.model import IncomingMessageEnvelope, SystemStreamPartition


_T = TypeVar("_T")


class History(BlockLog):
    """The positions of a container, looked up in its blocks: their messages, stores, events and outputs.

    An iterator over messages, writes, events or outputs can be walked while the container goes on: it has
    what was there at the call."""

    def __init__(self, container: Container, limit_mb: int = DEFAULT_MB) -> None:
        super().__init__(container, limit_mb)
        self.warned: set[str] = set()
        """The warnings about the past of tasks that were given; each is given once."""
        self.moving: Callable[[], tuple[int, int]] | None = None
        """The position and the target of the last move of a replica, which may go on; for any thread."""
        self.goal: int | None = None
        """The last position to which the moves lead that go on one by one; None where there are none."""

    @property
    def is_kept(self) -> bool:
        """True where the stores can be looked at: they are open, or their last entries were kept."""
        return all(
            traced_engine(store.engine).is_kept
            for task in self.container.tasks
            for store in task.stores.values()
        )

    def uncopied(self) -> dict[str, str]:
        """The memory of tasks that no position brings back, by its name, with the reason: that of the first
        task that has it."""
        found: dict[str, str] = {}
        for memory in self.blocks[-1].memory.values():
            found = memory.uncopied | found
        for name in shared_by_class(self.container.factory):
            found[name] = "an attribute of the class, which all its objects share"
        return found

    def block_at(self, position: int) -> Block:
        """The block from which a position is reached. Raises ContainerStateError."""
        self.read()
        if not self.oldest <= position <= self.latest:
            reach = f"from {self.oldest:,} to {self.latest:,}"
            why = (
                f" ({self.limit // MB} MB hold no more: {words('keep more')} keeps more)"
                if self.is_dropped
                else ""
            )
            raise ContainerStateError(
                f"position {position:,} is not in the history, which reaches {reach}{why}"
            )
        return next(block for block in reversed(self.blocks) if block.start <= position)

    def values_at(self, position: int) -> Values:
        """The values of stores at a position, where they differ from the current ones."""
        block = self.block_at(position)
        values = self._values_after(block)
        block.writes.undo(values, position)
        return values

    def values_before(self, block: Block) -> Values:
        """The same for the begin of a block."""
        values = self._values_after(block)
        block.writes.undo(values)
        return values

    def offsets_at(self, position: int) -> dict[str, dict[SystemStreamPartition, str]]:
        """Per task, the last offset processed of each partition at a position."""
        block, inputs = self.block_at(position), self.inputs
        counts = Counter(block.order[: position - block.start])
        last = {
            inputs.ssps[index]: inputs.partition(index).offset(block.numbers[index] + count - 1)
            for index, count in counts.items()
        }
        found: dict[str, dict[SystemStreamPartition, str]] = {}
        for task in self.container.tasks:
            of_task = found[task.name] = {}
            for each, (offset, begins) in zip(task.subscriptions, block.offsets[task.name], strict=True):
                newest = last.get(each.ssp)
                if newest is not None and (begins is None or not self._is_before(each.ssp, newest, begins)):
                    offset = newest
                if offset is not None:
                    of_task[each.ssp] = offset
        return found

    def _is_before(self, ssp: SystemStreamPartition, offset: str, other: str) -> bool:
        return (self.container.status.systems.admin(ssp.system).compare(offset, other) or 0) < 0

    def numbers_at(self, position: int) -> array[int]:
        """Per partition, the messages chosen before a position."""
        block = self.block_at(position)
        numbers = array("q", block.numbers)
        for index, count in Counter(block.order[: position - block.start]).items():
            numbers[index] += count
        return numbers

    def time_at(self, position: int) -> int:
        """The time at a position, in milliseconds, as callbacks read it last."""
        block = self.block_at(position)
        at, now, callbacks = block.start, block.now_ms, block.first_callback
        for tick in block.ticks:
            if tick[0] > position:
                break
            at, now, callbacks = tick
        number = block.first_callback
        for event in block.events:
            if event.kind == "commit" or event.position > position:
                continue
            number += 1
            # A reading of the clock with as many callbacks before it was in this one, or behind it.
            if event.now_ms and event.position >= at and number > callbacks:
                now = event.now_ms
        return now

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

    def failed_messages(self) -> tuple[list[Messages], IncomingMessageEnvelope]:
        """The message or the batch at which the container failed, as it was read, and the first one decoded
        for the task."""
        self.read()
        progress = self.container.status.progress
        failed = progress.unfinished
        assert failed is not None
        index = self.inputs.indexes[failed.ssp]
        pieces = self.inputs.partition(index).copies(self._numbers[index], progress.unfinished_count)
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

    def message_ref(self, position: int) -> tuple[SystemStreamPartition, str] | None:
        """The partition and offset of the message at a position; None where it is not known any more."""
        found = self._number_of(position)
        if found is None:
            return None
        index, number = found
        return self.inputs.ssps[index], self.inputs.partition(index).offset(number)

    def message_refs(
        self, since: int = 0, to: int | None = None
    ) -> Iterator[tuple[int, SystemStreamPartition, str]]:
        """The position, partition and offset of each message after ``since`` and up to ``to``, in order, as
        they are at this call."""
        parts: list[tuple[int, array[int], list[int]]] = []
        with self.guard():
            for block in self._blocks_between(since, to):
                numbers, first = list(block.numbers), max(since - block.start, 0)
                for index, count in Counter(block.order[:first]).items():
                    numbers[index] += count
                last = None if to is None else to - block.start
                parts.append((block.start + first, block.order[first:last], numbers))
            ssps = self.inputs.ssps
            read = {index for _, order, _ in parts for index in order}
            partitions = {index: self.inputs.partition(index).snapshot() for index in read}
        return _refs(parts, ssps, partitions)

    def message_at(self, position: int) -> IncomingMessageEnvelope | None:
        """The message at a position, decoded where that is possible; None where it is not known any more."""
        found = self._number_of(position)
        if found is None:
            return None
        index, number = found
        return self._decoded(self.inputs.partition(index).message(number))

    def _decoded(self, raw: IncomingMessageEnvelope) -> IncomingMessageEnvelope:
        buffer = self.container.runtime.multiplexer.partitions[raw.ssp]
        message = decoded(raw, buffer.key_serde, buffer.message_serde)
        return raw if isinstance(message, SerdeError) else message

    def position_of(self, ssp: SystemStreamPartition, offset: str) -> int | None:
        """The position after a message was processed last; None where it is not in the history."""
        self.read()
        index = self.inputs.indexes.get(ssp)
        number = None if index is None else self.inputs.partition(index).number(offset)
        if index is None or number is None:
            return None
        for block in reversed(self.blocks):
            left = number - block.numbers[index]
            if left < 0:
                continue
            for at, each in enumerate(block.order, start=block.start + 1):
                if each == index:
                    if left == 0:
                        return at
                    left -= 1
            return None
        return None

    def writes(self, since: int = 0, to: int | None = None) -> Iterator[StoreWrite]:
        """The writes to stores at positions after ``since`` and up to ``to``, in order, as they are at this
        call."""
        with self.guard():
            parts = [block.writes.between(since, to) for block in self._blocks_between(since, to)]
        return chain.from_iterable(parts)

    def events(self, since: int = 0, to: int | None = None) -> Iterator[TraceEvent]:
        """The windows, ends of inputs and commits after a position and up to another one (None: all), as they
        are at this call."""
        with self.guard():
            parts = [_snapshot(block.events) for block in self._blocks_between(since, to)]
        return (
            event
            for event in chain.from_iterable(parts)
            if since < event.position and (to is None or event.position <= to)
        )

    def outputs(self, since: int = 0, to: int | None = None) -> Iterator[tuple[int, Sent]]:
        """The outputs of messages after ``since`` and up to ``to``, in order, as they are at this call."""
        with self.guard():
            parts = [_snapshot(block.outputs) for block in self._blocks_between(since, to)]
        return (
            (position_of(sent), sent)
            for sent in chain.from_iterable(parts)
            if since < position_of(sent) and (to is None or position_of(sent) <= to)
        )

    def _blocks_between(self, since: int, to: int | None) -> list[Block]:
        self.read()
        return [block for block in self.blocks if block.end > since and (to is None or block.start <= to)]

    def _number_of(self, position: int) -> tuple[int, int] | None:
        """The index of the partition of the message at a position, and its number there."""
        self.read()
        for block in reversed(self.blocks):
            if block.start < position <= block.end:
                before = block.order[: position - block.start]
                index = before[-1]
                return index, block.numbers[index] + before.count(index) - 1
        return None


def _snapshot(items: list[_T]) -> Iterator[_T]:
    """The items of a list that only grows, as many as there are now."""
    return islice(items, len(items))


def _refs(
    parts: Iterable[tuple[int, array[int], list[int]]],
    ssps: Sequence[SystemStreamPartition],
    partitions: Mapping[int, RecordedPartition],
) -> Iterator[tuple[int, SystemStreamPartition, str]]:
    """The position, partition and offset of messages. ``parts``: the position before them, their partitions
    by index, and per partition the number of the first one."""
    for start, order, numbers in parts:
        for position, index in enumerate(order, start=start + 1):
            yield position, ssps[index], partitions[index].offset(numbers[index])
            numbers[index] += 1
