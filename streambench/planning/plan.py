"""Making the job model: ask the systems for the partitions of the inputs, group them into tasks, deal these
to containers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from streambench import imports as load
from streambench.checkpoint.api import Generation
from streambench.config import Config
from streambench.errors import ConfigError, described, no_partition
from streambench.model import PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.planning.changelog_partitions import changelog_partitions
from streambench.planning.groupers import GroupByPartition, GroupBySystemStreamPartition, Grouper, deal
from streambench.planning.model import ContainerModel, JobModel, TaskModel, natural

Metadata = Mapping[SystemStream, Mapping[int, PartitionMetadata]]

_GROUPER = "job.systemstreampartition.grouper.factory"
_GROUPERS = {
    "partition": f"{GroupByPartition.__module__}:{GroupByPartition.__qualname__}",
    "ssp": f"{GroupBySystemStreamPartition.__module__}:{GroupBySystemStreamPartition.__qualname__}",
}


def job_name(config: Config, task: object = None) -> str:
    """The name and the id of a job as one, ``name-id``: it owns the checkpoints and changelogs. Raises
    ConfigError as ``name_and_id``."""
    return "-".join(name_and_id(config, task))


def is_named(config: Config) -> bool:
    """True where the name of a job does not come from its task."""
    return "job.name" in config or bool(config.origin)


def name_and_id(config: Config, task: object = None) -> tuple[str, str]:
    """``job.name``, else the name of the configuration file without its ending, else that of the task; and
    ``job.id``.

    Raises ConfigError where one of them cannot be part of the name of a directory, or is empty. A template
    without its values would have the job continue as another, from other checkpoints.
    """
    for key in ("job.name", "job.id"):
        if key in config and not config[key].strip():
            raise config.error(key, "is empty: give it a value, or leave it out to have its default")
    own = getattr(task, "__name__", "")
    given = config.text("job.name")
    name = given or PurePath(config.origin).stem or (own if own.isidentifier() else "job")
    number = config.required("job.id")
    for key, part in (("job.name", name), ("job.id", number)):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9 ._-]*", part):
            taken = "" if given or key != "job.name" else f" (taken from {config.origin}; set job.name)"
            raise config.error(
                key, f"'{part}' cannot be a name{taken}: use letters, digits, dots, dashes and underscores"
            )
    return name, number


def input_streams(config: Config) -> list[SystemStream]:
    """The streams of ``task.inputs``, in the order given. Raises ConfigError where there are none, or one is
    named twice or not at all."""
    key = "task.inputs"
    streams = [_stream(config, key, name) for name in config.names(key)]
    if streams and not all(map(str.strip, config[key].split(","))):
        raise config.error(key, f"'{config[key]}': there is a comma too many, or a name is missing")
    twice = next((stream for stream, times in Counter(streams).items() if times > 1), None)
    if twice is not None:
        raise config.error(key, f"{twice} is named twice")
    if not streams and not config.names("task.broadcast.inputs"):
        raise config.error(
            "task.inputs", "is missing: name the input streams, as system.stream, separated by commas"
        )
    return streams


def broadcast_partitions(config: Config, metadata: Metadata | None = None) -> list[SystemStreamPartition]:
    """The partitions of ``task.broadcast.inputs``, sorted. Raises ConfigError where one is malformed or (with
    ``metadata``) not there."""
    key = "task.broadcast.inputs"
    found = set()
    for entry in config.names(key):
        match = re.fullmatch(r"(?P<stream>[^#]+)#(?:(?P<one>\d+)|\[(?P<from>\d+)-(?P<to>\d+)\])", entry)
        if match is None:
            raise config.error(
                key, f"'{entry}' is not a broadcast input: write system.stream#3 or system.stream#[1-4]"
            )
        stream = _stream(config, key, match["stream"])
        first, last = (int(match["one"]),) * 2 if match["one"] else (int(match["from"]), int(match["to"]))
        if first > last:
            raise config.error(key, f"'{entry}' holds no partition: the first number is the larger one")
        for partition in range(first, last + 1):
            if metadata is not None and partition not in metadata[stream]:
                raise config.error(key, str(no_partition(stream, partition, len(metadata[stream]))))
            found.add(stream.partition(partition))
    return sorted(found)


def all_inputs(config: Config) -> list[SystemStream]:
    """The streams of ``task.inputs`` and ``task.broadcast.inputs``, each once."""
    return list(
        dict.fromkeys([*input_streams(config), *(ssp.system_stream for ssp in broadcast_partitions(config))])
    )


def plan(config: Config, name: str, metadata: Metadata, former: Generation | None = None) -> JobModel:
    """The job model for inputs with these partitions. ``former``: the generation before; tasks keep their
    places of it, and where possible their containers. Raises ConfigError where the configuration and the
    partitions do not go together."""
    broadcast = broadcast_partitions(config, metadata)
    ordinary = {
        stream.partition(partition) for stream in input_streams(config) for partition in metadata[stream]
    }.difference(broadcast)
    groups = _groups(config, ordinary)
    if not groups:
        raise config.error(
            "task.inputs", "the inputs have no partitions of their own; broadcast inputs alone make no task"
        )
    containers = config.integer("job.container.count")
    if not 1 <= containers <= len(groups):
        raise config.error(
            "job.container.count", f"{containers} containers for {len(groups)} tasks: give 1 to {len(groups)}"
        )
    places = changelog_partitions(groups, former.places if former else {})
    models = {
        task: TaskModel(task, tuple(sorted({*groups[task], *broadcast})), places[task]) for task in groups
    }
    return _model(name, models, deal(groups, containers, former.assignment if former else None))


def balanced(model: JobModel, loads: Mapping[str, int], former: Generation | None = None) -> JobModel:
    """The same tasks in as many containers, dealt by the messages that each task has to read."""
    tasks = {task.name: task for task in model.tasks}
    dealt = deal_by_load(loads, len(model.containers), former.assignment if former else None)
    return _model(model.name, tasks, dealt)


def _model(name: str, tasks: Mapping[str, TaskModel], dealt: Mapping[int, Sequence[str]]) -> JobModel:
    containers = [ContainerModel(number, tuple(tasks[each] for each in dealt[number])) for number in dealt]
    return JobModel(name, tuple(containers))


def _stream(config: Config, key: str, name: str) -> SystemStream:
    try:
        return SystemStream.parse(name)
    except ConfigError as error:
        raise config.error(key, str(error)) from None


def _groups(
    config: Config, wanted: Collection[SystemStreamPartition]
) -> Mapping[str, Collection[SystemStreamPartition]]:
    """The tasks that the configured grouper makes: a Grouper class or object, or a function that makes one of
    the configuration.

    Each partition is in one task: a grouper that forgets one would lose its messages, one that doubles it
    would process them twice."""
    made = load.resolve(config, _GROUPER, group="streambench.groupers", builtin=_GROUPERS)
    if isinstance(made, type):
        made = load.instantiate(config, _GROUPER, made)
    elif not isinstance(made, Grouper) and callable(made):
        made = load.instantiate(config, _GROUPER, made, config)
    name = config.text(_GROUPER)
    if not isinstance(made, Grouper):
        raise config.error(_GROUPER, f"{name} is not a Grouper")
    try:
        groups: dict[Any, tuple[SystemStreamPartition, ...]] = {
            task: tuple(ssps) for task, ssps in made.group(wanted).items()
        }
    except Exception as error:
        raise config.error(_GROUPER, f"{name} cannot group the partitions: {described(error)}") from error
    for task, partitions in groups.items():
        if not isinstance(task, str) or not partitions:
            raise config.error(
                _GROUPER,
                f"{name} made a task {task!r} of {len(partitions)} partitions: a task has a name and at "
                "least one",
            )
    counts = Counter(ssp for partitions in groups.values() for ssp in partitions)
    wrong = sorted(ssp for ssp in {*counts, *wanted} if counts[ssp] != (ssp in wanted))
    if wrong:
        raise config.error(
            _GROUPER,
            f"a grouper puts each input partition into one task and nothing else; {wrong[0]} is in "
            f"{counts[wrong[0]]}",
        )
    return groups


_TOLERANCE = 1.1


def deal_by_load(
    loads: Mapping[str, int], containers: int, former: Mapping[int, Sequence[str]] | None = None
) -> dict[int, list[str]]:
    """Deal tasks to containers, of which each gets one at least. ``loads``: per task, its messages.

    A task stays in its ``former`` container as long as none has much more than its share. Then tasks move
    from the fullest container to the emptiest one. The heaviest task bounds what can be reached."""
    dealt: dict[int, list[str]] = {number: [] for number in range(containers)}
    for number, tasks in (former or {}).items():
        if number in dealt:
            dealt[number] = [task for task in tasks if task in loads]
    placed = {task for tasks in dealt.values() for task in tasks}
    sums = {number: sum(loads[task] for task in tasks) for number, tasks in dealt.items()}

    def move(task: str, to: int, source: int | None = None) -> None:
        if source is not None:
            dealt[source].remove(task)
            sums[source] -= loads[task]
        dealt[to].append(task)
        sums[to] += loads[task]

    def emptiest() -> int:
        return min(dealt, key=lambda number: (bool(dealt[number]), sums[number], len(dealt[number]), number))

    # The heaviest first: the light ones then even out what these leave.
    for task in sorted(sorted(set(loads) - placed, key=natural), key=lambda task: -loads[task]):
        move(task, emptiest())
    while empty := [number for number in dealt if not dealt[number]]:
        source = max(
            (number for number in dealt if len(dealt[number]) > 1), key=lambda number: (sums[number], -number)
        )
        move(_best_to_move(dealt[source], loads, sums[source]), empty[0], source)
    enough = _TOLERANCE * max(sum(loads.values()) / containers, max(loads.values(), default=0))
    while True:
        to, source = emptiest(), max(dealt, key=lambda number: (sums[number], -number))
        difference = sums[source] - sums[to]
        movable = [task for task in dealt[source] if 0 < loads[task] < difference]
        if sums[source] <= enough or not movable:
            break
        move(_best_to_move(movable, loads, difference), to, source)
    return {number: sorted(tasks, key=natural) for number, tasks in dealt.items()}


def _best_to_move(tasks: Sequence[str], loads: Mapping[str, int], difference: int) -> str:
    """The task that leaves two containers the most alike, if it moves from the fuller one to the other."""
    return min(tasks, key=lambda task: (abs(difference - 2 * loads[task]), natural(task)))
