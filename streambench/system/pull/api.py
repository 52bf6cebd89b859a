"""The contract of a simple plug-in: one method reads a partition, one writes.

A system that only knows "give me the next message" needs no SystemConsumer of its own. It implements the two
classes here, in bytes, without threads, queues or back-pressure. A ``PullSystemFactory`` makes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from msgspec import Struct

from streambench.errors import StreamSystemError


class StreamMessage(Struct, frozen=True):
    """A message as a StreamConsumer hands it over.

    ``message``: its bytes. ``offset_id``: its place in the partition as text, unique there; reading can begin
    again at it. Any text will do, but ``oldest`` and what begins with ``after:``. ``key`` is bytes too, and
    ``timestamp`` in milliseconds since 1970 (UTC); both are None where the system keeps none. A consumer may
    hand over objects of its own with ``message`` and ``offset_id``: these two are all that is asked for.
    """

    message: bytes
    offset_id: str
    key: bytes | None = None
    timestamp: int | None = None


class StreamConsumer(ABC):
    """Reads one partition, from one offset on.

    A consumer is made for a partition and the first offset that is wanted there (None: the first message
    there is). From then on it keeps its own position. Each call of ``get_message`` returns the next message,
    in order, each once, and it does not learn what became of them. It is made, called and closed on one
    thread, which is its alone. A call may wait for a network, but not for long, because a stop has to wait
    for it.

    After a crash the same partition is read again by a new consumer. It begins with the last message whose
    offset was committed, which is then skipped. Where offsets are numbers, it begins with the number after
    it. A consumer that cannot begin at an offset, because what was there is gone, raises OffsetError when it
    is made. It never begins elsewhere silently.
    """

    @abstractmethod
    def get_message(self) -> StreamMessage | None:
        """The next message, or None when there is nothing now.

        Where it raises, the partition cannot be read any more. The container stops, without a commit of what
        it was doing, with an error that names the partition.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections. What was handed over stays valid."""


class StreamProducer(ABC):
    """Writes to one stream, and spreads the messages over its partitions itself.

    All calls are made on the container's thread. ``send`` may keep messages back; only when ``commit`` has
    returned are they durable, and only then is the input that led to them committed. A process may die
    between the two. What was sent and not committed may be there or not, and is sent again after the restart
    (at least once).
    """

    @abstractmethod
    def send(self, message: bytes, key: bytes | None = None) -> None:
        """Take a message. Messages with equal keys belong in one partition, in the order sent. Raises
        MessageTooLargeError, UnknownStreamError."""

    def send_to(self, partition: int, message: bytes, key: bytes | None = None) -> None:
        """Take a message for one partition. Override it where a partition can be chosen: it is then called
        instead of ``send``. Streams of several partitions can then be changelogs, and get messages that name
        their partition or a partition key."""
        raise StreamSystemError(
            f"a {type(self).__name__} cannot choose the partition of a message: give it a method send_to"
        )

    @abstractmethod
    def commit(self) -> None:
        """Return when everything sent so far is durable; raise a StreamSystemError where any of it failed."""

    @abstractmethod
    def close(self) -> None:
        """Close connections without a commit; may be called more than once."""
