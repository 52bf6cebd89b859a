"""Steps 4 and 5: the outbox. Every effect of a container goes through it.

That is: messages that tasks send, changes of state on their way to a changelog, and checkpoints. An outbox is
replaceable as a whole. One that only keeps what it is given holds effects back; one that drops them is a
crash.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.container.observer import Observation, SentOutput
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.dead_letters import DeadLetters
from streambench.container.outputs.outgoing_batch import (
    BatchTarget,
    ColumnarWriter,
    OutgoingBatch,
    RowReport,
    check_serdes,
    skip_oversized,
)
from streambench.container.outputs.stream_writers import (
    OnUnserialisable,
    StreamWriter,
    StreamWriters,
    rotation,
    stream_writer,
)
from streambench.container.outputs.traced_send import traced_send
from streambench.errors import (
    ConfigError,
    ContainerStateError,
    MessageTooLargeError,
    SerdeError,
    do_all,
    shortened,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.serde.streams import StreamSerdes
from streambench.system.api import PartitionAppenders, SendColumns, Sender, SystemProducer
from streambench.system.capabilities import Columnar, Fencing, KnowingEnds, SizeLimited
from streambench.system.systems import Systems


class StoreChanges(Struct):
    """The changes in one store of ``task`` since its last commit: per key (as bytes) the value, None for a
    deleted one.

    ``written``: for a store whose entries expire, when each of them was written, in milliseconds (None for a
    deleted one). These become the timestamps in the changelog, from which a restore learns the age of an
    entry.
    """

    task: str
    store: str
    changelog: SystemStreamPartition
    entries: list[tuple[bytes, bytes | None]]
    written: Sequence[int | None] | None = None

    def too_large(self, error: MessageTooLargeError) -> MessageTooLargeError:
        """The error for changes of which the largest does not fit into the changelog, with its name and what
        can be done."""
        key, value = max(self.entries, key=lambda entry: len(entry[0]) + len(entry[1] or b""))
        settings = f"stores.{self.store}."
        return MessageTooLargeError(
            f"{self.task}, store '{self.store}', key {shortened(key)}: a value of {len(value or b'')} bytes "
            "is too large for the changelog "
            f"({error}). Put less; {settings}disallow.large.messages=true makes put() raise an error for "
            "what is larger than "
            f"{settings}changelog.max.message.size.bytes, {settings}drop.large.messages=true leaves it out "
            "and counts it"
        )


class TaskCommit(Struct):
    """The state of one task to be committed.

    ``identities``, ``formats``, ``absent`` and ``window_ms`` are those of a checkpoint. ``kept``: of the
    stores that this run does not name, the upcoming offsets of their changelogs, as they were."""

    task: str
    offsets: Mapping[SystemStreamPartition, str]
    starts: Mapping[SystemStreamPartition, str]
    changelogs: Mapping[str, SystemStreamPartition]
    changes: Sequence[StoreChanges]
    identities: Mapping[SystemStreamPartition, str] = {}
    window_ms: int | None = None
    kept: Mapping[str, str] = {}
    formats: Mapping[str, Sequence[str]] = {}
    absent: Mapping[str, str] = {}


class Outbox(Protocol):
    """The destination of a container's effects. ``commits_all_tasks``: a commit is one of all tasks, never of
    some. ``streams``: the streams that were sent to so far, and the number of partitions of each.
    ``size_limits``: of those whose broker has given a limit, the most bytes of a message."""

    commits_all_tasks: bool

    @property
    def streams(self) -> Mapping[SystemStream, int]: ...

    @property
    def size_limits(self) -> Mapping[SystemStream, int]: ...

    def start(
        self,
        sources: Sequence[str],
        fenced: Mapping[str, Sequence[SystemStreamPartition]],
        generation: int,
        epoch: int,
    ) -> None:
        """Get ready. ``sources``: the tasks that may send. ``fenced``: per source of changes, the changelog
        partitions that are its alone."""

    def send(self, collected: Collected) -> None:
        """Send messages, in order. Raises SerdeError, ConfigError and what the producers raise.

        Dead letters take those that cannot be sent, which may add a dead letter to the end of
        ``collected``, which is sent too."""

    @property
    def failed_index(self) -> int:
        """The place in the list, from 0 on, of the message at which ``send`` raised last."""

    @property
    def can_defer(self) -> bool:
        """True where sends may be deferred by a few messages.

        All streams seen so far buffer messages at first, in memory or until a batch of a log is full."""

    def apply_limits(self) -> None:
        """Append batches that have reached their limit in size or time. Between two messages."""

    @property
    def unflushed(self) -> int:
        """The messages that were sent and are not in the counter of sends yet."""

    def flush(self) -> bool:
        """Return when all that was sent is durable; or, where only a commit makes it so, whether inputs of
        this job wait for one."""

    def commit(self, commits: Sequence[TaskCommit], now_ms: int) -> Mapping[str, Checkpoint]:
        """Make what was sent, the changes of state, and the offsets durable, in this order (or at once). The
        checkpoints, by task, as they were written. Raises FencedError."""

    def write_changes(self, changes: Sequence[StoreChanges]) -> None:
        """Write changes of state to their changelogs.

        They are those of a commit; or, at a start, those that correct what a run wrote that died before its
        commit."""

    def check(self) -> None:
        """Raise FencedError where it is known that another holder has taken over."""

    def observe(self) -> None:
        """Show outputs to the current observers; to none costs nothing. Between two messages."""

    def close_for_writes(self) -> None:
        """Take nothing from now on: a call that still sends or commits, on whichever thread, gets a
        ContainerStateError."""

    def stop(self) -> None:
        """Release the producers without a flush."""


class _Route(NamedTuple):
    """The route of messages to a stream: the calls of its producer, and the partitions of messages without a
    key. All its writers share it."""

    send: Sender
    appends: PartitionAppenders | None
    keyless: Iterator[int]


class BaseOutbox:
    """The common base of outboxes that write: producers, and per stream the route of a message to its
    producer."""

    commits_all_tasks = False

    def __init__(
        self,
        systems: Systems,
        checkpoints: CheckpointManager,
        serdes: StreamSerdes,
        metrics: MetricsRegistry,
        dead_letters: DeadLetters,
        observation: Observation | None = None,
    ) -> None:
        self._systems = systems
        self._checkpoints = checkpoints
        self._serdes = serdes
        self._metrics = metrics
        self._observation = observation or Observation()
        self._producers: dict[str, SystemProducer] = {}
        self._by_stream: dict[SystemStream | BatchTarget, StreamWriter] = {}
        self._row_writers: dict[SystemStream, StreamWriter] = {}
        """The writers of batches whose messages go one by one."""
        self._stream_writers = StreamWriters(self._writer_of)
        send, trace = self._stream_writers.send, self._observation.trace
        # The method itself: it is called with every message.
        self.send = send if trace is None else traced_send(send, serdes, trace)
        self._partitions: dict[SystemStream, int] = {}
        self._size_limits: dict[SystemStream, int] = {}
        self._routes: dict[SystemStream, _Route] = {}
        self._sources: list[str] = []
        self._writers: dict[SystemStreamPartition, str] = {}
        self._changelogs: set[SystemStream] = set()
        self._generation = self._sequence = 0
        self._sent = metrics.counter("sends", "producers")
        self._dead_letters = dead_letters
        self._unflushed = 0
        self._refusal: ContainerStateError | None = None

    def start(
        self,
        sources: Sequence[str],
        fenced: Mapping[str, Sequence[SystemStreamPartition]],
        generation: int,
        epoch: int,
    ) -> None:
        self._sources = [*sources, *fenced]
        self._writers = {ssp: source for source, partitions in fenced.items() for ssp in partitions}
        self._changelogs = {ssp.system_stream for ssp in self._writers}
        # Epochs grow with each holder of a container, and so do the numbers of its commits.
        self._generation, self._sequence = generation, epoch
        for source, partitions in fenced.items():
            for system in {ssp.system for ssp in partitions}:
                of_system = [ssp for ssp in partitions if ssp.system == system]
                producer = self._producer(system)
                if isinstance(producer, Fencing):
                    producer.fence(source, of_system, generation, epoch)

    @property
    def streams(self) -> Mapping[SystemStream, int]:
        return self._partitions

    @property
    def size_limits(self) -> Mapping[SystemStream, int]:
        return self._size_limits

    @property
    def failed_index(self) -> int:
        return self._stream_writers.failed_index

    @property
    def can_defer(self) -> bool:
        return self._stream_writers.can_defer

    def apply_limits(self) -> None:
        self._unflushed += self._stream_writers.apply_limits()

    @property
    def unflushed(self) -> int:
        return self._unflushed + self._stream_writers.pending()

    def check(self) -> None:
        self._checkpoints.check()

    def observe(self) -> None:
        self._stream_writers.forget()
        for to in [each for each in self._by_stream if isinstance(each, SystemStream)]:
            del self._by_stream[to]
        self._row_writers.clear()

    def close_for_writes(self) -> None:
        self._refusal = ContainerStateError(
            "the container was abandoned in the middle of a message: nothing is sent or committed any more"
        )
        self._stream_writers.close_for_writes(self._refusal)

    def _require_open(self) -> None:
        """Raise ContainerStateError after ``close_for_writes``. It is called just before a checkpoint is
        written, when all that the checkpoint covers is done. What was done after ``close_for_writes`` may
        have had no effect."""
        if self._refusal is not None:
            raise self._refusal

    def stop(self) -> None:
        producers, self._producers = self._producers, {}
        do_all([producer.stop for producer in producers.values()])

    def _checkpoints_of(
        self, commits: Sequence[TaskCommit], ends: Mapping[SystemStreamPartition, str], now_ms: int
    ) -> dict[str, Checkpoint]:
        """The checkpoints of the next commit. ``ends``: what will be the upcoming offsets of the
        changelogs."""
        self._sequence += 1
        return {
            each.task: Checkpoint(
                offsets=each.offsets,
                starts=each.starts,
                changelogs={**each.kept, **{store: ends[ssp] for store, ssp in each.changelogs.items()}}
                if each.changelogs
                else each.kept,
                generation=self._generation,
                sequence=self._sequence,
                time_ms=now_ms,
                identities=each.identities,
                window_ms=each.window_ms,
                formats=each.formats,
                absent=each.absent,
            )
            for each in commits
        }

    def _upcoming(self, changelogs: Collection[SystemStreamPartition]) -> dict[SystemStreamPartition, str]:
        metadata = self._systems.metadata_of(changelogs)
        return {ssp: metadata[ssp.system_stream][ssp.partition].upcoming or "0" for ssp in changelogs}

    def _made(self, system: str) -> SystemProducer:
        """A new producer, not started yet. Raises ConfigError."""
        return self._systems.producer(system, self._metrics)

    def _sender(self, stream: SystemStream) -> Sender:
        """The call that takes the encoded messages for a stream."""
        return self._producer(stream.system).sender(stream)

    def _appends(self, stream: SystemStream) -> PartitionAppenders | None:
        """The appenders of the producer, which take plain bytes more quickly than its sender. None here: only
        an outbox that sends at once may use them."""
        return None

    def _sender_of_columns(self, stream: SystemStream) -> SendColumns | None:
        """The same for messages by the column; None where they go one by one."""
        producer = self._producer(stream.system)
        return producer.sender_of_columns(stream) if isinstance(producer, Columnar) else None

    def _producer(self, system: str) -> SystemProducer:
        if system not in self._producers:
            self._require_open()
            producer = self._made(system)
            for source in self._sources:
                producer.register(source)
            producer.start()
            self._producers[system] = producer
        return self._producers[system]

    def _writer_of(self, task: str, envelope: Any) -> StreamWriter:
        try:
            return self._by_stream[envelope.system_stream]
        except (KeyError, TypeError, AttributeError):
            return self._found_writer(task, envelope)

    def _found_writer(self, task: str, envelope: Any) -> StreamWriter:
        """The writer of the stream of a first message."""
        if isinstance(envelope, OutgoingBatch):
            return self._writer_of_columns(task, envelope)
        stream = stream_of(task, envelope)
        route = self._routes.get(stream) or self._new_route(task, stream)
        made = self._writer_to(stream, route, self._unserialisable)
        if stream == self._dead_letters.stream:
            made = made._replace(put=self._dead_letters.only_dead_letters(made.put), quick=None)
        self._by_stream[stream] = made
        return made

    def _writer_to(
        self, stream: SystemStream, route: _Route, unserialisable: OnUnserialisable
    ) -> StreamWriter:
        appends = route.appends if self._observation.of("output_sent") is None else None
        return stream_writer(
            stream, self._observed(stream, route.send), appends, self._partitions[stream],
            *self._serdes.for_stream(stream), unserialisable, route.keyless,
        )  # fmt: skip

    def _new_route(self, task: str, stream: SystemStream) -> _Route:
        """The route to a stream that is sent to for the first time, which is created if need be."""
        if stream in self._changelogs:
            raise ConfigError(
                f"{task} sent to {stream}, which is a changelog of this job; send to another stream"
            )
        target = self._systems.output(stream)
        if target in self._changelogs:
            raise ConfigError(f"{task} sends to {stream}, which goes to {target}, a changelog of this job")
        try:
            self._systems.admin(stream.system)
        except ConfigError as error:
            raise ConfigError(f"{task} cannot send to {stream}: {error}") from None
        self._producer(stream.system)  # what cannot be written to gets no streams either
        self._partitions[stream] = partitions = self._systems.created(target)
        self._serdes.for_stream(stream)
        route = _Route(self._sender(target), self._appends(target), rotation(partitions))
        self._routes[stream] = route
        producer = self._producer(stream.system)
        limit = producer.largest_message(target) if isinstance(producer, SizeLimited) else None
        if limit is not None:
            self._size_limits[stream] = limit
        return route

    def _writer_of_columns(self, task: str, batch: OutgoingBatch) -> StreamWriter:
        stream = batch.stream
        if stream == self._dead_letters.stream:
            raise self._dead_letters.no_output(task)
        self._writer_of(task, OutgoingMessageEnvelope(stream, None))  # finds its partitions
        report = RowReport(self._unserialisable)

        def single(source: str, envelope: Any) -> None:
            if stream not in self._row_writers:
                self._row_writers[stream] = self._writer_to(stream, self._routes[stream], report)
            self._row_writers[stream].put(source, envelope)

        put = ColumnarWriter(
            stream, self._observed_columns(stream, report), single, self._partitions[stream],
            *self._serdes.for_stream(stream), report,
        ).put  # fmt: skip

        def counted(source: str, batch: Any) -> None:
            if batch.serdes:
                check_serdes(source, batch, self._serdes)
            self._unflushed += len(batch) - 1
            put(source, batch)

        made = self._by_stream[batch.system_stream] = StreamWriter(counted)
        return made

    def _observed(self, stream: SystemStream, send: Sender) -> Sender:
        """``send``, shown to the current observers; itself where there are none."""
        observer, held = self._observation.of("output_sent"), self.commits_all_tasks
        if observer is None:
            return send

        def observed(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            send(source, envelope, key, message, partition)
            observer.output_sent(SentOutput(source, envelope, partition, key, message, held))

        return observed

    def _observed_columns(self, stream: SystemStream, report: RowReport) -> SendColumns:
        """The call that takes columns; one by one while there are observers, who get each message."""
        send = self._routes[stream].send
        quick = skip_oversized(
            stream, self._sender_of_columns(self._systems.output(stream)), send, report
        )

        def columns(source: str, partition: int, rows: Any) -> None:
            if self._observation.of("output_sent") is None:
                quick(source, partition, rows)
            else:
                shown = self._observed(stream, send)
                skip_oversized(stream, None, shown, report)(source, partition, rows)

        return columns

    def _unserialisable(self, task: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
        self._dead_letters.unserialisable(task, envelope, error)
        if self._observation.trace is not None:
            self._observation.trace.refused.append(envelope)
        self._unflushed -= 1


def stream_of(task: str, envelope: Any) -> SystemStream:
    """The stream of an output. Raises SerdeError for an object that is no message, or names no stream."""
    if not isinstance(envelope, OutgoingMessageEnvelope):
        raise SerdeError(
            f"{task} sent {shortened(envelope)}; what can be sent is "
            "OutgoingMessageEnvelope(SystemStream(...), message), or in short "
            'collector.send("system.stream", message, key=...)'
        )
    stream: Any = envelope.system_stream
    if isinstance(stream, SystemStream) and stream.system and stream.stream:
        return stream
    system, dot, name = stream.partition(".") if isinstance(stream, str) else ("", "", "")
    example = (
        f"{stream!r}), or SystemStream({system!r}, {name!r}"
        if system and dot and name
        else "'log.out'), or SystemStream('log', 'out'"
    )
    raise SerdeError(
        f"{task} sent to {shortened(stream)}, which is no stream: give SystemStream.parse({example})"
    )


class AtLeastOnceOutbox(BaseOutbox):
    """The ordinary outbox: sends at once, commits at least once."""

    commits_all_tasks = False

    def flush(self) -> bool:
        self._unflushed += self._stream_writers.apply_limits(only_fresh=True)
        if self._unflushed:
            for producer in self._producers.values():
                for source in self._sources:
                    producer.flush(source)
            self._sent.inc(self._unflushed)
            self._unflushed = 0
        return False

    def commit(self, commits: Sequence[TaskCommit], now_ms: int) -> Mapping[str, Checkpoint]:
        # Outputs and changes first: a checkpoint must never be ahead of them.
        self.flush()
        self.write_changes([changes for each in commits for changes in each.changes])
        written = self._checkpoints_of(
            commits, self._upcoming({ssp for each in commits for ssp in each.changelogs.values()}), now_ms
        )
        self._require_open()
        if written:
            self._checkpoints.write(written)
        return written

    def _upcoming(self, changelogs: Collection[SystemStreamPartition]) -> dict[SystemStreamPartition, str]:
        # What another process has written behind our changes must not get into a checkpoint.
        ends: dict[SystemStreamPartition, str] = {}
        for system, producer in self._producers.items():
            if isinstance(producer, KnowingEnds):
                ends.update(producer.ends([ssp for ssp in changelogs if ssp.system == system]))
        unknown = [ssp for ssp in changelogs if ssp not in ends]
        return {**ends, **super()._upcoming(unknown)} if unknown else ends

    def _appends(self, stream: SystemStream) -> PartitionAppenders | None:
        return self._producer(stream.system).appends(stream)

    def write_changes(self, changes: Sequence[StoreChanges]) -> None:
        for each in changes:
            ssp = each.changelog
            source = self._writers[ssp]
            producer = self._producer(ssp.system)
            stream = ssp.system_stream
            try:
                for (key, value), written in zip(
                    each.entries, each.written or itertools.repeat(None), strict=False
                ):
                    producer.send(
                        source, OutgoingMessageEnvelope(stream, value, key, None, ssp.partition, written)
                    )
            except MessageTooLargeError as error:
                raise each.too_large(error) from error
            self._unflushed += len(each.entries)
        self.flush()
