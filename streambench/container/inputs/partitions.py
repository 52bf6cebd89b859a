"""The inputs of a container: one buffer for each partition, and its settings."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from streambench import config_keys
from streambench.chooser.api import MessageChooser
from streambench.chooser.wiring import wire_chooser
from streambench.clock import Clock
from streambench.config import Config
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.inputs.starting_offsets import earlier
from streambench.container.tasks.task_instance import TaskInstance
from streambench.errors import OffsetError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.planning.plan import Metadata, all_inputs
from streambench.planning.reserved_streams import reserved_streams
from streambench.serde.streams import StreamSerdes
from streambench.suggestions import suggest
from streambench.system.api import SystemConsumer
from streambench.system.systems import Systems


def checked_inputs(config: Config, job: str, systems: Systems) -> list[SystemStream]:
    """The input streams of a job, whose systems are all defined, and which are not to be written to as well.
    Raises ConfigError, also where a key names a system that is not defined. Logs a warning where one seems to
    mean an input and names another stream."""
    inputs = all_inputs(config)
    for stream in inputs:
        systems.factory(stream.system, key="task.inputs")
    systems.check_names()
    _warn_of_strangers(config, inputs, reserved_streams(config, job, systems))
    return inputs


def _warn_of_strangers(
    config: Config, inputs: Sequence[SystemStream], named: Container[SystemStream]
) -> None:
    """Log a warning where a setting is for a stream that is no input, but is named much like one. This is
    likely a typing error, by which messages may be skipped. No error, since inputs come and go while their
    settings stay."""
    for key in config:
        names = config_keys.input_named(key)
        if names is None or SystemStream(*names) in named:
            continue
        read = [each.stream for each in inputs if each.system == names[0]]
        hint = suggest(names[1], read, prefix=f"{names[0]}.")
        if hint:
            what = f"this job reads no stream {'.'.join(names)}, so that this does nothing; {hint}"
            config.warn(key, what)


def partition_buffers(
    config: Config,
    tasks: Iterable[TaskInstance],
    systems: Systems,
    serdes: StreamSerdes,
    metadata: Metadata,
    ends: Mapping[SystemStreamPartition, str],
) -> dict[SystemStreamPartition, PartitionBuffer]:
    """The partitions of these tasks, which know where they begin. ``metadata``: what the inputs held when the
    container started; ``ends``: per partition the first offset that is not read any more. Raises ConfigError,
    OffsetError."""
    partitions: dict[SystemStreamPartition, PartitionBuffer] = {}
    for task in tasks:
        for subscription in task.subscriptions:
            ssp = subscription.ssp
            if ssp not in partitions:
                partitions[ssp] = PartitionBuffer(ssp, subscription.start, capacity(config, ssp.system))
            partition = partitions[ssp]
            partition.start = earlier(config, systems, ssp, partition.start, subscription.start)
            if (
                not systems.admin(ssp.system).replayable
                and subscription.start != metadata[ssp.system_stream][ssp.partition].upcoming
            ):
                raise OffsetError(
                    f"{ssp}: {task.name} cannot begin at {subscription.start}: this kind of system keeps "
                    "nothing that could be read again; "
                    f"land it in a log (systems.{ssp.system}.samza.landing)"
                )
            partition.subscriptions = (*partition.subscriptions, subscription)
    for ssp, partition in partitions.items():
        partition.read_by(serdes)
        partition.is_bounded = config.boolean(f"systems.{ssp.system}.streams.{ssp.stream}.samza.bounded")
        partition.end = ends.get(ssp) or (
            _end_of(config, systems, ssp, metadata) if partition.is_bounded else None
        )
        for subscription in partition.subscriptions:
            if subscription.start != partition.start:
                subscription.skip_before = subscription.start
        partition.find_sole_subscription()
    return partitions


def capacity(config: Config, system: str) -> int:
    """The most messages of one partition of a system that wait in memory."""
    return config.integer(f"systems.{system}.samza.fetch.threshold")


def commit_interval(config: Config, consumers: Iterable[SystemConsumer]) -> int:
    """Milliseconds between commits; 0 or less: only when they are asked for. Where those who sent to these
    consumers wait for an answer, as short as they can wait."""
    configured = config.integer("task.commit.ms")
    if configured <= 0:
        return configured
    return min(
        [
            configured,
            *(each.acknowledge_within_ms for each in consumers if each.acknowledge_within_ms is not None),
        ]
    )


def max_batch(config: Config) -> int:
    """The largest batch of a task that takes batches."""
    return config.integer("task.batch.messages")


def chooser_of(
    config: Config,
    inputs: Sequence[SystemStream],
    metadata: Metadata,
    systems: Systems,
    metrics: MetricsRegistry,
    clock: Clock,
) -> MessageChooser:
    """The chooser of a container. ``metadata``: what the inputs held when it started. Each system compares
    its own offsets. Raises ConfigError."""
    compare = {
        system: systems.admin(system).compare for system in sorted({stream.system for stream in inputs})
    }
    return wire_chooser(config, inputs, _bounds_at_start(metadata), metrics, compare, clock)


def _bounds_at_start(metadata: Metadata) -> dict[SystemStream, dict[int, PartitionMetadata]]:
    """The bounds that the bootstrap gate uses. A partition that holds something, but no newest message that
    is known, is read to its head."""
    return {
        stream: {
            number: PartitionMetadata(here.oldest, None, None)
            if here.oldest is not None and here.newest is None
            else here
            for number, here in partitions.items()
        }
        for stream, partitions in metadata.items()
    }


def _end_of(config: Config, systems: Systems, ssp: SystemStreamPartition, metadata: Metadata) -> str:
    """The end of a partition to which nothing will be added."""
    upcoming = metadata[ssp.system_stream][ssp.partition].upcoming
    if upcoming is None or not systems.admin(ssp.system).replayable:
        key = f"systems.{ssp.system}.streams.{ssp.stream}.samza.bounded"
        raise config.error(
            key, f"{ssp} cannot be bounded: this kind of system does not know where its streams end"
        )
    return upcoming
