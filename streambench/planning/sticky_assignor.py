"""Shares: which member of a group has which tasks, when members come and go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from streambench.planning.model import natural


def sticky_assignment(
    tasks: Collection[str], members: Sequence[str], former: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Deal tasks to members, each to exactly one.

    All get equally many (or one more), and as few as possible move.

    ``former``: what each of them, and perhaps others, had before. Of members that had equally many the
    earlier one in ``members`` gets the odd task. Where there are more members than tasks some get none."""
    taken: set[str] = set()
    dealt: dict[str, list[str]] = {}
    for member in members:
        dealt[member] = [
            task
            for task in sorted(former.get(member, ()), key=natural)
            if task in tasks and task not in taken
        ]
        taken.update(dealt[member])
    each, more = divmod(len(tasks), len(members))
    # A member that has the most keeps one more, so that the fewest tasks move.
    order = sorted(members, key=lambda member: -len(dealt[member]))
    sizes = {member: each + (at < more) for at, member in enumerate(order)}
    free = sorted({*tasks} - taken, key=natural)
    for member, size in sizes.items():
        free += dealt[member][size:]
        del dealt[member][size:]
    for member in members:
        missing = sizes[member] - len(dealt[member])
        dealt[member] = sorted([*dealt[member], *free[:missing]], key=natural)
        del free[:missing]
    return dealt
