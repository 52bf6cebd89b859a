"""The inputs of a container as it reads them: one lane for each partition, with all that is fixed when it starts."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from streambench import config_keys
from streambench.config import Config
from streambench.container.multiplexer import Lane
from streambench.container.offsets import earlier
from streambench.container.own_streams import own_streams
from streambench.container.task_instance import TaskInstance
from streambench.errors import OffsetError
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.plan import Metadata, all_inputs
from streambench.serde.streams import StreamSerdes
from streambench.system.api import SystemConsumer
from streambench.system.systems import Systems


def checked_inputs(config: Config, job: str, systems: Systems) -> list[SystemStream]:
    """The input streams of a job, whose systems are all defined, and which are not to be written to as well. Raises ConfigError,
    also where a key names a system that is not defined; logs a warning where one seems to mean an input and names another stream."""
    inputs = all_inputs(config)
    for stream in inputs:
        systems.factory(stream.system, key="task.inputs")
    systems.check_names()
    _warn_of_strangers(config, inputs, own_streams(config, job, systems))
    return inputs


def _warn_of_strangers(config: Config, inputs: Sequence[SystemStream], named: Container[SystemStream]) -> None:
    """Log a warning where a setting of inputs is for a stream that is none, but whose name is much like that of one: a slip of the pen,
    by which messages may be passed over. No error, since inputs come and go while their settings stay."""
    for key in config:
        names = config_keys.input_named(key)
        if names is None or SystemStream(*names) in named:
            continue
        near = difflib.get_close_matches(names[1], [each.stream for each in inputs if each.system == names[0]], n=1)
        if near:
            what = f"this job reads no stream {'.'.join(names)}, so that this does nothing; did you mean {names[0]}.{near[0]}?"
            config.warn(key, what)


def lanes_of(
    config: Config,
    tasks: Iterable[TaskInstance],
    systems: Systems,
    serdes: StreamSerdes,
    metadata: Metadata,
    ends: Mapping[SystemStreamPartition, str],
) -> dict[SystemStreamPartition, Lane]:
    """The lanes of these tasks, which know where they begin. ``metadata``: what the inputs held when the container started; ``ends``: per
    partition the first offset that is not read any more. Raises ConfigError, OffsetError."""
    lanes: dict[SystemStreamPartition, Lane] = {}
    for task in tasks:
        for subscription in task.subscriptions:
            ssp = subscription.ssp
            if ssp not in lanes:
                lanes[ssp] = Lane(ssp, subscription.start, room(config, ssp.system))
            lane = lanes[ssp]
            lane.start = earlier(systems, ssp, lane.start, subscription.start)
            if not systems.admin(ssp.system).replayable and subscription.start != metadata[ssp.system_stream][ssp.partition].upcoming:
                raise OffsetError(
                    f"{ssp}: {task.name} cannot begin at {subscription.start}: this kind of system keeps nothing that could be read again; "
                    f"land it in a log (systems.{ssp.system}.samza.landing)"
                )
            lane.subscriptions = (*lane.subscriptions, subscription)
    for ssp, lane in lanes.items():
        lane.read_by(serdes)
        lane.bounded = config.boolean(f"systems.{ssp.system}.streams.{ssp.stream}.samza.bounded")
        lane.end = ends.get(ssp) or (_end_of(config, systems, ssp, metadata) if lane.bounded else None)
        for subscription in lane.subscriptions:
            if subscription.start != lane.start:
                subscription.skip_before = subscription.start
        lane.find_single()
    return lanes


def room(config: Config, system: str) -> int:
    """How many messages of one partition of a system may wait in memory."""
    return config.integer(f"systems.{system}.samza.fetch.threshold")


def commit_interval(config: Config, consumers: Iterable[SystemConsumer]) -> int:
    """Milliseconds between commits; 0 or less: only when they are asked for. Where those who sent to these consumers wait for an answer,
    as short as they can wait."""
    configured = config.integer("task.commit.ms")
    if configured <= 0:
        return configured
    return min([configured, *(each.acknowledge_within_ms for each in consumers if each.acknowledge_within_ms is not None)])


def longest_run(config: Config) -> int:
    """How many messages a task that takes batches gets at most at once."""
    return config.integer("task.batch.messages")


def compare_in(inputs: Sequence[SystemStream], systems: Systems) -> Callable[[str, str], int | None] | None:
    """How a chooser compares offsets: by their system; None, which means as numbers, where there are several systems."""
    names = {stream.system for stream in inputs}
    return systems.admin(next(iter(names))).compare if len(names) == 1 else None


def _end_of(config: Config, systems: Systems, ssp: SystemStreamPartition, metadata: Metadata) -> str:
    """Where a partition ends of which all is there."""
    upcoming = metadata[ssp.system_stream][ssp.partition].upcoming
    if upcoming is None or not systems.admin(ssp.system).replayable:
        key = f"systems.{ssp.system}.streams.{ssp.stream}.samza.bounded"
        raise config.error(key, f"{ssp} cannot be bounded: this kind of system cannot tell where its streams end")
    return upcoming
