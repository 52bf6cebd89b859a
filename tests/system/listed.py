"""Simple plug-ins on lists in memory, with offsets of several kinds."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from streambench.config import Config
from streambench.errors import OffsetError
from streambench.model import PartitionMetadata
from streambench.system.pull import PullSystemFactory, StreamConsumer, StreamMessage, StreamProducer

streams: dict[str, list[list[StreamMessage]]] = {}
"""What all systems of this kind hold: per stream and partition."""


class ListConsumer(StreamConsumer):
    def __init__(self, partition: list[StreamMessage], at: int) -> None:
        self.partition = partition
        self.at = at

    def get_message(self) -> StreamMessage | None:
        if self.at >= len(self.partition):
            return None
        self.at += 1
        return self.partition[self.at - 1]

    def close(self) -> None:
        pass


class ListProducer(StreamProducer):
    """Writes to the first partition alone."""

    def __init__(self, factory: Opaque, stream: str) -> None:
        self.factory = factory
        self.stream = stream
        self.pending: list[tuple[int, bytes, bytes | None]] = []

    def send(self, message: bytes, key: bytes | None = None) -> None:
        self.pending.append((0, message, key))

    def commit(self) -> None:
        for partition, message, key in self.pending:
            messages = streams[self.stream][partition]
            messages.append(StreamMessage(message, self.factory.offset(len(messages)), key))
        self.pending.clear()

    def close(self) -> None:
        pass


class ListChoosingProducer(ListProducer):
    def send_to(self, partition: int, message: bytes, key: bytes | None = None) -> None:
        self.pending.append((partition, message, key))


class Opaque(PullSystemFactory):
    """Offsets are hashes."""

    def offset(self, at: int) -> str:
        return hashlib.sha256(b"%d" % at).hexdigest()[:8]

    def index(self, partition: list[StreamMessage], offset: str) -> int:
        for at, message in enumerate(partition):
            if message.offset_id == offset:
                return at
        raise OffsetError(f"{offset} is gone")

    def partitions(self, system: str, stream: str, config: Config) -> int:
        return len(streams.get(stream, ()))

    def consumer(
        self, system: str, stream: str, partition: int, offset: str | None, config: Config
    ) -> StreamConsumer:
        messages = streams[stream][partition]
        return ListConsumer(messages, 0 if offset is None else self.index(messages, offset))

    def producer(self, system: str, stream: str, config: Config) -> StreamProducer:
        return ListProducer(self, stream)


class Bounded(Opaque):
    """An end that can be looked up."""

    def producer(self, system: str, stream: str, config: Config) -> StreamProducer:
        return ListChoosingProducer(self, stream)

    def bounds(self, system: str, stream: str, partition: int, config: Config) -> PartitionMetadata:
        messages = streams[stream][partition]
        return (
            PartitionMetadata(messages[0].offset_id, messages[-1].offset_id, None)
            if messages
            else PartitionMetadata(None, None, None)
        )


class Compared(Bounded):
    """Offsets are letters: a, b, ..., z, za, zb, ... in the order of the alphabet."""

    def offset(self, at: int) -> str:
        return "z" * (at // 25) + chr(ord("a") + at % 25)

    def compare(self, offset: str, other: str) -> int | None:
        return (offset > other) - (offset < other) if (offset + other).isalpha() else None


class Numbered(Bounded):
    """Offsets are the odd numbers."""

    numbered: ClassVar[bool] = True

    def offset(self, at: int) -> str:
        return str(2 * at + 1)

    def index(self, partition: list[StreamMessage], offset: str) -> int:
        return next(
            (at for at, message in enumerate(partition) if int(message.offset_id) >= int(offset)),
            len(partition),
        )

    def create(self, system: str, stream: str, partitions: int, config: Config) -> None:
        streams[stream] = [[] for _ in range(partitions)]

    def streams(self, system: str, config: Config) -> list[str]:
        return list(streams)
