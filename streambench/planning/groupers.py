"""How partitions become tasks, and tasks are dealt to containers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from streambench.model import SystemStreamPartition
from streambench.planning.model import natural


class Grouper(ABC):
    """Turns the input partitions into tasks."""

    @abstractmethod
    def group(self, partitions: Collection[SystemStreamPartition]) -> Mapping[str, Sequence[SystemStreamPartition]]:
        """Per task name, its partitions. Each partition must be in exactly one task; broadcast inputs are added afterwards."""


class GroupByPartition(Grouper):
    """The default: the task ``Partition n`` gets partition n of every input (Samza's GroupByPartition)."""

    def group(self, partitions: Collection[SystemStreamPartition]) -> Mapping[str, Sequence[SystemStreamPartition]]:
        tasks: dict[str, list[SystemStreamPartition]] = {}
        for ssp in sorted(partitions):
            tasks.setdefault(f"Partition {ssp.partition}", []).append(ssp)
        return tasks


class GroupBySystemStreamPartition(Grouper):
    """One task per input partition, named after it, as ``system.stream.partition``."""

    def group(self, partitions: Collection[SystemStreamPartition]) -> Mapping[str, Sequence[SystemStreamPartition]]:
        return {str(ssp): [ssp] for ssp in sorted(partitions)}


def deal(tasks: Collection[str], containers: int) -> dict[int, list[str]]:
    """Deal tasks to containers, in the lexicographic order of their names, one after the other (Samza's GroupByContainerCount)."""
    dealt: dict[int, list[str]] = {number: [] for number in range(containers)}
    for at, name in enumerate(sorted(tasks)):
        dealt[at % containers].append(name)
    return {number: sorted(names, key=natural) for number, names in dealt.items()}
