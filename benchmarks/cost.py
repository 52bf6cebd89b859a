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
    cpu, wall = _cpu_seconds(), time.perf_counter()
    run()
    return Cost(_cpu_seconds() - cpu, time.perf_counter() - wall)


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


def _cpu_seconds() -> float:
    """CPU time of this process and of all below it, those that have ended included."""
    me = psutil.Process()
    total = 0.0
    for each in (me, *me.children(recursive=True)):
        try:
            total += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:  # its parent counts it from now on
            continue
    return total
