"""What the tests of the container share: a container on streams of its own, with everything in hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.clock import Clock
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.observer import ContainerObserver
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import SystemFactory
from streambench.system.memory import MemoryProducer, MemoryStreams, MemorySystemFactory
from streambench.system.systems import Systems
from streambench.task import MessageCollector, StreamTask, TaskCoordinator
from streambench.testing import Call, ManualClock
from streambench.testing.run import CallObserver

OUT = SystemStream("mem", "out")

Process = Callable[[IncomingMessageEnvelope, MessageCollector, TaskCoordinator], None]
Window = Callable[[MessageCollector, TaskCoordinator], None]


def ignore(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    """A task that does nothing."""


def echo(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    """A task that sends on what it gets."""
    collector.send(OutgoingMessageEnvelope(OUT, envelope.message, key=envelope.key))


def sending(*envelopes: Any) -> Process:
    """A task that sends these at each message."""

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        for each in envelopes:
            collector.send(each)

    return process


def send(collector: MessageCollector, message: Any) -> None:
    collector.send(OutgoingMessageEnvelope(OUT, message))


def windowed(window: Window, process: Process = ignore) -> type[StreamTask]:
    """A task class with a window, of functions."""

    class Windowed(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            process(envelope, collector, coordinator)

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            window(collector, coordinator)

    return Windowed


def passing(clock: ManualClock, ms: int) -> Process:
    """A task that lets so much time pass with every message, and sends it on."""

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        clock.advance(ms)
        send(collector, envelope.message)

    return process


class Choices(ContainerObserver):
    """Calls a function with each chosen message."""

    def __init__(self, note: Callable[[IncomingMessageEnvelope], object]) -> None:
        self._note = note

    def message_chosen(self, envelope: IncomingMessageEnvelope) -> object:
        return self._note(envelope)


class Bench:
    """A container, and what is around it: streams, checkpoints, the clock, and the calls it made.

    ``inputs`` as for ``run_job``; systems are in memory, unless ``factory`` makes them, and read from the
    oldest message on.
    """

    def __init__(
        self,
        task: Any,
        inputs: Mapping[str, Mapping[int, Sequence[Any]]],
        config: Mapping[str, Any] | None = None,
        *,
        factory: SystemFactory | None = None,
        clock: Clock | None = None,
        checkpoints: MemoryCheckpointManager | None = None,
        streams: MemoryStreams | None = None,
        observed: bool = True,
        **options: Any,
    ) -> None:
        self.streams = streams or MemoryStreams()
        self.clock = ManualClock()
        self.checkpoints = checkpoints or MemoryCheckpointManager()
        self.calls: list[Call] = []
        for stream, partitions in inputs.items():
            self.streams.create(SystemStream.parse(stream), 1 + max(partitions))
            for number, messages in partitions.items():
                self.put(f"{stream}.{number}", *messages)
        self.config = Config(
            {"task.inputs": list(inputs), "systems.mem.samza.offset.default": "oldest", **(config or {})}
        )
        self.container = Container(
            self.config,
            task,
            systems=Systems(self.config, factory or MemorySystemFactory(self.streams)),
            checkpoints=self.checkpoints,
            clock=clock or self.clock,
            observer=CallObserver(lambda *call: self.calls.append(Call(*call))) if observed else None,
            **options,
        )

    def put(self, partition: str, *messages: Any) -> None:
        """Append messages, or (key, message) pairs, to a partition."""
        ssp = SystemStreamPartition.parse(partition)
        for entry in messages:
            key, message = entry if isinstance(entry, tuple) else (None, entry)
            MemoryProducer(self.streams).send(
                "test", OutgoingMessageEnvelope(ssp.system_stream, message, key, partition=ssp.partition)
            )

    def started(self) -> Container:
        """The container, started."""
        self.container.start()
        return self.container

    def outputs(self) -> list[Any]:
        """The messages in ``mem.out``, partition by partition."""
        return [
            message
            for partition in self.streams.partitions.get(OUT, [])
            for _, message in partition.entries()
        ]

    def committed(self) -> dict[str, str]:
        """The last offsets committed, by partition."""
        return {
            str(ssp): offset
            for last in self.checkpoints.read_last().values()
            for ssp, offset in last.offsets.items()
        }

    def places(self) -> list[str]:
        """What was processed, as ``system.stream.partition@offset``."""
        return [call.detail or "" for call in self.calls if call.event == "process"]

    def events(self, *kinds: str) -> list[str]:
        """The events, or those of some kinds, in order."""
        return [call.event for call in self.calls if not kinds or call.event in kinds]
