"""Time that something takes: of the CPU, in all processes of a benchmark, and by the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import psutil
from msgspec import Struct


class Cost(Struct, frozen=True):
    """Seconds of CPU of this process and all below it, and seconds by the wall clock."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        return f"{self.cpu:.1f} s of CPU, {self.wall:.1f} s"


def cost_of(run: Callable[[], object]) -> Cost:
    """The cost of a call."""
    before, wall = _processes(), time.perf_counter()
    run()
    seconds = time.perf_counter() - wall
    return Cost(_cpu_between(before, _processes()), seconds)


def least_costs(
    runs: Mapping[str, Callable[[], object]], rounds: int, between: Callable[[], object] = lambda: None
) -> dict[str, Cost]:
    """The least CPU time and the least wall time of each, where all take turns, after one round that does
    not count."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            between()
            costs[name].append(cost_of(run))
    return {
        name: Cost(min(each.cpu for each in found[1:]), min(each.wall for each in found[1:]))
        for name, found in costs.items()
    }


class _Process(Struct, frozen=True):
    """CPU seconds of a process: its own, and those of its children that have ended."""

    parent: int
    own: float
    ended: float


def _processes() -> dict[int, _Process]:
    """This process and all below it, by number."""
    me = psutil.Process()
    found = {}
    for each in (me, *me.children(recursive=True)):
        try:
            times = each.cpu_times()
            found[each.pid] = _Process(each.ppid(), sum(times[:2]), sum(times[2:4]))
        except psutil.NoSuchProcess:  # its parent counts it from now on
            continue
    return found


def _cpu_between(before: dict[int, _Process], after: dict[int, _Process]) -> float:
    """CPU seconds between two looks. A parent counts children that have ended, unless it ignores their ends,
    as Spark's Python daemon does: they are left out of both looks then."""
    spent = sum(each.own + each.ended for each in after.values())
    for number, each in before.items():
        parent = after.get(each.parent)
        ignored = parent is not None and parent.ended - before[each.parent].ended < each.own
        if number in after or not ignored:
            spent -= each.own + each.ended
    return spent
