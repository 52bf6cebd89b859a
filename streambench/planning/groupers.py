"""Groupers: partitions become tasks, and tasks are dealt to containers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from streambench.model import SystemStreamPartition
from streambench.planning.model import natural


class Grouper(ABC):
    """Turns the input partitions into tasks."""

    @abstractmethod
    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        """Per task name, its partitions. Each partition must be in exactly one task; broadcast inputs are
        added afterwards."""


class GroupByPartition(Grouper):
    """The default: the task ``Partition n`` gets partition n of every input (Samza's GroupByPartition)."""

    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        tasks: dict[str, list[SystemStreamPartition]] = {}
        for ssp in sorted(partitions):
            tasks.setdefault(f"Partition {ssp.partition}", []).append(ssp)
        return tasks


class GroupBySystemStreamPartition(Grouper):
    """One task per input partition, named after it, as ``system.stream.partition``."""

    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        return {str(ssp): [ssp] for ssp in sorted(partitions)}


def deal(
    tasks: Collection[str], containers: int, former: Mapping[int, Sequence[str]] | None = None
) -> dict[int, list[str]]:
    """Deal tasks to containers: equally many to each, one more to the first ones where that does not come out
    even.

    At first in the lexicographic order of their names, one after the other (Samza's GroupByContainerCount).
    With ``former``, what each container had before, a task stays where it was where that is possible. What a
    container has too many of, and the tasks of one that is gone, are given to those that have too few. New
    tasks are dealt last.
    """
    if former is None or len(former) < 2 or containers < 2:
        return {
            number: sorted(sorted(tasks)[number::containers], key=natural) for number in range(containers)
        }
    each, more = divmod(len(tasks), containers)
    sizes = {number: each + (number < more) for number in range(containers)}
    dealt: dict[int, list[str]] = {number: [] for number in sizes}
    free: list[str] = []
    for number in sorted(former):
        had = [task for task in former[number] if task in tasks]
        size = sizes.get(number, 0)
        free += reversed(had[size:])
        if number in dealt:
            dealt[number] = had[:size]
    known = {*free, *(task for had in dealt.values() for task in had)}
    waiting = iter([*free, *sorted(set(tasks) - known)])
    for number, names in dealt.items():
        names += islice(waiting, sizes[number] - len(names))
    return {number: sorted(names, key=natural) for number, names in dealt.items()}
