"""``run_job``: a whole job as one function call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from streambench import imports as load
from streambench.batch import MessageBatch
from streambench.checkpoint.api import Checkpoint, Generation
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.clock import Clock
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.observe.metrics import flat_metrics, readings_by_task
from streambench.container.observer import ContainerObserver, Given, SentOutput
from streambench.container.outputs.direct_writer import writing
from streambench.container.tasks.task_instance import check_task
from streambench.errors import ConfigError, SerdeError, StreambenchError, TaskError, shortened
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.planning.plan import all_inputs, job_name
from streambench.planning.store_definitions import store_definitions
from streambench.serde.api import Serde
from streambench.serde.streams import StreamSerdes, readable
from streambench.system import beside
from streambench.system.copying import detached
from streambench.system.memory import MemoryStreams, MemorySystemFactory
from streambench.system.systems import Systems
from streambench.testing.clock import ManualClock
from streambench.user_code import frames_left, is_ours

Inputs = Mapping[str, Mapping[int, Sequence[Any]]]
Row = tuple[str, str, Any, Any]
"""A message that was processed: partition, offset, key and message."""


class Call(NamedTuple):
    """An event of a run: a callback of a task or listener, a message sent, a commit."""

    event: str
    task: str
    detail: str | None


@dataclass
class JobRun:
    """Result of a job.

    ``processed``: (partition, offset, key, message) in the order processed, across tasks. ``outputs``: per
    stream that is no input and partition, (key, message) in order. Those of a changelog are as its store has
    them, and bytes that cannot be decoded as they are. ``checkpoints``: per task and partition, the last
    offset committed. ``calls``: the events in order.
    """

    processed: list[Row] = field(default_factory=list)
    outputs: dict[str, dict[int, list[tuple[Any, Any]]]] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    _streams: MemoryStreams = field(default_factory=MemoryStreams, repr=False)
    _inputs: tuple[str, ...] = field(default=(), repr=False)
    _last: Mapping[str, Checkpoint] = field(default_factory=dict, repr=False)
    _generation: Generation | None = field(default=None, repr=False)


def run_job(
    task: Any,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    inputs: Inputs | None = None,
    *,
    clock: Clock | None = None,
    max_messages: int | None = None,
    checkpoints: Mapping[str, Mapping[str, str]] | None = None,
    previous: JobRun | None = None,
) -> JobRun:
    """Run a job in this process, in one container, until it has caught up with its inputs or has processed
    ``max_messages``.

    ``task``: a task class, or a function process(envelope, collector, coordinator). ``config``: a Config, a
    mapping, properties text, or the path of a properties file. ``inputs``: per ``system.stream`` and
    partition a list of messages, or of (key, message) pairs; they are there before the start. Systems that
    ``config`` does not define are in memory, for this run alone, and read from the oldest message on. Without
    serdes they hand on copies of objects, so that nothing that one side changes is seen by the other. Without
    ``clock`` time stands still. ``previous``: go on from the streams and checkpoints of that run.
    ``checkpoints``: start from these. Raises what the container raises, with the JobRun so far as ``job_run``
    of the exception.
    """
    return _Run(task, config, inputs or {}, clock or ManualClock(), checkpoints, previous).run(max_messages)


class CallObserver(ContainerObserver):
    """Calls ``note(event, task, detail)`` for each event that ``streambench.testing.Call`` describes, and
    with the event ``ignored`` for each message at which an exception was ignored."""

    def __init__(self, note: Callable[[str, str, str | None], object]) -> None:
        self._note = note

    def hook_called(self, task: str, hook: str, envelope: IncomingMessageEnvelope | None) -> None:
        self._note(hook, task, None if envelope is None else f"{envelope.ssp}@{envelope.offset}")

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        if given is None:
            self._note(callback, task, None)
        for place in _places(given):
            self._note("process", task, place)

    def failure_ignored(self, task: str, callback: str, given: Given, error: Exception) -> None:
        for place in _places(given):
            self._note("ignored", task, place)

    def output_sent(self, output: SentOutput) -> None:
        self._note("send", output.task, str(output.envelope.system_stream))

    def commit_made(self, tasks: Sequence[str], checkpoints: Mapping[str, Checkpoint]) -> None:
        for task in tasks:
            self._note("commit", task, None)


def _places(given: Given) -> list[str]:
    """The messages of a callback, as ``ssp@offset``."""
    if isinstance(given, MessageBatch):
        return [f"{given.ssp}@{given.offset(at)}" for at in range(len(given))]
    return [] if given is None else [f"{given.ssp}@{given.offset}"]


def _hide_ours(error: TaskError) -> None:
    """Leave the user's own frames alone in a traceback, where there are some: a test shows all of it."""
    error.__traceback__ = None
    cause = error.__cause__
    if cause is not None:
        cause.__traceback__ = frames_left(cause.__traceback__, is_ours) or cause.__traceback__


