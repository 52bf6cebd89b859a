"""The way of a replica to a position: it leaves waypoints, to which it can be turned back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from streambench.container.tasks.task_instance import TaskInstance
from streambench.debug.history.attributes import handles_of
from streambench.debug.history.changes import Contents
from streambench.debug.past.replica import Replica
from streambench.debug.past.script import Waypoint
from streambench.debug.past.shared_values import shared_objects

log = logging.getLogger(__name__)

_NEAR, _FAR = 2_000, 40_000
"""Messages between a position and the waypoints before it."""
_AGAIN_S = 0.03
"""The time that the messages behind the last waypoint may take to run again."""


class _Mark(NamedTuple):
    waypoint: Waypoint
    contents: Contents
    users: Sequence[Any]
    """What each task had put in the place of ``context.user``."""


class Way:
    """The way of one replica that runs what was recorded. ``Replica`` knows all but what its tasks keep in
    memory. Of that, a waypoint keeps the former contents of the objects that have changed after it.

    Where tasks keep objects that cannot be taken back, there are no waypoints."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._marks: list[_Mark] = []
        self._end = replica.position
        """The position up to which the waypoints know what has changed."""
        self._can_mark = self._is_new = True

    def go_to(self, position: int) -> None:
        """Go forward to a position; leave waypoints before it where it is far, and where the replica has just
        begun or been turned back. Raises what tasks raise."""
        replica = self.replica
        if position > self._end:
            self._marks.clear()
        if self._is_new or position - replica.position > _NEAR:
            self._is_new = False
            self._go_and_mark(position)
        replica.go_to(position)
        if self._marks and replica.position > self._end:
            self._close_last()

    def go_back(self, position: int) -> bool:
        """Turn back to the last waypoint up to a position. False where that cannot be; the replica is of no
        use any more then."""
        marks = self._marks
        if not marks or marks[0].waypoint.position > position or self.replica.position > self._end:
            return False
        try:
            while True:
                self._restore(marks[-1])
                if marks[-1].waypoint.position <= position:
                    break
                self._end = marks.pop().waypoint.position
        except Exception:
            log.debug("what has changed cannot be taken back", exc_info=True)
            return False
        self.replica.go_back(marks[-1].waypoint)
        self._is_new = True
        return True

    def _restore(self, mark: _Mark) -> None:
        mark.contents.restore()
        for task, user in zip(self.replica.tasks, mark.users, strict=True):
            task.context.user = user

    def _go_and_mark(self, position: int) -> None:
        replica = self.replica
        for distance in (_FAR, _NEAR):
            if not self._marks or position - distance > replica.position:
                self._run(max(position - distance, replica.position), position)
                self._mark()
        begin, began = replica.position, time.perf_counter()
        self._run((begin + position) // 2, position)
        seconds, done = time.perf_counter() - began, replica.position - begin
        if done and seconds > _AGAIN_S / 2:
            back = int(done * _AGAIN_S / seconds) + 1
            self._run(max(position - back, replica.position), position)
            self._mark()

    def _run(self, position: int, target: int) -> None:
        """Go to a position on the way to a target, or to the begin of the batch that it is in."""
        to = self.replica.history.last_edge(position)
        if to > self.replica.position:
            self.replica.go_to(to, target)

    def _mark(self) -> None:
        """Leave a waypoint here."""
        replica = self.replica
        if self._marks and self._marks[-1].waypoint.position == replica.position:
            return
        if self._marks:
            self._close_last()
        if not self._can_mark:
            return
        contents = Contents(_roots(replica.tasks), self._outside(), shared_objects(replica.factory))
        self._can_mark = contents.is_known
        if contents.is_known:
            users = [task.context.user for task in replica.tasks]
            self._marks.append(_Mark(replica.waypoint(), contents, users))
            self._end = replica.position

    def _close_last(self) -> None:
        """Keep of the last waypoint what has changed since; none is kept where that takes too much memory."""
        self._marks[-1].contents.keep_changed()
        self._end = self.replica.position
        history = self.replica.history
        if history.size + sum(each.contents.size for each in self._marks) > history.limit:
            self._marks.clear()
            self._can_mark = False

    def _outside(self) -> Iterator[Any]:
        """The objects that are no part of a task's memory."""
        for task in self.replica.tasks:
            inside = task.task, task.context.user
            yield from (each for each in handles_of(task) if not any(each is one for one in inside))
            memory = self.replica.block.memory[task.name]
            for name in memory.shared:
                yield memory.attributes.get(name, memory.user.get(name.removeprefix("context.user")))


def _roots(tasks: Sequence[TaskInstance]) -> Iterator[Any]:
    for task in tasks:
        yield from (task.task, task.context.user, task.metrics)
