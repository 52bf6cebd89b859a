"""The status of a container: the source of snapshots, metrics and reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from streambench.chooser.explanation import Explanation
from streambench.clock import Clock
from streambench.config import Config
from streambench.container.inputs.consumers import Consumers
from streambench.container.inputs.multiplexer import Multiplexer
from streambench.container.observe.snapshot import PartitionSnapshot
from streambench.container.observer import ContainerObserver, Observation
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.container.progress import LoopProgress
from streambench.container.restore import RestoreProgress
from streambench.container.tasks.task_instance import TaskInstance
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.system.systems import Systems

ContainerState = Literal["new", "running", "stopped", "failed"]
ABANDONED = "abandoned"
"""The reason of a container that was ended as a crash would, on demand."""


class ContainerStatus:
    """A container as observers see it, from before its start until after its end.

    The thread that drives the container writes it, and no observer does. ``multiplexer`` is None until the
    container has begun to read its inputs. ``seen``: the input streams as their systems last described them.
    ``restoring``: how far the restore of state is, None where none is under way. ``initialising``: the task
    whose ``init`` is called at this moment, empty where none is. ``last_partitions``: the
    partitions of a container that is closed, as they were when it closed. ``has_share``: False where the plan
    gives it no partitions."""

    def __init__(
        self,
        config: Config,
        factory: Any,
        name: str,
        number: int,
        *,
        systems: Systems,
        clock: Clock,
        remember_choices: int,
        observer: ContainerObserver | None = None,
    ) -> None:
        self.config = config
        self.factory = factory
        self.name = name
        self.number = number
        self.has_share = True
        self.systems = systems
        self.clock = clock
        self.metrics = MetricsRegistry()
        self.consumers = Consumers(clock)
        self.progress = LoopProgress()
        self.observation = Observation(observer)
        self.tasks: list[TaskInstance] = []
        self.multiplexer: Multiplexer | None = None
        self.count_unflushed: Callable[[], int] = lambda: 0
        """The current outputs that the counter of sends does not have yet."""
        self.count_errors: Callable[[], ErrorCounts] = ErrorCounts
        self.capture: Callable[[BaseException, Path], None] | None = None
        """Writes the capture of a failure; None: the container itself does."""
        self.state: ContainerState = "new"
        self.reason = ""
        self.started_ms = 0
        self.restoring: RestoreProgress | None = None
        self.initialising = ""
        self.seen: dict[SystemStream, Mapping[int, PartitionMetadata]] = {}
        self.last_partitions: tuple[PartitionSnapshot, ...] = ()
        self.choices: deque[IncomingMessageEnvelope] = deque(maxlen=remember_choices)
        self.explanations: dict[tuple[SystemStreamPartition, str], Explanation] = {}

    def explain(self, envelope: IncomingMessageEnvelope) -> None:
        """Keep why this message was chosen just now, for as long as the choice is remembered."""
        assert self.multiplexer is not None
        why = self.multiplexer.explain(envelope, self.multiplexer.partitions[envelope.ssp])
        self.explanations[envelope.ssp, envelope.offset] = why
        while len(self.explanations) > len(self.choices):
            del self.explanations[next(iter(self.explanations))]

    def explain_held(self) -> None:
        """Keep why the message that is held was chosen, unless that is known."""
        held = self.progress.held
        if held is not None and self.choices and (held.ssp, held.offset) not in self.explanations:
            self.explain(held)
