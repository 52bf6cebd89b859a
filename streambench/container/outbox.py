"""The one door out: every effect of a container goes through its outbox.

That is: messages that tasks send, changes of state on their way to a changelog, and checkpoints. An outbox is replaceable as a whole: one
that only keeps what it is given holds effects back, one that throws them away is a crash.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.container.columns import Columns, OutgoingBatch, check_serdes, columns_outlet, tolerant
from streambench.container.handles import Outgoing
from streambench.container.outlet import Outlet, Outlets, Put, outlet
from streambench.container.rejects import Rejects
from streambench.errors import (
    ConfigError,
    ContainerStateError,
    MessageTooLargeError,
    SerdeError,
    UnknownStreamError,
    do_all,
    shortened,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.serde.streams import StreamSerdes
from streambench.system.api import Appends, SendColumns, Sender, SystemProducer
from streambench.system.systems import Systems


class StoreChanges(Struct):
    """What changed in one store of ``task`` since its last commit: per key (as bytes) the value, None for a deleted one.

    ``written``: for a store whose entries expire, when each of them was written, in milliseconds (None for a deleted one): the timestamps
    of the changelog's messages, from which a restore learns the age of an entry."""

    task: str
    store: str
    changelog: SystemStreamPartition
    entries: list[tuple[bytes, bytes | None]]
    written: Sequence[int | None] | None = None

    def too_large(self, error: MessageTooLargeError) -> MessageTooLargeError:
        """The error for changes of which the largest does not fit into the changelog, with its name and what can be done."""
        key, value = max(self.entries, key=lambda entry: len(entry[0]) + len(entry[1] or b""))
        settings = f"stores.{self.store}."
        return MessageTooLargeError(
            f"{self.task}, store '{self.store}', key {shortened(key)}: a value of {len(value or b'')} bytes is too large for the changelog "
            f"({error}). Put less; {settings}disallow.large.messages=true makes put() raise an error for what is larger than "
            f"{settings}changelog.max.message.size.bytes, {settings}drop.large.messages=true leaves it out and counts it"
        )


class TaskCommit(Struct):
    """What one task commits. ``identities``: as in a checkpoint."""

    task: str
    offsets: Mapping[SystemStreamPartition, str]
    starts: Mapping[SystemStreamPartition, str]
    changelogs: Mapping[str, SystemStreamPartition]
    changes: Sequence[StoreChanges]
    identities: Mapping[SystemStreamPartition, str] = {}


class Outbox(Protocol):
    """Where a container's effects go. ``whole``: its commits are of all tasks, never of some. ``streams``: where messages have gone so far.
    """

    whole: bool

    @property
    def streams(self) -> Collection[SystemStream]: ...

    def start(self, sources: Sequence[str], fenced: Mapping[str, Sequence[SystemStreamPartition]], generation: int, epoch: int) -> None:
        """Get ready. ``sources``: the tasks that may send. ``fenced``: per source of changes, the changelog partitions that are its
        alone."""
        ...

    def send(self, outgoing: Outgoing) -> None:
        """Send messages, in order. Raises SerdeError, ConfigError and what the producers raise.

        Rejects see to those that cannot be sent, and may by that add a dead letter to the end of ``outgoing``, which is sent too."""
        ...

    @property
    def failed_at(self) -> int:
        """The place in the list, from 0 on, of the message at which ``send`` raised last."""
        ...

    @property
    def may_wait(self) -> bool:
        """Whether it is all the same if what is collected is sent a few messages later: all streams seen so far are such that messages are
        only kept at first (in memory, or until a batch of a log is full)."""
        ...

    def settle(self) -> None:
        """See to what need not be seen to with every message. To be called from time to time, between two messages."""
        ...

    def flush(self) -> bool:
        """Return when all that was sent is durable; or, where only a commit makes it so, whether inputs of this job wait for one."""
        ...

    def commit(self, commits: Sequence[TaskCommit], now_ms: int) -> Mapping[str, Checkpoint]:
        """Make what was sent, the changes of state, and the offsets durable, in this order (or at once); the checkpoints, by task, as they
        were written. Raises FencedError."""
        ...

    def correct(self, changes: Sequence[StoreChanges]) -> None:
        """Write changelog entries that set right what a run left behind that died before its commit."""
        ...

    def check(self) -> None:
        """Raise FencedError where it is known that another holder has taken over."""
        ...

    def refuse(self) -> None:
        """Take nothing from now on: who still sends or commits, on whichever thread, gets a ContainerStateError."""
        ...

    def stop(self) -> None:
        """Let go of the producers without a flush."""
        ...


