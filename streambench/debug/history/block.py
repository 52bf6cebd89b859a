"""A block: a part of a container's history that begins with a copy of what tasks keep in memory."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from streambench.container.tasks.task_instance import TaskInstance
from streambench.container.trace import Sent, TraceEvent
from streambench.debug.history.attributes import TaskMemory
from streambench.debug.history.batches import Batches
from streambench.debug.history.writes import Writes

if TYPE_CHECKING:
    from streambench.model import SystemStream

NOTE_SIZE = 150
"""The bytes that an event or a reading of the clock takes, roughly."""


class Block:
    """A part of the history, from position ``start`` on. ``size``: in bytes, roughly; ``copied``: at first.

    ``order``: the partitions of its messages, by index; ``batches``: which of them a task got at once.
    A block ends where a batch does. ``numbers``: per partition, the messages chosen before it. ``offsets``:
    per task its offsets, and where it begins later than its partition. ``keyless``: per stream, the messages
    without a key sent before it. ``first_output``, ``first_write``: the numbers of its first output and of
    its first write to a store, counted from the start. The ``sent`` and ``written`` of its events are such
    numbers, too. ``ticks``: readings of the clock: the position, the time, and the callbacks without a
    message before it, which are ``first_callback`` before the block. ``init``: it begins with other code,
    whose ``init`` was called; ``is_undone``: with the attributes from before such a swap."""

    __slots__ = (
        "batches", "copied", "events", "factory", "first_callback", "first_output", "first_write", "init",
        "is_undone", "keyless", "memory", "now_ms", "numbers", "offsets", "order", "outputs", "size", "start",
        "ticks", "writes",
    )  # fmt: skip

    def __init__(
        self,
        start: int,
        tasks: Sequence[TaskInstance],
        factory: Any,
        now_ms: int,
        numbers: Sequence[int],
        keyless: Mapping[SystemStream, int],
        firsts: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """``tasks``, ``factory``: as they are at its begin. ``firsts``: the numbers of its first output and
        first write, and the callbacks before it."""
        self.start = start
        self.first_output, self.first_write, self.first_callback = firsts
        self.factory = factory
        self.init = self.is_undone = False
        self.now_ms = now_ms
        self.numbers = array("q", numbers)
        self.keyless = dict(keyless)
        self.memory = {task.name: TaskMemory(task, measure=True) for task in tasks}
        self.offsets = {
            task.name: [(each.offset, each.skip_before) for each in task.subscriptions] for task in tasks
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

    def drop_after(self, position: int) -> BlockTail:
        """Drop what is after a position in it; its messages, batches and readings of the clock."""
        kept = max(0, position - self.start)
        begin = [] if position >= self.start else [(self.start, self.now_ms, self.first_callback)]
        tail = BlockTail(
            self.order[kept:],
            [each for each in self.batches if each[0] > position],
            [*begin, *(each for each in self.ticks if each[0] > position)],
        )
        del self.order[kept:]
        self.batches = Batches(each for each in self.batches if each[0] <= position)
        self.ticks = [each for each in self.ticks if each[0] <= position]
        self.events = [each for each in self.events if each.position <= position]
        self.outputs = [each for each in self.outputs if isinstance(each.at, int) and each.at <= position]
        self.writes.drop_after(position)
        self.measure()
        return tail

    def measure(self) -> None:
        """Measure what it holds, roughly."""
        self.size = self.copied + 8 * len(self.order) + 16 * len(self.batches) + self.writes.size
        self.size += sum(map(output_size, self.outputs)) + NOTE_SIZE * (len(self.events) + len(self.ticks))


def output_size(sent: Sent) -> int:
    """The bytes that an output takes, roughly."""
    return 250 + (len(sent.message) if isinstance(sent.message, bytes) else 300)


def position_of(sent: Sent) -> int:
    """The position of an output that the history has read."""
    assert isinstance(sent.at, int)
    return sent.at


class BlockTail(NamedTuple):
    """The recorded messages of the end of a block, with their batches and readings of the clock, as a block
    has them."""

    order: array[int]
    batches: list[tuple[int, int]]
    ticks: list[tuple[int, int, int]]
