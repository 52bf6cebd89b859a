"""The job model: plain data, made once per start of a job and handed to every container."""

from __future__ import annotations

import re

from msgspec import Struct

from streambench.model import SystemStreamPartition


class TaskModel(Struct, frozen=True):
    """A task: its name, the partitions it reads (sorted), and its partition in every changelog.

    ``number``: that partition. It stays the same for the life of the job, whatever tasks come and go
    (``Generation.places``)."""

    name: str
    partitions: tuple[SystemStreamPartition, ...]
    number: int


class ContainerModel(Struct, frozen=True):
    """A container: its number and its tasks, in natural order of their names."""

    number: int
    tasks: tuple[TaskModel, ...]


class JobModel(Struct, frozen=True):
    """A job: its name, the containers, and how many changelog partitions it needs."""

    name: str
    containers: tuple[ContainerModel, ...]

    @property
    def tasks(self) -> tuple[TaskModel, ...]:
        """All tasks, in natural order of their names."""
        return tuple(
            sorted(
                (task for container in self.containers for task in container.tasks),
                key=lambda task: natural(task.name),
            )
        )

    @property
    def changelog_partitions(self) -> int:
        """Number of partitions of a changelog of this job."""
        return 1 + max(task.number for container in self.containers for task in container.tasks)


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key by which "Partition 2" comes before "Partition 10"."""
    return tuple(
        (0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part
    )


class PlannedContainer(Struct, frozen=True):
    """The part of a planned job that one container runs. ``generation``: the one that was opened for the job;
    None: the container opens its own. ``is_leased``: another process holds the lease of the job."""

    model: JobModel
    number: int = 0
    generation: int | None = None
    is_leased: bool = False
