"""The parts of streams: their names, and the messages that go in and out.

The four classes are immutable ``msgspec.Struct``. Making one costs about a quarter of a class with slots, and
hashing an SSP costs nothing after the first time. Both happen once per message. ``gc=False`` keeps the
garbage collector from walking a million waiting messages. It only means that a reference cycle *through an
envelope* would not be collected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from streambench.errors import ConfigError


class SystemStream(Struct, frozen=True, cache_hash=True, order=True, gc=False):
    """A stream of a system, written ``system.stream``; the name of the stream may itself contain dots."""

    system: str
    stream: str

    def __str__(self) -> str:
        return f"{self.system}.{self.stream}"

    def partition(self, number: int) -> SystemStreamPartition:
        """One of its partitions."""
        return SystemStreamPartition(self.system, self.stream, number)

    @classmethod
    def parse(cls, text: str) -> SystemStream:
        """Read ``system.stream``, split at the first dot (as Samza does). Raises ConfigError where there is
        none."""
        system, dot, stream = text.strip().partition(".")
        if not (system and dot and stream):
            raise ConfigError(f"'{text}' is not a stream: write it as system.stream, for example log.clicks")
        return cls(system, stream)


class SystemStreamPartition(Struct, frozen=True, cache_hash=True, order=True, gc=False):
    """One partition of a stream (SSP), written ``system.stream.partition``; ordered by system, stream and
    partition."""

    system: str
    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.system}.{self.stream}.{self.partition}"

    @property
    def system_stream(self) -> SystemStream:
        """The stream that this is a partition of."""
        return SystemStream(self.system, self.stream)

    @classmethod
    def parse(cls, text: str) -> SystemStreamPartition:
        """Read ``system.stream.partition``: the system ends at the first dot, the partition begins after the
        last."""
        head, _, number = text.strip().rpartition(".")
        system, _, stream = head.partition(".")
        if not (system and stream and number.isdecimal()):
            raise ConfigError(
                f"'{text}' is not a partition: write it as system.stream.partition, for example log.clicks.0"
            )
        return cls(system, stream, int(number))


class IncomingMessageEnvelope(Struct, frozen=True, gc=False):
    """A message on its way to a task.

    ``offset`` is text whose order only the system knows. ``timestamp`` is in milliseconds since 1970 (UTC),
    None where the system keeps none. ``headers`` maps names to bytes. ``key`` and ``message`` are bytes, or
    whatever the serde made of them.
    """

    ssp: SystemStreamPartition
    offset: str
    key: Any
    message: Any
    timestamp: int | None = None
    headers: Mapping[str, bytes] | None = None


class OutgoingMessageEnvelope(Struct, frozen=True, gc=False):
    """A message that a task sends.

    Where it goes: ``partition`` if given; else by the hash of ``partition_key``; else by the hash of ``key``
    as serialised; else the partitions take turns. ``timestamp`` is in milliseconds since 1970 (UTC); None
    lets the system put its own.
    """

    system_stream: SystemStream
    message: Any
    key: Any = None
    partition_key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Mapping[str, bytes] | None = None


OLDEST = "oldest"
"""The beginning of a partition, wherever that is: what a system that cannot look it up gives instead of an
offset."""


class PartitionMetadata(Struct, frozen=True):
    """The begin and end of a partition.

    ``oldest``: the first message there is, ``newest``: the last one, ``upcoming``: the offset that the next
    message will get. An empty partition has neither oldest nor newest (None); a system that does not know has
    no upcoming either, and may say ``OLDEST``.
    """

    oldest: str | None
    newest: str | None
    upcoming: str | None


StreamsMetadata = dict[SystemStream, dict[int, PartitionMetadata]]
"""The metadata of streams, by the numbers of their partitions."""