class ProducingOutbox:
    """What outboxes that write have in common: producers, and per stream the way of a message to its producer."""

    def __init__(
        self, systems: Systems, checkpoints: CheckpointManager, serdes: StreamSerdes, metrics: MetricsRegistry, rejects: Rejects,
        on_send: Callable[[str, SystemStream], None] | None = None,
    ) -> None:  # fmt: skip
        self._systems = systems
        self._checkpoints = checkpoints
        self._serdes = serdes
        self._metrics = metrics
        self._on_send = on_send
        self._producers: dict[str, SystemProducer] = {}
        self._by_stream: dict[SystemStream | Columns, Outlet] = {}
        self._outlets = Outlets(self._outlet_of)
        self.send = self._outlets.send
        self._partitions: dict[SystemStream, int] = {}
        self._sources: list[str] = []
        self._writers: dict[SystemStreamPartition, str] = {}
        self._changelogs: set[SystemStream] = set()
        self._generation = self._sequence = 0
        self._sent = metrics.counter("sends", "producers")
        self._rejects = rejects
        self._unflushed = 0
        self._refusal: ContainerStateError | None = None

    def start(self, sources: Sequence[str], fenced: Mapping[str, Sequence[SystemStreamPartition]], generation: int, epoch: int) -> None:
        self._sources = [*sources, *fenced]
        self._writers = {ssp: source for source, partitions in fenced.items() for ssp in partitions}
        self._changelogs = {ssp.system_stream for ssp in self._writers}
        # Epochs grow with each holder of a container, and so do the numbers of its commits.
        self._generation, self._sequence = generation, epoch
        for source, partitions in fenced.items():
            for system in {ssp.system for ssp in partitions}:
                of_system = [ssp for ssp in partitions if ssp.system == system]
                self._producer(system).fence(source, of_system, generation, epoch)

    @property
    def streams(self) -> Collection[SystemStream]:
        return self._partitions.keys()

    @property
    def failed_at(self) -> int:
        return self._outlets.failed_at

    @property
    def may_wait(self) -> bool:
        return self._outlets.may_wait

    def settle(self) -> None:
        self._unflushed += self._outlets.settle()

    def check(self) -> None:
        self._checkpoints.check()

    def refuse(self) -> None:
        self._refusal = ContainerStateError("the container was abandoned in the middle of a message: nothing is sent or committed any more")
        self._outlets.refuse(self._refusal)

    def _require_open(self) -> None:
        """Raise ContainerStateError after ``refuse``. To be called when all that a checkpoint stands for has been seen to, just before it
        is written: what was seen to later than ``refuse`` may have been in vain."""
        if self._refusal is not None:
            raise self._refusal

    def stop(self) -> None:
        producers, self._producers = self._producers, {}
        do_all([producer.stop for producer in producers.values()])

    def _checkpoints_of(
        self, commits: Sequence[TaskCommit], ends: Mapping[SystemStreamPartition, str], now_ms: int
    ) -> dict[str, Checkpoint]:
        """The checkpoints of the next commit. ``ends``: what will be the upcoming offsets of the changelogs."""
        self._sequence += 1
        return {
            each.task: Checkpoint(
                offsets=each.offsets,
                starts=each.starts,
                changelogs={store: ends[ssp] for store, ssp in each.changelogs.items()},
                generation=self._generation,
                sequence=self._sequence,
                time_ms=now_ms,
                identities=each.identities,
            )
            for each in commits
        }

    def _upcoming(self, changelogs: Collection[SystemStreamPartition]) -> dict[SystemStreamPartition, str]:
        metadata = self._systems.metadata({ssp.system_stream for ssp in changelogs})
        return {ssp: metadata[ssp.system_stream][ssp.partition].upcoming or "0" for ssp in changelogs}

    def _made(self, system: str) -> SystemProducer:
        """A new producer, not started yet. Raises ConfigError."""
        return self._systems.producer(system, self._metrics)

    def _sender(self, stream: SystemStream) -> Sender:
        """What takes the encoded messages for a stream."""
        return self._producer(stream.system).sender(stream)

    def _appends(self, stream: SystemStream) -> Appends | None:
        """Quicker ways than the sender's for plain messages, if there are any and nothing of the sender is needed."""
        return None

    def _sender_of_columns(self, stream: SystemStream) -> SendColumns | None:
        """The same for messages by the column; None where they go one by one."""
        producer = self._producer(stream.system)
        own = type(producer).sender_of_columns is not SystemProducer.sender_of_columns
        return producer.sender_of_columns(stream) if own else None

    def _producer(self, system: str) -> SystemProducer:
        if system not in self._producers:
            self._require_open()
            producer = self._made(system)
            for source in self._sources:
                producer.register(source)
            producer.start()
            self._producers[system] = producer
        return self._producers[system]

    def _outlet_of(self, task: str, envelope: Any) -> Outlet:
        try:
            return self._by_stream[envelope.system_stream]
        except (KeyError, TypeError, AttributeError):
            return self._outlet(task, envelope)

    def _outlet(self, task: str, envelope: Any) -> Outlet:
        """What takes the messages for the stream of the first of them."""
        if isinstance(envelope, OutgoingBatch):
            return self._outlet_of_columns(task, envelope)
        stream = _checked(task, envelope)
        if stream in self._changelogs:
            raise ConfigError(f"{task} sent to {stream}, which is a changelog of this job; send to another stream")
        try:
            admin = self._systems.admin(stream.system)
        except ConfigError as error:
            raise ConfigError(f"{task} cannot send to {stream}: {error}") from None
        self._producer(stream.system)  # what cannot be written to gets no streams either
        try:
            partitions = admin.metadata([stream])[stream]
        except UnknownStreamError:
            self._systems.create(stream)
            partitions = admin.metadata([stream])[stream]
        self._partitions[stream] = len(partitions)
        key_serde, message_serde = self._serdes.for_stream(stream)
        ways = self._sender(stream), self._appends(stream)
        made = outlet(stream, *ways, len(partitions), key_serde, message_serde, self._unserialisable)
        if stream == self._rejects.stream:
            made = made._replace(put=self._rejects.only_letters(made.put), quick=None)
        if self._on_send is not None:
            made = made._replace(put=self._observed(stream, made.put, self._on_send), quick=None)
        self._by_stream[stream] = made
        return made

    def _outlet_of_columns(self, task: str, batch: OutgoingBatch) -> Outlet:
        stream = batch.stream
        if stream == self._rejects.stream:
            raise self._rejects.no_output(task)
        single = self._outlet_of(task, OutgoingMessageEnvelope(stream, None)).put
        ways = self._sender_of_columns(stream), self._sender(stream)
        send = self._observed_columns(stream, tolerant(stream, *ways, self._unserialisable))
        serdes = self._serdes.for_stream(stream)
        put = columns_outlet(stream, send, single, self._partitions[stream], *serdes, self._unserialisable)

        def counted(source: str, batch: Any) -> None:
            if batch.serdes:
                check_serdes(source, batch, self._serdes)
            self._unflushed += len(batch) - 1
            put(source, batch)

        made = self._by_stream[batch.system_stream] = Outlet(counted)
        return made

    def _observed(self, stream: SystemStream, put: Put, on_send: Callable[[str, SystemStream], None]) -> Put:
        def observed(source: str, envelope: OutgoingMessageEnvelope) -> None:
            unsent = self._rejects.unsent
            put(source, envelope)
            if self._rejects.unsent == unsent:
                on_send(source, stream)

        return observed

    def _observed_columns(self, stream: SystemStream, send: SendColumns) -> SendColumns:
        on_send = self._on_send
        if on_send is None:
            return send

        def observed(source: str, partition: int, columns: Any) -> None:
            unsent = self._rejects.unsent
            send(source, partition, columns)
            for _ in range(columns.num_rows - (self._rejects.unsent - unsent)):
                on_send(source, stream)

        return observed

    def _unserialisable(self, task: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
        self._rejects.unserialisable(task, envelope, error)
        self._unflushed -= 1


def _checked(task: str, envelope: Any) -> SystemStream:
    """Where a message is to go. Raises SerdeError for what is no message, or names no stream."""
    if not isinstance(envelope, OutgoingMessageEnvelope):
        raise SerdeError(f"{task} sent {shortened(envelope)}; what can be sent is OutgoingMessageEnvelope(SystemStream(...), message)")
    stream: Any = envelope.system_stream
    if isinstance(stream, SystemStream) and stream.system and stream.stream:
        return stream
    system, dot, name = stream.partition(".") if isinstance(stream, str) else ("", "", "")
    told = f"{stream!r}), or SystemStream({system!r}, {name!r}" if system and dot and name else "'log.out'), or SystemStream('log', 'out'"
    raise SerdeError(f"{task} sent to {shortened(stream)}, which is no stream: give SystemStream.parse({told})")


class LiveOutbox(ProducingOutbox):
    """The ordinary outbox: sends at once, commits at least once."""

    whole = False

    def flush(self) -> bool:
        self._unflushed += self._outlets.settle(anyway=False)
        if self._unflushed:
            for producer in self._producers.values():
                for source in self._sources:
                    producer.flush(source)
            self._sent.inc(self._unflushed)
            self._unflushed = 0
        return False

    def commit(self, commits: Sequence[TaskCommit], now_ms: int) -> Mapping[str, Checkpoint]:
        self.flush()
        self.correct([changes for each in commits for changes in each.changes])
        written = self._checkpoints_of(commits, self._upcoming({ssp for each in commits for ssp in each.changelogs.values()}), now_ms)
        self._require_open()
        if written:
            self._checkpoints.write(written)
        return written

    def _upcoming(self, changelogs: Collection[SystemStreamPartition]) -> dict[SystemStreamPartition, str]:
        # What somebody else has written behind our changes must not get into a checkpoint.
        ends: dict[SystemStreamPartition, str] = {}
        for system, producer in self._producers.items():
            ends.update(producer.ends([ssp for ssp in changelogs if ssp.system == system]))
        unknown = [ssp for ssp in changelogs if ssp not in ends]
        return {**ends, **super()._upcoming(unknown)} if unknown else ends

    def _appends(self, stream: SystemStream) -> Appends | None:
        return self._producer(stream.system).appends(stream)

    def correct(self, changes: Sequence[StoreChanges]) -> None:
        for each in changes:
            ssp = each.changelog
            source = self._writers[ssp]
            producer = self._producer(ssp.system)
            stream = ssp.system_stream
            try:
                for (key, value), written in zip(each.entries, each.written or itertools.repeat(None), strict=False):
                    producer.send(source, OutgoingMessageEnvelope(stream, value, key, None, ssp.partition, written))
            except MessageTooLargeError as error:
                raise each.too_large(error) from error
            self._unflushed += len(each.entries)
        self.flush()