class _RunObserver(CallObserver):
    """Notes the calls of a run, and which messages were processed: those whose callback has returned, or
    whose failure was ignored."""

    def __init__(self, result: JobRun) -> None:
        super().__init__(lambda *call: result.calls.append(Call(*call)))
        self._result = result
        self._rows: list[Row] = []
        self._is_pending = False
        self._last = 0

    def hook_called(self, task: str, hook: str, envelope: IncomingMessageEnvelope | None) -> None:
        super().hook_called(task, hook, envelope)
        if hook == "before_process":
            self._begin(envelope)

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        super().callback_begun(task, callback, given)
        self._begin(given)

    def callback_ended(self, task: str, callback: str, given: Given) -> None:
        self._end(given)

    def failure_ignored(self, task: str, callback: str, given: Given, error: Exception) -> None:
        self._end(given)

    def take_back(self, error: BaseException) -> None:
        """A message (or batch) at which a listener failed after the task was done with it has not been
        processed either."""
        events = [call.event for call in self._result.calls if call.event.endswith("process")]
        if isinstance(error, TaskError) and events[-1:] == ["after_process"] and error.ssp is not None:
            del self._result.processed[self._last :]

    def _begin(self, given: Given) -> None:
        if given is not None:
            self._is_pending = True
            # As it came: the task may change it.
            self._rows = [] if isinstance(given, MessageBatch) else [_row(given)]

    def _end(self, given: Given) -> None:
        if given is not None and self._is_pending:
            self._is_pending = False
            self._last = len(self._result.processed)
            rows = map(_row, given.peek()) if isinstance(given, MessageBatch) else self._rows
            self._result.processed.extend(rows)


class _Run:
    def __init__(
        self, task: Any, config: Config | Mapping[str, Any] | str | Path | None, inputs: Inputs, clock: Clock,
        checkpoints: Mapping[str, Mapping[str, str]] | None, previous: JobRun | None,
    ) -> None:  # fmt: skip
        _check_inputs(inputs)
        self.clock = clock
        self.result = JobRun(_streams=_copied(previous._streams) if previous else MemoryStreams())
        names = [*(previous._inputs if previous else ()), *inputs]
        given = _given(config)
        self.config = _completed(given, list(dict.fromkeys(names)))
        for key, value in self.config.items():
            self.config.refuse_java(key, value)  # the rest is checked by the container
        memory = MemorySystemFactory(self.result._streams)
        self.systems = Systems(self.config, memory)
        self.systems.add(beside.NAME, memory)
        self.serdes = StreamSerdes(self.config)
        self.inputs = [str(stream) for stream in all_inputs(self.config)]
        self.result._inputs = tuple(dict.fromkeys([*names, *self.inputs]))
        self.checkpoints = MemoryCheckpointManager(
            _checkpoints(checkpoints) if checkpoints is not None else previous._last if previous else {},
            last=previous._generation if previous else None,
        )
        self.factory = task
        if task is None:
            self.factory = load.by_path(self.config, "task.class", self.config.required("task.class"))
        check_task(self.factory)
        self._put(inputs)

    def run(self, max_messages: int | None) -> JobRun:
        container, observer = None, _RunObserver(self.result)
        try:
            container = Container(
                self.config,
                self.factory,
                systems=self.systems,
                checkpoints=self.checkpoints,
                clock=self.clock,
                observer=observer,
            )
            container.start()
            if max_messages is None:
                container.run("caught-up")
            else:
                container.step(max_messages, batches=True)
            if not container.shut_down:
                container.end_run()
            container.stop()
        except BaseException as error:
            observer.take_back(error)
            error.job_run = self._finish(container)  # type: ignore[attr-defined]
            if isinstance(error, TaskError):
                _hide_ours(error)
            raise
        return self._finish(container)

    def _put(self, inputs: Inputs) -> None:
        """Write the inputs to their streams, through the same doors as any other message."""
        for name, partitions in inputs.items():
            stream = SystemStream.parse(name)
            number = 1 + max(partitions, default=0)
            self._create(stream, number)
            with writing(self.systems, stream, number, "inputs") as writer:
                writer.send(self._envelopes(stream, partitions))

    def _envelopes(
        self, stream: SystemStream, partitions: Mapping[int, Sequence[Any]]
    ) -> Iterator[OutgoingMessageEnvelope]:
        """The messages of an input. Bytes go as they are, whatever the serdes."""
        key_serde, message_serde = self.serdes.for_stream(stream)
        for partition, messages in sorted(partitions.items()):
            for entry in messages:
                key, message = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
                yield OutgoingMessageEnvelope(
                    stream, _encoded(message_serde, message), _encoded(key_serde, key), None, partition
                )

    def _create(self, stream: SystemStream, partitions: int) -> None:
        admin = self.systems.admin(stream.system)
        if stream in self.result._streams.partitions:
            admin.grow(stream, partitions)
        else:
            admin.create(stream, partitions)

    def _finish(self, container: Container | None) -> JobRun:
        result = self.result
        result._last, result._generation = self.checkpoints.read_last(), self.checkpoints.last_generation()
        # A task that has not processed anything has no offsets.
        result.checkpoints = {
            task: {str(ssp): offset for ssp, offset in last.offsets.items()}
            for task, last in result._last.items()
            if last.offsets
        }
        changelogs = self._changelog_serdes()
        for stream in sorted(result._streams.partitions):
            if str(stream) not in self.inputs and stream.system != beside.NAME:
                result.outputs[str(stream)] = self._outputs(
                    stream, changelogs.get(stream) or self.serdes.for_stream(stream)
                )
        if container is not None:
            result.metrics = flat_metrics(container.processed, readings_by_task(container.status))
        return result

    def _changelog_serdes(self) -> dict[SystemStream, tuple[Serde | None, Serde | None]]:
        try:
            definitions = store_definitions(self.config, job_name(self.config, self.factory), self.systems)
        except StreambenchError:
            return {}  # the container has said so
        return {
            each.changelog: (each.key_serde, each.value_serde)
            for each in definitions.values()
            if each.changelog
        }

    def _outputs(
        self, stream: SystemStream, serdes: tuple[Serde | None, Serde | None]
    ) -> dict[int, list[tuple[Any, Any]]]:
        key_serde, message_serde = serdes
        return {
            number: [
                (readable(key_serde, key), readable(message_serde, message))
                for key, message in partition.entries()
            ]
            for number, partition in enumerate(self.result._streams.of(stream))
        }


