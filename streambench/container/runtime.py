"""The runtime of a container: the parts that ``assembly`` built, and their release."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from streambench.checkpoint.api import CheckpointManager
from streambench.container.commit import Commits
from streambench.container.event_loop import EventLoop
from streambench.container.inputs.multiplexer import Multiplexer
from streambench.container.observe.reporting import Reporting
from streambench.container.observe.status import ContainerStatus
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.outbox import Outbox
from streambench.container.task_stores import TaskStores
from streambench.errors import do_all
from streambench.system.api import SystemConsumer


class Runtime(Struct, frozen=True, kw_only=True):
    """The parts of a container that is ready to read. ``consumers``: those of its inputs by system;
    ``takes_batches``: some task takes batches."""

    event_loop: EventLoop
    multiplexer: Multiplexer
    consumers: Mapping[str, SystemConsumer]
    takes_batches: bool
    outbox: Outbox
    commits: Commits
    checkpoints: CheckpointManager
    task_stores: TaskStores
    collected: Collected
    reporting: Reporting


class Resources:
    """Everything of a container that has to be closed, in the order in which it was made."""

    def __init__(self, status: ContainerStatus) -> None:
        self.writers: list[Callable[[], None]] = []
        self.checkpoints: CheckpointManager | None = None
        self.reporting: Reporting | None = None
        self.is_released = False
        self._status = status

    def release(self, close_tasks: Callable[[], None], *, finish_pending: bool = False) -> None:
        """Stop reading, close the tasks, stop writing; every step even if one before failed, whose error is
        raised at the end. ``finish_pending``: wait until all readers can read what was committed."""
        status = self._status
        steps: list[Callable[[], None]] = [
            lambda: status.consumers.stop(status.config.integer("task.shutdown.ms"))
        ]
        if status.multiplexer is not None:
            steps.append(status.multiplexer.stop)
        steps += [close_tasks, *reversed(self.writers)]
        if self.checkpoints is not None:
            steps += [*([self.checkpoints.finish_pending] if finish_pending else []), self.checkpoints.close]
        if self.reporting is not None:
            steps.append(self.reporting.stop)
        steps.append(status.systems.close)
        try:
            do_all(steps)
        finally:
            self.is_released = True

    def report_final(self) -> None:
        """Report to the metrics reporters how the container ended."""
        if self.reporting is not None:
            self.reporting.report_final()
