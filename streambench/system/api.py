"""The plug-in contract: what a system of streams must bring to be read from and written to.

A *system* is a place that holds streams: a directory, a Kafka cluster, this process's memory. A plug-in is a
SystemFactory that makes the three parts: a SystemConsumer to read, a SystemProducer to write, and a
SystemAdmin to ask and create. A plug-in deals in bytes as they are (or in objects, where it never leaves the
process); serdes are applied above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from streambench.chunk import Chunk as Chunk  # plug-ins look for it here
from streambench.chunk import Messages
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    StreamsMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa


class SystemConsumer(ABC):
    """Reads partitions of one system for one container.

    The life of a consumer: ``register`` for each partition, ``start``, ``poll`` again and again, ``stop``.
    All of this happens on one thread: a reader thread of this consumer, or, where ``polled_by_loop`` is true,
    the event loop's own.

    Offsets: ``register`` names the first message that is wanted, inclusively. From there on the consumer
    keeps its own position. It delivers the messages of a partition in order, each once, and never asks what
    became of them.

    Back-pressure: ``poll`` names the partitions that have room and how many messages each may return at most.
    A partition that is not named must return nothing and lose nothing. It must not hold up the others, for
    however long it is not asked for.
    """

    polled_by_loop: ClassVar[bool] = False
    """True where a poll never waits for a network: the event loop then polls the consumer itself, which
    spares a thread and makes the order of arrival repeatable. Such a consumer is given a ``timeout_ms`` of 0.
    """

    at_once: ClassVar[int] = 1000
    """The most messages of a partition that the event loop asks for, where it polls the consumer and tasks
    take them one by one: enough to be worth a poll, and few enough not to be forgotten by the processor's
    cache before they are processed."""

    acknowledge_within_ms: int | None = None
    """The time that senders of a message may be left without an acknowledgement, where they wait for it: the
    container then commits at least that often, unless ``task.commit.ms`` is 0 or less. Set before ``start``;
    None: they can wait."""

    @abstractmethod
    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        """Want this partition from ``offset`` on (the first message to deliver). Called before ``start``."""

    # Where messages stay anyway, a look is as good as any reading.
    def look_only(self, at_most: int | None) -> None:  # noqa: B027
        """Called before ``start`` of a consumer that only looks at what is there, and acknowledges nothing.

        It looks at most at so many messages of a partition (None: at all that will ever arrive). Where
        reading takes messages from others, take no more than these, and give them back at the end; raise
        StreamSystemError where that cannot be."""

    @abstractmethod
    def start(self) -> None:
        """Connect. Raises UnknownStreamError, OffsetError or another StreambenchError where that fails."""

    @abstractmethod
    def stop(self) -> None:
        """Disconnect; may be called more than once, and without ``start``."""

    @abstractmethod
    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        """The next messages of the wanted partitions, at most as many of each as stands there.

        Returns as soon as there is anything, else an empty list after ``timeout_ms`` (0: at once). Messages
        of different partitions may be mixed. Raises a StreambenchError where a partition cannot be read any
        more; the container then stops.
        """

    @abstractmethod
    def at_head(self, ssp: SystemStreamPartition) -> bool:
        """True where everything that was there at the last ``poll`` of this partition has been returned.
        False while that is unknown.

        It decides when a bootstrap stream no longer blocks others, and when ``run(until="caught-up")`` ends.
        It counts even against ``SystemAdmin.metadata``, since the newest offset named there may have been
        removed. A poll that returns nothing is not enough for it."""

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        """As ``poll``, by the column. Override it where messages are read in columns anyway; the container
        calls only this one.

        A message that the consumer itself cannot make sense of is returned as ``Unreadable``, with its bytes
        and the error. The error is not raised: the configuration says what becomes of it."""
        by_ssp: dict[SystemStreamPartition, list[IncomingMessageEnvelope]] = {}
        for envelope in self.poll(wanted, timeout_ms):
            by_ssp.setdefault(envelope.ssp, []).append(envelope)
        return [Chunk.of(ssp, envelopes) for ssp, envelopes in by_ssp.items()]

    def poll_batches(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> Sequence[Messages]:
        """As ``poll_chunks``, for tasks that take batches: override it where messages are read as Arrow
        batches (``ArrowChunk``), which then reach the task as they are. A container calls either this or
        ``poll_chunks``."""
        return self.poll_chunks(wanted, timeout_ms)


def nothing_to_look_at(system: str) -> StreamSystemError:
    """The error of ``look_only`` where messages are not stored."""
    return StreamSystemError(
        f"'{system}' keeps nothing that could be looked at: land it in a log "
        f"(systems.{system}.samza.landing) and look there; or "
        "receive what comes from now on in place of the job (streambench peek --follow)"
    )


Sender = Callable[[str, OutgoingMessageEnvelope, Any, Any, int], None]
"""Takes a message for one stream: source, the envelope as the task sent it, key and message as encoded, and
the partition."""


def accept(
    source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
) -> None:
    """The check of a system that refuses no message itself, and a sender that sends nothing."""


Append = Callable[[tuple[Any, Any, None]], object]
"""Takes a message for one partition, as (key, message, None)."""


class PartitionAppenders(NamedTuple):
    """The quick way of plain messages to one stream: per partition, a function that takes a message.

    Such a message has neither timestamp nor headers, its key is bytes or None, and its message is bytes. Key
    and message together must not be longer than ``largest`` bytes.

    An appender only keeps the message. The appending side calls ``apply_limits`` from time to time, at the
    latest after a thousand messages, and before a ``flush``. That call appends batches that have reached
    their limit in size or time."""

    partitions: Sequence[Append]
    largest: int
    apply_limits: Callable[[], object]


def no_limits() -> None:
    """The ``apply_limits`` of appenders without limits."""


SendColumns = Callable[[str, int, "pa.RecordBatch"], None]
"""Takes encoded messages for one partition of one stream: source, partition, and the columns key and message
(binary), timestamp (int64, in ms) and headers."""


def row_by_row(stream: SystemStream, send: Sender) -> SendColumns:
    """A SendColumns that hands over each message by itself."""

    def send_columns(source: str, partition: int, columns: pa.RecordBatch) -> None:
        keys, messages, timestamps, headers = (column.to_pylist() for column in columns.columns)
        for key, message, timestamp, named in zip(keys, messages, timestamps, headers, strict=True):
            kept = None if named is None else dict(named)
            send(
                source,
                OutgoingMessageEnvelope(stream, message, key, None, partition, timestamp, kept),
                key,
                message,
                partition,
            )

    return send_columns


class SystemProducer(ABC):
    """Writes to the streams of one system for one container.

    Called on the container's thread only. Envelopes arrive with bytes (or what the system takes), and with
    ``partition`` set for every stream whose partitions the admin reports.

    What only some producers can do, such as taking part in an atomic commit, is in
    ``streambench.system.capabilities``.
    """

    def start(self) -> None:  # noqa: B027 - many connect with the first message
        """Connect; called once before the first ``send``."""

    @abstractmethod
    def stop(self) -> None:
        """Disconnect without a flush: what was sent since the last ``flush`` may be lost. May be called more
        than once, and without ``start``."""

    def register(self, source: str) -> None:  # noqa: B027 - to most all sources are alike
        """Announce a source of messages (a task's name) before the first ``send`` from it."""

    @abstractmethod
    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        """Take a message; it may be kept back to be written with others until ``flush``. Raises
        MessageTooLargeError, UnknownStreamError."""

    @abstractmethod
    def flush(self, source: str) -> None:
        """Return when everything that this source sent is durable; raise where any of it failed."""

    def sender(self, stream: SystemStream) -> Sender:
        """The call that takes the messages for one stream from now on: ``send``, unless a producer has a
        quicker way once the stream is known."""

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            self.send(
                source,
                OutgoingMessageEnvelope(
                    stream, message, key, None, partition, envelope.timestamp, envelope.headers
                ),
            )

        return send

    def appends(self, stream: SystemStream) -> PartitionAppenders | None:
        """The quick way of plain messages to a stream, for a stream that has one and where the sender does
        not matter. None (the default) where not. What is sent in another way keeps its place among them.
        Asked for after ``fence``."""
        return None

    # Not every system has a limit that is known before.
    def check_sizes(self, rows: Rows) -> None:  # noqa: B027
        """Raise MessageTooLargeError where one of these rows is larger than the system takes, as ``send``
        would. They are not sent, but go into an atomic commit."""


class SystemAdmin(ABC):
    """Answers questions about the streams of one system, and creates them."""

    replayable: bool = True
    """True where what was read can be read again, from an offset. Where not (a socket, a queue), the metadata
    of every partition is ``PartitionMetadata(None, None, "0")``; a consumer counts what it delivers of a
    partition from "0"; a container begins there whatever a checkpoint says, and relies on
    ``Acknowledging.acknowledge`` alone: a message that is not acknowledged comes again. Such a
    stream cannot be rewound, and it is no input of an exactly-once job nor of a batch, unless it is landed in
    a log."""

    offset_default: str = "upcoming"
    """The start of a task in a stream of which it knows nothing, unless ``samza.offset.default`` says it."""

    identity_grows: bool = False
    """True where ``identity`` depends on the position. It is then asked for with every commit, else once by
    each container."""

    @abstractmethod
    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        """Per stream and partition, the oldest, newest and upcoming offset as of now. Raises
        UnknownStreamError for a stream that is not there."""

    def metadata_of(self, partitions: Iterable[SystemStreamPartition]) -> StreamsMetadata:
        """``metadata`` of these partitions; of others of their streams it may be left out."""
        return self.metadata(sorted({ssp.system_stream for ssp in partitions}))

    def partition_count(self, stream: SystemStream) -> int:
        """The number of partitions of a stream. Raises UnknownStreamError."""
        return len(self.metadata([stream])[stream])

    def glance(self, partitions: Iterable[SystemStreamPartition]) -> StreamsMetadata:
        """``metadata_of`` partitions that were there, for a snapshot of their readers: that must not hold up
        what it shows. Where the system does not answer within moments, StreamSystemError."""
        return self.metadata_of(partitions)

    @abstractmethod
    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        """Create a stream, durably; False where it is there already with as many partitions. Raises
        StreamExistsError where with others."""

    @abstractmethod
    def compare(self, offset: str, other: str) -> int | None:
        """-1, 0 or 1: how ``offset`` stands to ``other`` in one partition; None where they cannot be
        compared."""

    @abstractmethod
    def after(self, offset: str) -> str:
        """The offset that follows ``offset``: where to go on after having processed it."""

    def identity(self, ssp: SystemStreamPartition, position: str) -> str | None:
        """The identity of a partition, which differs from that of any later one under its name. Examples are
        a stream that was deleted and created again, and a file that replaces another one. Checkpoints
        remember it, so that their offsets are not used in the wrong one.

        It stays the same whatever is appended, and whatever retention and compaction remove. ``position``:
        the first offset that was not processed; what stands there and behind it must not matter. Asked for
        after the stream's ``metadata``. None: not known."""
        return None

    def grow(self, stream: SystemStream, partitions: int) -> None:
        """Give a stream so many partitions, durably; what is there stays as it is, and nothing happens where
        it has as many or more.

        A consumer or producer that has the stream open goes on with the partitions that it knows. Raises
        UnknownStreamError; a system that cannot raises StreamSystemError."""
        raise StreamSystemError(
            f"{stream}: partitions cannot be added to a stream of this kind of system by streambench"
        )

    def streams(self) -> list[SystemStream]:
        """All streams of the system, sorted. Systems that do not know them return nothing."""
        return []

    def delete(self, stream: SystemStream) -> None:
        """Delete a stream with all it holds. Raises UnknownStreamError; a system that cannot raises
        StreamSystemError."""
        raise StreamSystemError(f"{stream}: this kind of system cannot delete streams")

    def compacted_to(self, ssp: SystemStreamPartition) -> str | None:
        """The first offset of a partition that compaction has not looked at. Before it, only the last message
        of each key is sure to be there. None: nothing was compacted, or the system does not know."""
        return None

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections; may be called more than once."""


class SystemFactory(ABC):
    """Makes the parts of a system from its configuration (the keys below ``systems.<system>.``)."""

    keys: ClassVar[frozenset[str] | None] = None
    """The keys below ``systems.<system>.`` that this kind of system knows, apart from ``samza.*`` and
    ``streams.*``; an unknown one is reported with a suggestion. None: it checks them itself."""

    settings: ClassVar[tuple[Key, ...]] = ()
    """The keys of these that ``streambench keys`` lists."""

    # The abilities of a kind of system, beside the protocols of ``capabilities``. A derived class declares
    # them, and ``systems.abilities_of`` finds them by the name of a system.

    in_process: ClassVar[bool] = False
    """True where streams exist in the memory of this process only. No other process reads them, and their
    messages can be any objects."""

    is_local: ClassVar[bool] = False
    """True where metadata is read from memory or a disk, at once. Magics then look for a stream that a job
    names before the job is started."""

    holds_changelogs: ClassVar[bool] = True
    """True where a stream can be a changelog: it keeps keys, and its messages can be read again."""

    keeps_headers: ClassVar[bool] = True
    """True where a message keeps its headers. Dead letters need it, which have their reasons there."""

    consecutive_offsets: ClassVar[bool] = False
    """True where offsets are whole numbers without gaps, but for those that compaction makes. The offset
    behind n messages is then known without reading them."""

    portable_settings: ClassVar[bool] = False
    """True where the settings of a stream name no place, such as an address or a file. A stream of another
    name, as a backfill writes, is then created with the same settings."""

    creates_path: ClassVar[bool] = False
    """True where ``systems.<s>.path`` is a directory that is created where it is missing."""

    listens: ClassVar[bool] = False
    """True where an input is received at an address of the job. Messages are sent to that address, and not to
    the stream by its name."""

    settings_unconfirmed: ClassVar[Mapping[str, str] | None] = None
    """None where a producer's ``flush`` waits until messages are durable, or processed. Else the settings of
    a stream with which it waits for no receiver: what is sent by hand is sent with these."""

    @property
    def creates_streams(self) -> bool:
        """True where a missing stream is created with ``streambench streams create``.

        False where others make the streams, or the configuration does: to create one would hide that
        something else is wrong."""
        return True

    @abstractmethod
    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemConsumer:
        """A new consumer. Raises ConfigError."""

    @abstractmethod
    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemProducer:
        """A new producer. Raises ConfigError."""

    @abstractmethod
    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemAdmin:
        """A new admin. Raises ConfigError. One that takes no metrics is called without."""