def _given(config: Config | Mapping[str, Any] | str | Path | None) -> Config:
    """The configuration of the job as it was given: a test may have it as text, too."""
    if isinstance(config, str) and not (
        config.endswith(".properties") and "=" not in config and "\n" not in config
    ):
        return Config.from_text(config)
    return Config.of({} if config is None else config)


def _completed(config: Config, inputs: Iterable[str]) -> Config:
    """The configuration with what ``run_job`` promises beside it: inputs, a name, one container, memory read
    from the oldest message on."""
    values: dict[str, Any] = {"job.container.count": 1}
    if not config.names("task.inputs"):
        values["task.inputs"] = ",".join(inputs) or None
    if "job.name" not in config:
        values["job.name"] = "job"
    config = config.with_values(values)
    # Messages are there before the job starts: read them, unless the configuration says otherwise.
    defaults = {
        f"systems.{system}.samza.offset.default": "oldest"
        for system in {stream.system for stream in all_inputs(config)}
        if (config.text(f"systems.{system}.samza.factory") or "memory") == "memory"
        and f"systems.{system}.samza.offset.default" not in config
    }
    return config.with_values(defaults)


def _check_inputs(inputs: Any) -> None:
    """Raise ConfigError where inputs are not given per stream and partition."""
    form = "{'log.in': {0: [message, (key, message), ...]}}, by stream and partition"
    if not isinstance(inputs, Mapping):
        raise ConfigError(f"inputs are given as {form}, and not as {shortened(inputs)}")
    for stream, partitions in inputs.items():
        if not isinstance(stream, str):
            raise ConfigError(
                f"inputs: {shortened(stream)} is not the name of a stream; they are given as {form}"
            )
        if not isinstance(partitions, Mapping):
            raise ConfigError(
                f"inputs['{stream}'] lacks the partitions: {shortened(partitions)}; inputs are given as "
                f"{form}"
            )
        for number, messages in partitions.items():
            if not isinstance(number, Integral) or int(number) < 0:
                raise ConfigError(
                    f"inputs['{stream}']: {shortened(number)} is no partition, which are numbers from 0; as "
                    f"in {form}"
                )
            if not isinstance(messages, Iterable) or isinstance(messages, (str, bytes, Mapping)):
                raise ConfigError(
                    f"inputs['{stream}'][{number}] is no list of messages: {shortened(messages)}; as in "
                    f"{form}"
                )


def _checkpoints(given: Mapping[str, Mapping[str, str]]) -> dict[str, Checkpoint]:
    return {
        task: Checkpoint({SystemStreamPartition.parse(ssp): str(offset) for ssp, offset in offsets.items()})
        for task, offsets in given.items()
    }


def _copied(streams: MemoryStreams) -> MemoryStreams:
    copy = MemoryStreams()
    copy.partitions = {
        stream: [partition.copy() for partition in partitions]
        for stream, partitions in streams.partitions.items()
    }
    return copy


def _row(envelope: IncomingMessageEnvelope) -> Row:
    return str(envelope.ssp), envelope.offset, _kept(envelope.key), _kept(envelope.message)


def _kept(value: Any) -> Any:
    """A value for the record of a run: a copy where it can change; the value itself where a serde made what
    cannot be copied."""
    try:
        return detached(value)
    except SerdeError:
        return value


def _encoded(serde: Serde | None, value: Any) -> Any:
    if serde is None or value is None or isinstance(value, bytes):
        return value
    try:
        return serde.to_bytes(value)
    except Exception as error:
        raise ConfigError(
            f"an input message cannot be encoded with {type(serde).__name__}: {value!r}: {error}"
        ) from error
