"""The verdict of crashes after each step of a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from streambench.counts import counted


class CrashStep(Struct, frozen=True, kw_only=True):
    """The verdict of a crash after the message at ``position``. ``inside_commit``: that of a crash before the
    commit there is done.

    The lists compare the outputs after the messages since the last commit were processed again. ``twice``:
    per stream the outputs that it holds twice; ``new``: those not sent before; ``lost``: those that are
    missing. ``keys``: the number of keys of stores that differ. ``error``: why the job cannot go on."""

    position: int
    inside_commit: bool = False
    twice: Mapping[str, int] = {}
    new: Mapping[str, int] = {}
    lost: Mapping[str, int] = {}
    keys: int = 0
    error: str | None = None

    @property
    def safe(self) -> bool:
        """True where streams and stores are in the end as without the crash."""
        return not (self.twice or self.new or self.lost or self.keys or self.error)

    @property
    def extent(self) -> int:
        """The number of outputs and keys that are not as without the crash."""
        return sum(map(sum, (self.twice.values(), self.new.values(), self.lost.values()))) + self.keys

    @classmethod
    def merged(cls, steps: Sequence[CrashStep]) -> CrashStep:
        """The verdict of the crashes of all tasks at one position: of those inside the commit and those after
        it, the worse ones."""
        by_point = [[each for each in steps if each.inside_commit is inside] for inside in (False, True)]
        return max(
            (cls._sum(each) for each in by_point if each),
            key=lambda step: (step.error is not None, step.extent),
        )

    @classmethod
    def _sum(cls, steps: Sequence[CrashStep]) -> CrashStep:
        # Add up each of the three counters over all steps.
        twice, new, lost = (
            sum((Counter(each) for each in field), Counter())
            for field in zip(*((each.twice, each.new, each.lost) for each in steps), strict=True)
        )
        return cls(
            position=steps[0].position,
            inside_commit=steps[0].inside_commit,
            twice=twice,
            new=new,
            lost=lost,
            keys=sum(each.keys for each in steps),
            error=next((each.error for each in steps if each.error is not None), None),
        )

    def __str__(self) -> str:
        """In words: ``After 412 log.late gets a message twice``."""
        parts = [f"{stream} gets {_messages(count)} twice" for stream, count in self.twice.items()]
        parts += [f"{stream} gets {_messages(count)} more" for stream, count in self.new.items()]
        parts += [f"{stream} misses {_messages(count)}" for stream, count in self.lost.items()]
        if self.keys:
            parts.append(f"{counted(self.keys, 'key')} of stores {'differs' if self.keys == 1 else 'differ'}")
        if self.error is not None:
            parts.append(f"the job fails: {self.error}")
        return f"After {self.position:,} {', '.join(parts) or 'nothing is lost or twice'}"


class Covered:
    """The positions behind ``first``, up to ``latest``, at which a crash has been simulated for all groups
    of tasks. ``done``: the number of simulations."""

    def __init__(self, first: int, latest: int, groups: int) -> None:
        self.done = 0
        self.total = latest - first
        self._first = first
        self._latest = latest
        # Each group goes back epoch by epoch, and forward within the one that is under way.
        self._down_to = [latest] * groups
        self._under_way = (0, latest, latest)

    def begin(self, group: int, position: int) -> None:
        """Begin an epoch of a group, at its commit."""
        self._under_way = (group, position, position)

    def add(self, group: int, position: int) -> None:
        """Add a simulation in the epoch that is under way."""
        self.done += 1
        self._under_way = (group, self._under_way[1], position)

    def end(self, group: int) -> None:
        """End the epoch that is under way."""
        self._down_to[group] = self._under_way[1]

    def decided(self, unsafe: Collection[int]) -> int:
        """The number of positions with a verdict: those that all groups have looked at, and those that are
        not safe for one."""
        group, begin, reached = self._under_way
        others = max((at for each, at in enumerate(self._down_to) if each != group), default=self._first)
        whole = range(max(self._first, *self._down_to) + 1, self._latest + 1)
        part = range(max(self._first, others, begin) + 1, min(reached, self._down_to[group]) + 1)
        alone = (each for each in unsafe if each not in whole and each not in part)
        return len(whole) + len(part) + sum(1 for _ in alone)


class Report(Struct, frozen=True):
    """The verdicts of the crashes after each position behind ``first``, and up to ``last``. ``unsafe``: those
    that are not safe. ``left``: the number of positions that an interrupt has left without a verdict."""

    first: int
    last: int
    guarantee: str
    unsafe: tuple[CrashStep, ...] = ()
    left: int = 0

    @property
    def steps(self) -> int:
        """The number of steps after which a crash was simulated."""
        return self.last - self.first - self.left

    @property
    def safe(self) -> int:
        """The number of steps after which a crash changes nothing in the end."""
        return self.steps - len(self.unsafe)

    def __str__(self) -> str:
        """The verdict: ``1,000 steps: 999 safe. After 412 log.late gets a message twice (at-least-once)``."""
        steps = counted(self.steps, "step")
        if self.left:
            steps = f"{self.steps:,} of {counted(self.steps + self.left, 'step')} looked at"
        if not self.steps:
            return f"{steps if self.left else 'no steps to try'} ({self.guarantee})"
        if not self.unsafe:
            return f"{steps}: all safe ({self.guarantee})"
        worst = max(self.unsafe, key=lambda step: step.extent)
        also = "" if worst.extent == self.unsafe[0].extent else f". Most of all: {_decapitalized(str(worst))}"
        return f"{steps}: {self.safe:,} safe. {self.unsafe[0]} ({self.guarantee}){also}"


def _decapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


def _messages(count: int) -> str:
    return "a message" if count == 1 else f"{count:,} messages"
