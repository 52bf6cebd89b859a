"""Dealing tasks to containers by load: each container has about as many messages to read as the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streambench.planning.model import natural

_TOLERANCE = 1.1


def deal_by_load(
    loads: Mapping[str, int], containers: int, former: Mapping[int, Sequence[str]] | None = None
) -> dict[int, list[str]]:
    """Deal tasks to containers, of which each gets one at least. ``loads``: per task, its messages.

    A task stays in its ``former`` container as long as none has much more than its share. Then tasks move
    from the fullest container to the emptiest one. The heaviest task bounds what can be reached."""
    dealt: dict[int, list[str]] = {number: [] for number in range(containers)}
    for number, tasks in (former or {}).items():
        if number in dealt:
            dealt[number] = [task for task in tasks if task in loads]
    placed = {task for tasks in dealt.values() for task in tasks}
    sums = {number: sum(loads[task] for task in tasks) for number, tasks in dealt.items()}

    def move(task: str, to: int, source: int | None = None) -> None:
        if source is not None:
            dealt[source].remove(task)
            sums[source] -= loads[task]
        dealt[to].append(task)
        sums[to] += loads[task]

    def emptiest() -> int:
        return min(dealt, key=lambda number: (bool(dealt[number]), sums[number], len(dealt[number]), number))

    # The heaviest first: the light ones then even out what these leave.
    for task in sorted(sorted(set(loads) - placed, key=natural), key=lambda task: -loads[task]):
        move(task, emptiest())
    while empty := [number for number in dealt if not dealt[number]]:
        source = max(
            (number for number in dealt if len(dealt[number]) > 1), key=lambda number: (sums[number], -number)
        )
        move(_best_to_move(dealt[source], loads, sums[source]), empty[0], source)
    enough = _TOLERANCE * max(sum(loads.values()) / containers, max(loads.values(), default=0))
    while True:
        to, source = emptiest(), max(dealt, key=lambda number: (sums[number], -number))
        difference = sums[source] - sums[to]
        movable = [task for task in dealt[source] if 0 < loads[task] < difference]
        if sums[source] <= enough or not movable:
            break
        move(_best_to_move(movable, loads, difference), to, source)
    return {number: sorted(tasks, key=natural) for number, tasks in dealt.items()}


def _best_to_move(tasks: Sequence[str], loads: Mapping[str, int], difference: int) -> str:
    """The task that leaves two containers the most alike, if it moves from the fuller one to the other."""
    return min(tasks, key=lambda task: (abs(difference - 2 * loads[task]), natural(task)))
