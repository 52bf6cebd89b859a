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
_LARGE_S = 0.1
"""Seconds of a copy of an attribute from which there is no far waypoint: it would take as long once more."""
_AGAIN_S = 0.03
"""The time that the messages behind the last waypoint may take to run again, or a fifth of the time that a
waypoint takes where that is more."""


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
        self._is_large = any(each.slowest[0] > _LARGE_S for each in (replica.block.memory or {}).values())
        self._mark_s = 0.0
        """The time that the last waypoint took."""

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
        """Turn back to the last waypoint up to a position. False where that cannot be; the replica cannot be
        used after that."""
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
        for distance in (_NEAR,) if self._is_large else (_FAR, _NEAR):
            if not self._marks or position - distance > replica.position:
                self._run(max(position - distance, replica.position), position)
                self._mark()
        begin, began = replica.position, time.perf_counter()
        self._run((begin + position) // 2, position)
        seconds, done = time.perf_counter() - began, replica.position - begin
        again_s = max(_AGAIN_S, self._mark_s / 5)
        if done and seconds > again_s / 2:
            back = int(done * again_s / seconds) + 1
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
        if not self._can_mark:
            return
        began = time.perf_counter()
        reached = _roots(replica.tasks), self._outside(), shared_objects(replica.factory)
        contents = self._marks[-1].contents.following(*reached) if self._marks else Contents(*reached)
        fits = not self._marks or self._limit_size()
        self._can_mark = fits and contents.is_known
        if self._can_mark:
            users = [task.context.user for task in replica.tasks]
            self._marks.append(_Mark(replica.waypoint(), contents, users))
            self._end = replica.position
        self._mark_s = time.perf_counter() - began

    def _close_last(self) -> None:
        """Keep of the last waypoint what has changed since."""
        self._marks[-1].contents.keep_changed()
        self._limit_size()

    def _limit_size(self) -> bool:
        """Keep no waypoint where all of them take too much memory; True where they do not."""
        self._end = self.replica.position
        history = self.replica.history
        if history.size + sum(each.contents.size for each in self._marks) > history.limit:
            self._marks.clear()
            self._can_mark = False
        return self._can_mark

    def _outside(self) -> Iterator[Any]:
        """The objects that are no part of a task's memory."""
        for task in self.replica.tasks:
            inside = task.task, task.context.user
            yield from (each for each in handles_of(task) if not any(each is one for one in inside))
            yield from self.replica.block.memory[task.name].uncopied_values()


def _roots(tasks: Sequence[TaskInstance]) -> Iterator[Any]:
    for task in tasks:
        yield from (task.task, task.context.user, task.metrics)
