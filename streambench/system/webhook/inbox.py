"""Messages received and not durable yet: from the server's thread to the reader's, and back when it is
acknowledged."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from streambench.errors import StreamSystemError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition


class Received(Struct, gc=False):
    """A message as it came."""

    key: bytes | None
    message: bytes


class ReceivedRequest(Struct, eq=False):
    """The messages of one request. ``size``: their bytes. ``on_done`` is called, by whatever thread
    acknowledges, once all are durable. ``open``: in how many partitions some of them are not acknowledged
    yet."""

    count: int
    size: int
    headers: Mapping[str, bytes] | None
    timestamp: int
    on_done: Callable[[], object]
    open: int = 0
    parts: list[tuple[_Partition, _Part]] = []
    delivered: bool = False
    withdrawn: bool = False


class _Part(Struct, eq=False):
    """The messages of a request for one partition; those before ``taken`` have been delivered."""

    request: ReceivedRequest
    messages: Sequence[Received]
    taken: int = 0


class _Partition:
    """One partition: parts of requests that wait, and, with the offset of their last message, those that
    were delivered."""

    def __init__(self) -> None:
        self.waiting: deque[_Part] = deque()
        self.delivered: deque[tuple[int, ReceivedRequest]] = deque()
        self.next = 0
        self.is_at_head = False


class Inbox:
    """The requests of one consumer, bounded: a message counts until it is acknowledged.

    Offsets are given when messages are delivered, 0, 1, 2... in each partition. All methods may be called
    from any thread.
    """

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self.most_messages = most_messages
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._partitions: dict[SystemStreamPartition, _Partition] = {}
        self._failure: BaseException | None = None
        self.messages = self.bytes = 0
        """The load: messages and bytes not acknowledged, or being received."""

    def open(self, ssps: Iterable[SystemStreamPartition]) -> None:
        """Take messages for these partitions."""
        self._partitions = {ssp: _Partition() for ssp in ssps}

    def reserve(self, size: int) -> bool:
        """Reserve so many bytes, until they are released or their request is durable; False where there is no
        room."""
        with self._lock:
            if self.bytes + size > self._most_bytes:
                return False
            self.bytes += size
            return True

    def release(self, size: int) -> None:
        """The bytes that were reserved are gone."""
        with self._lock:
            self.bytes -= size

    def put(
        self, request: ReceivedRequest, parts: Mapping[SystemStreamPartition, Sequence[Received]]
    ) -> bool:
        """Take all messages of a request, whose bytes are reserved; or none, where there is no room."""
        with self._lock:
            if self.messages + request.count > self.most_messages:
                return False
            self.messages += request.count
            request.open = len(parts)
            for ssp, messages in parts.items():
                partition, part = self._partitions[ssp], _Part(request, messages)
                partition.waiting.append(part)
                request.parts.append((partition, part))
            self._news.notify_all()
            return True

    def withdraw(self, request: ReceivedRequest) -> bool:
        """Take back a request that no sender waits for any more; False where some of it has been delivered
        already (all of it then is)."""
        with self._lock:
            if request.delivered or request.withdrawn:
                return request.withdrawn
            request.withdrawn = True
            self._count_off(request)
            for partition, part in request.parts:
                partition.waiting.remove(part)
            return True

    def take(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        """The next messages of partitions, at most so many of each; waits for the first. Raises what was
        given to ``fail``."""
        until = time.monotonic() + timeout_ms / 1000
        partitions = [(ssp, self._partitions[ssp], at_most) for ssp, at_most in wanted.items() if at_most > 0]
        found: list[IncomingMessageEnvelope] = []
        with self._lock:
            while True:
                if self._failure is not None:
                    raise StreamSystemError(f"the endpoint has ended: {self._failure}") from self._failure
                for ssp, partition, at_most in partitions:
                    if partition.waiting:
                        _take(ssp, partition, at_most, found)
                    partition.is_at_head = not partition.waiting
                left = until - time.monotonic()
                if found or left <= 0:
                    return found
                self._news.wait(left)

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        """True if all of a partition was delivered that was there at the last ``take``."""
        partition = self._partitions.get(ssp)
        return partition is not None and partition.is_at_head

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        """All messages up to these offsets are durable."""
        done: list[ReceivedRequest] = []
        with self._lock:
            for ssp, offset in offsets.items():
                partition = self._partitions.get(ssp)
                last = int(offset)
                while partition is not None and partition.delivered and partition.delivered[0][0] <= last:
                    _, request = partition.delivered.popleft()
                    request.open -= 1
                    if not request.open:
                        self._count_off(request)
                        done.append(request)
        for request in done:
            request.on_done()

    def fail(self, error: BaseException) -> None:
        """Nothing will come any more; ``take`` raises."""
        with self._lock:
            self._failure = error
            self._news.notify_all()

    def _count_off(self, request: ReceivedRequest) -> None:
        self.messages -= request.count
        self.bytes -= request.size


def _take(
    ssp: SystemStreamPartition, partition: _Partition, at_most: int, found: list[IncomingMessageEnvelope]
) -> None:
    while partition.waiting and at_most:
        part = partition.waiting[0]
        request = part.request
        request.delivered = True
        messages = part.messages[part.taken : part.taken + at_most]
        for each in messages:
            found.append(
                IncomingMessageEnvelope(
                    ssp, str(partition.next), each.key, each.message, request.timestamp, request.headers
                )
            )
            partition.next += 1
        at_most -= len(messages)
        part.taken += len(messages)
        if part.taken == len(part.messages):
            partition.waiting.popleft()
            partition.delivered.append((partition.next - 1, request))
