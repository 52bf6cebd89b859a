"""A container as it starts again after a crash: a replica that begins at the last commit of its tasks."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from streambench.container.trace import TraceEvent
from streambench.debug.history.batches import Batches
from streambench.debug.history.block import Block
from streambench.debug.history.epochs import Epoch, TaskGroup
from streambench.debug.history.history import History
from streambench.debug.history.writes import Values
from streambench.debug.past.replica import Replica
from streambench.debug.past.script import Script, clock_ticks
from streambench.model import SystemStreamPartition

_EVENTS = ("window", "end_of_stream")


class Restart(Replica):
    """Some tasks of a container after a crash: new objects, with the stores and offsets of a commit.

    Messages come again in the order in which they came, and windows where they were. ``positions``: the
    positions of the messages that it may get."""

    def __init__(
        self, history: History, group: TaskGroup, epoch: Epoch, values: Values, factory: Any
    ) -> None:
        """``values``: of the stores at the commit. Raises ConfigError where a task cannot be made."""
        block = history.block_at(epoch.begin.position)
        order = list(_order(history, block, group, epoch))
        events = [
            event
            for event in epoch.events
            if event.kind in _EVENTS and not set(event.tasks).isdisjoint(group.tasks)
        ]
        self.positions = array("q", (position for position, _ in order))
        self._following: deque[tuple[int, TraceEvent | None]] = deque(_merged(self.positions, events))
        super().__init__(history, block, factory, _script(history, block, group, epoch, order, values))

    def begin(self) -> None:
        """Call ``init`` of the tasks. Raises TaskError."""
        self._check_outputs()
        self._context.take()
        for task in self.tasks:
            task.context.start_at = _ignore_start
            task.init_again()
            task.context.start_at = None

    def go_to(self, position: int, target: int | None = None) -> int:
        """Process the messages up to a position, and call the windows up to there; how many messages. Raises
        what tasks raise."""
        self._context.take()
        done = 0
        while self._following and self._following[0][0] <= position:
            at, event = self._following.popleft()
            if event is not None:
                self._now_ms = event.now_ms or self._now_ms
                self._loop.call_between(partial(self._repeat, event))
            else:
                count = self._batches.count(at)
                done += self._loop.run(limit=count, stop_at_head=True)
                for _ in range(count - 1):
                    self._following.popleft()
        return done


def _ignore_start(ssp: SystemStreamPartition, offset: str) -> None:
    """Ignore a starting offset that ``init`` sets: the restart begins behind its commit."""


def _order(
    history: History, block: Block, group: TaskGroup, epoch: Epoch
) -> Iterator[tuple[int, SystemStreamPartition]]:
    """The messages of a group after the begin of an epoch, and up to its end."""
    last = history.latest if epoch.end is None else epoch.end.position
    ssps = history.inputs.ssps
    for each in history.since(block):
        if each.start >= last:
            return
        known = max(0, epoch.begin.position - each.start)
        for position, index in enumerate(each.order[known : last - each.start], each.start + known + 1):
            if ssps[index] in group.ssps:
                yield position, ssps[index]


def _merged(positions: array[int], events: list[TraceEvent]) -> Iterator[tuple[int, TraceEvent | None]]:
    """Messages and events in their order: an event follows the message at its position."""
    left = deque(events)
    for position in positions:
        while left and left[0].position < position:
            yield left[0].position, left.popleft()
        yield position, None
    for event in left:
        yield event.position, event


def _script(
    history: History,
    block: Block,
    group: TaskGroup,
    epoch: Epoch,
    order: list[tuple[int, SystemStreamPartition]],
    values: Values,
) -> Script:
    before = block.order[: epoch.begin.position - block.start]
    numbers = array("q", block.numbers)
    for index, count in Counter(before).items():
        numbers[index] += count
    read = set(before)
    # A restart of the group, which alone goes back to this commit.
    offsets = {
        task.name: [
            _offset(history, each.ssp, numbers, read, was)
            for each, was in zip(task.subscriptions, block.offsets[task.name], strict=True)
        ]
        for task in history.container.tasks
        if task.name in group.tasks
    }
    return Script(
        position=epoch.begin.position,
        now_ms=block.now_ms,
        order=iter(order),
        batches=Batches(chain.from_iterable(each.batches for each in history.since(block))),
        events=(),
        ticks=clock_ticks(history.since(block)),
        first_callback=history.trace.callbacks,
        numbers=numbers,
        offsets=offsets,
        keyless={},
        values=values,
        keeps_all_stores=False,
    )


def _offset(
    history: History,
    ssp: SystemStreamPartition,
    numbers: array[int],
    read: set[int],
    was: tuple[str | None, str | None],
) -> tuple[str | None, str | None]:
    """The offset of a task in a partition after so many messages of it, and where it begins later."""
    index = history.inputs.indexes[ssp]
    offset, skip_before = was
    return (
        history.inputs.partition(index).offset(numbers[index] - 1) if index in read else offset
    ), skip_before
