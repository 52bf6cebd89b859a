"""A block: a part of a container's history that begins with a copy of what tasks keep in memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streambench.container.container import Container
from streambench.container.trace import Sent, TraceEvent
from streambench.debug.history.attributes import TaskMemory
from streambench.debug.history.batches import Batches
from streambench.debug.history.writes import Writes

if TYPE_CHECKING:
    from streambench.model import SystemStream


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
        self.init = self.is_undone = False
        self.now_ms = container.status.clock.now_ms()
        self.numbers = array("q", numbers)
        self.keyless = dict(keyless)
        self.memory = {task.name: TaskMemory(task, measure=True) for task in container.tasks}
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
