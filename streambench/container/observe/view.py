"""The read-only side of a container: all that can be read of its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from streambench.config import Config
from streambench.container.observe.capture import take_snapshot
from streambench.container.observe.snapshot import ContainerSnapshot, PartitionSnapshot
from streambench.container.observe.status import ABANDONED, ContainerState, ContainerStatus
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.container.tasks.task_instance import TaskInstance
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope


class ContainerView:
    """A container as it can be looked at."""

    status: ContainerStatus

    def snapshot(self) -> ContainerSnapshot:
        """A snapshot of the container as it is now. On the thread that drives it, or between runs."""
        return take_snapshot(self.status)

    @property
    def config(self) -> Config:
        """The job's config."""
        return self.status.config

    @property
    def factory(self) -> Any:
        """The task class or process function."""
        return self.status.factory

    @property
    def name(self) -> str:
        """The name and id of the job, as ``name-id``."""
        return self.status.name

    @property
    def number(self) -> int:
        """The number of this container in its job."""
        return self.status.number

    @property
    def metrics(self) -> MetricsRegistry:
        """The metrics of the container; tasks have their own."""
        return self.status.metrics

    @property
    def state(self) -> ContainerState:
        """new, running, stopped or failed."""
        return self.status.state

    @property
    def reason(self) -> str:
        """The reason of a failure; else empty."""
        return self.status.reason

    @property
    def abandoned(self) -> bool:
        """True where it was ended as a crash would, on demand; its state is ``failed`` then."""
        return self.state == "failed" and self.reason == ABANDONED

    @property
    def choices(self) -> Sequence[IncomingMessageEnvelope]:
        """The last messages chosen, as many as it remembers."""
        return self.status.choices

    @property
    def last_partitions(self) -> tuple[PartitionSnapshot, ...]:
        """The input partitions as they were when the container closed."""
        return self.status.last_partitions

    @property
    def processed(self) -> int:
        """The number of messages processed so far; a broadcast message counts once."""
        return self.status.progress.processed

    @property
    def nulls(self) -> int:
        """The number of times that there was no message to choose."""
        return self.status.progress.nulls

    @property
    def chosen(self) -> int:
        """The number of messages chosen so far: those that were processed, and the one at which the container
        failed."""
        return self.status.progress.chosen

    @property
    def error_counts(self) -> ErrorCounts:
        """Counts of messages that were dropped or dead-lettered, and of failures ignored, so far."""
        return self.status.count_errors()

    @property
    def callbacks(self) -> set[CodeType]:
        """The code of the tasks' callbacks, where it is written in Python. A thread that has a frame of it is
        inside a callback."""
        return {code for task in self.status.tasks for code in task.codes()}

    @property
    def polls(self) -> Mapping[str, int]:
        """The number of polls of each system so far."""
        return self.status.consumers.polls

    @property
    def tasks(self) -> Sequence[TaskInstance]:
        """The task instances, in natural order of their names."""
        return tuple(self.status.tasks)

    @property
    def held(self) -> IncomingMessageEnvelope | None:
        """The chosen message that an observer holds back; the next step or run begins with it."""
        return self.status.progress.held
