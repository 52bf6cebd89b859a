"""A proxy that stands between the clients of a Kafka broker and the broker, and does to their requests and
answers what networks do.

The broker advertises the proxy's port, so that all of a client's connections come through here. One ``Fault``
at a time is planned: it says which requests it is for, and what happens to them.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

PRODUCE, FETCH, LIST_OFFSETS, ADD_PARTITIONS, END_TRANSACTION = 0, 1, 2, 24, 26

_HOST = "127.0.0.1"

What = Literal[
    "cut before",  # the broker never sees it, and the connection is reset
    "cut after",  # it is done, and the connection is reset instead of an answer
    "no answer",  # it is done, and there is never an answer
    "late answer",  # it is done, and the answer comes ``seconds`` later
    "late",  # it reaches the broker ``seconds`` later
    "refuse",  # the broker cannot be reached at all for ``seconds``
    "hole",  # for ``seconds`` nothing passes any more, either way, on any connection, and none is closed
    "dead",
    # nothing passes any more, either way, on the connections that there are now, and none is ever closed;
    # new ones are fine
    "error",  # the broker never sees it; the answer is the error ``code`` (of Produce only)
    "wait",  # it waits until ``go_on`` is called
]


@dataclass
class Fault:
    """What happens to requests of one kind.

    The first ``skip`` that fit pass, the next ``times`` are hit; where ``seconds`` are given to "error" or
    "no answer", so is every one that comes within that time of the first. ``of``: only requests that hold
    these bytes (the name of a topic, say).
    """

    api: int
    what: What
    seconds: float = 0.0
    code: int = 0
    skip: int = 0
    times: int = 1
    of: bytes = b""
    hits: int = field(default=0, init=False)
    request: bytes = field(default=b"", init=False)  # the first that was hit
    reached: threading.Event = field(default_factory=threading.Event, init=False)
    _went_on: threading.Event = field(default_factory=threading.Event, init=False)
    _until: float = field(default=0.0, init=False)

    def fits(self, api: int, request: bytes, now: float) -> bool:
        """Whether this request is hit."""
        if api != self.api or self.of not in request:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        lasting = self.what in ("error", "no answer") and self.seconds > 0
        hit = now < self._until if self.hits and lasting else self.hits < self.times
        if hit:
            self.hits += 1
            self.request = self.request or request
            self._until = self._until or now + self.seconds
            self.reached.set()
        return hit

    def go_on(self) -> None:
        """Let the request that waits pass."""
        self._went_on.set()

    async def gone_on(self) -> None:
        while not self._went_on.is_set():
            await asyncio.sleep(0.005)


class FaultProxy:
    """Listens on ``port`` of 127.0.0.1 for clients of the broker that listens on ``broker``."""

    def __init__(self, port: int, broker: int) -> None:
        self.address = f"{_HOST}:{port}"
        self._port = port
        self._broker = broker
        self._fault: Fault | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._hole_until = 0.0
        self._connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="fault proxy")
        self._thread.start()
        self._do(self._open())

    def plan(self, fault: Fault | None) -> None:
        """What is to happen from now on; None: nothing."""
        self._fault = fault

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, _HOST, self._port, limit=1 << 20)

    async def _end(self) -> None:
        self._shut()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _refuse(self, seconds: float) -> None:
        self._shut()
        await asyncio.sleep(seconds)
        await self._open()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(_HOST, self._broker, limit=1 << 20)
        except OSError:
            to_client.transport.abort()
            return
        connection = _Connection(self, from_client, to_client, from_broker, to_broker)
        writers = {to_client, to_broker}
        self._writers |= writers
        self._connections.add(connection)
        ways = [asyncio.create_task(way) for way in (connection.requests(), connection.answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for writer in writers:
                writer.transport.abort()
            self._writers -= writers
            self._connections.discard(connection)

    def open_hole(self, seconds: float) -> None:
        self._hole_until = self._loop.time() + seconds

    def kill_connections(self) -> None:
        for connection in self._connections:
            connection.dead = True

    async def out_of_hole(self) -> None:
        """Wait as long as nothing may pass."""
        while (left := self._hole_until - self._loop.time()) > 0:
            await asyncio.sleep(left)

    def fault_for(self, api: int, request: bytes) -> Fault | None:
        fault = self._fault
        return fault if fault is not None and fault.fits(api, request, self._loop.time()) else None

    def refuse(self, seconds: float) -> None:
        self._refusing = self._loop.create_task(self._refuse(seconds))


class _Connection:
    """One client's connection, and the one to the broker that belongs to it."""

    def __init__(
        self, proxy: FaultProxy, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader, to_broker: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self._proxy = proxy
        self._from_client, self._to_client = from_client, to_client
        self._from_broker, self._to_broker = from_broker, to_broker
        self._pending: dict[int, Fault] = {}
        self.dead = False

    async def requests(self) -> None:
        """Bring requests to the broker, until one way or the other the connection ends."""
        while True:
            frame = await _frame(self._from_client)
            api, version, number = struct.unpack(">hhi", frame[4:12])
            fault = self._proxy.fault_for(api, frame)
            if fault is not None:
                match fault.what:
                    case "cut before":
                        return
                    case "refuse":
                        self._proxy.refuse(fault.seconds)
                        return
                    case "hole":
                        self._proxy.open_hole(fault.seconds)
                    case "dead":
                        self._proxy.kill_connections()
                    case "late":
                        await asyncio.sleep(fault.seconds)
                    case "wait":
                        await fault.gone_on()
                    case "error":
                        self._to_client.write(_refusal(frame[4:], version, number, fault.code))
                        continue
                    case _:
                        self._pending[number] = fault
            await self._proxy.out_of_hole()
            if self.dead:
                continue
            self._to_broker.write(frame)
            await self._to_broker.drain()

    async def answers(self) -> None:
        while True:
            frame = await _frame(self._from_broker)
            fault = self._pending.pop(struct.unpack(">i", frame[4:8])[0], None)
            if fault is not None:
                if fault.what == "cut after":
                    return
                if fault.what == "no answer":
                    continue
                await asyncio.sleep(fault.seconds)
            await self._proxy.out_of_hole()
            if self.dead:
                continue
            self._to_client.write(frame)
            await self._to_client.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))


def _refusal(request: bytes, version: int, number: int, code: int) -> bytes:
    """The answer to a Produce request that says this of all its partitions."""
    from kafka.protocol.producer import ProduceRequest, ProduceResponse

    asked = ProduceRequest.decode(memoryview(request), version=version, header=True)
    of_topic = ProduceResponse.TopicProduceResponse
    of_partition = of_topic.PartitionProduceResponse
    nothing = {
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": [],
        "error_message": None,
    }
    answer = ProduceResponse(
        responses=[
            of_topic(
                name=topic.name,
                partition_responses=[
                    of_partition(index=each.index, error_code=code, **nothing)
                    for each in topic.partition_data
                ],
            )
            for topic in asked.topic_data
        ],
        throttle_time_ms=0,
    )
    answer.API_VERSION = version
    answer.with_header(number)
    return bytes(answer.encode(header=True, framed=True))
