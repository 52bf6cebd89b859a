"""Senders that are many, slow, endless or mad: served or refused, never a crash, and memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.surroundings import SOAK
from tests.system.webhook.listening import Listener

AT_ONCE = 1_000
ROUNDS = 20 if SOAK else 1
MIB = 1 << 20

SERVER = """\
import sys
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.system.systems import Systems

config = Config(dict(line.split("=") for line in sys.argv[1:]))
consumer = Systems(config).consumer("hook", MetricsRegistry())
ssp = SystemStreamPartition("hook", "events", 0)
consumer.register(ssp, "0")
consumer.start()
print(consumer.port, flush=True)
# Whoever is told "hold" acknowledges nothing.
holds = False
while True:
    polled = consumer.poll({ssp: 100}, 20)
    if polled and polled[-1].message == b'"hold"':
        holds = True
    if polled and not holds:
        consumer.acknowledge({ssp: polled[-1].offset})
"""


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    """Connections are files, and a process may often have 1,024 of them only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * AT_ONCE
    resource.setrlimit(
        resource.RLIMIT_NOFILE,
        (max(soft, wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)), hard),
    )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def server(**keys: object) -> Iterator[tuple[psutil.Process, int]]:
    """A consumer in a process of its own, and its port."""
    values = {"samza.factory": "webhook", "port": 0, "streams.events.path": "/events"}
    values |= {name.replace("_", "."): value for name, value in keys.items()}  # type: ignore[dict-item]
    arguments = [f"systems.hook.{name}={value}" for name, value in values.items()]
    process = subprocess.Popen([sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield psutil.Process(process.pid), int(process.stdout.readline())
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def request(body: bytes, head: bytes = b"") -> bytes:
    return b"POST /events HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), head, body)


async def exchange(port: int, *pieces: bytes, patience: float = 60) -> int:
    """The status of the answer to what is sent on a new connection; 0 where it ends without one."""
    status, writer = 0, None
    with contextlib.suppress(ConnectionError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
    if writer is not None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.timeout(patience):
                line = await reader.readline()
            status = int(line.split()[1]) if line else 0
        writer.close()
    return status


async def until_taken(port: int, body: bytes, statuses: Counter[int]) -> None:
    """As a good sender does: again and again until it is taken."""
    while (status := await exchange(port, request(body))) != 200:
        statuses[status] += 1
        await asyncio.sleep(0.05)
    statuses[200] += 1


def test_a_thousand_connections_at_once_are_served_or_refused() -> None:
    async def all_at_once(port: int) -> Counter[int]:
        statuses: Counter[int] = Counter()
        await asyncio.gather(*(until_taken(port, b'"%d"' % number, statuses) for number in range(AT_ONCE)))
        return statuses

    with server(connections_max=300, pending_messages=200) as (process, port):
        assert asyncio.run(exchange(port, request(b"1"))) == 200
        before = process.memory_info().rss
        for _ in range(ROUNDS):
            statuses = asyncio.run(all_at_once(port))
            assert statuses[200] == AT_ONCE
            assert set(statuses) <= {200, 503, 0}
        grown = process.memory_info().rss - before
        print(f"{dict(statuses)}, {grown / MIB:.0f} MiB more")
        assert grown < 100 * MIB


def test_what_cannot_become_durable_does_not_fill_the_memory() -> None:
    body = b'"%b"' % (b"a" * MIB)

    async def flood(port: int) -> Counter[int]:
        # Those that are taken wait, until a time-out of ours.
        asking = [asyncio.ensure_future(exchange(port, request(body))) for _ in range(200)]
        await asyncio.wait(asking, timeout=60, return_when=asyncio.ALL_COMPLETED)
        return Counter(each.result() for each in asking)

    with server(pending_bytes=16 * MIB, max_body_bytes=2 * MIB, acknowledge_timeout_ms=500) as (
        process,
        port,
    ):
        assert asyncio.run(exchange(port, request(b'"hold"'))) == 503
        before = process.memory_info().rss
        for _ in range(ROUNDS):
            statuses = asyncio.run(flood(port))
            assert set(statuses) <= {503, 0}
        grown = process.memory_info().rss - before
        print(f"{dict(statuses)}, {grown / MIB:.0f} MiB more")
        assert grown < 120 * MIB  # of 200 MiB, and more under SOAK
        assert asyncio.run(exchange(port, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")) == 200


def test_endless_bodies_are_refused_without_being_kept() -> None:
    chunk = b"10000\r\n%b\r\n" % (b"a" * 65536)

    async def endless(port: int) -> int:
        head = b"POST /events HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        return await exchange(port, head, *([chunk] * 64), b"0\r\n\r\n")

    async def all_at_once(port: int) -> Counter[int]:
        return Counter(await asyncio.gather(*(endless(port) for _ in range(50))))

    with server(max_body_bytes=100_000) as (process, port):
        assert asyncio.run(exchange(port, request(b"1"))) == 200
        before = process.memory_info().rss
        for _ in range(ROUNDS):
            statuses = asyncio.run(all_at_once(port))
            assert set(statuses) == {413}
        grown = process.memory_info().rss - before
        print(f"{dict(statuses)}, {grown / MIB:.0f} MiB more")
        assert grown < 60 * MIB
        assert asyncio.run(exchange(port, request(b"1"))) == 200


def test_who_is_slow_is_shown_the_door_while_others_are_served() -> None:
    async def trickle(port: int, what: bytes, first: bytes = b"") -> int:
        """One byte after the other, as long as the connection stands."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        answer = asyncio.ensure_future(reader.readline())
        line = b""
        with contextlib.suppress(ConnectionError):
            for at in range(len(what)):
                writer.write(what[at : at + 1])
                await writer.drain()
                done, _ = await asyncio.wait([answer], timeout=0.02)
                if done:
                    break
        with contextlib.suppress(ConnectionError):
            line = await answer
        writer.close()
        return int(line.split()[1]) if line else 0

    async def all_together(port: int) -> tuple[Counter[int], Counter[int]]:
        head = b"POST /events HTTP/1.1\r\nhost: x\r\n"
        slow = asyncio.gather(
            *(trickle(port, b"x: y\r\n" * 9_999, head) for _ in range(60)),
            *(trickle(port, b" " * 9_999, head + b"content-length: 9999\r\n\r\n") for _ in range(60)),
            *(exchange(port, request(b" " * 100)[:-50]) for _ in range(30)),
            *(exchange(port) for _ in range(30)),
        )
        good: Counter[int] = Counter()
        while not slow.done():
            await until_taken(port, b"1", good)
        return Counter(await slow), good

    with Listener({"header.timeout.ms": 300, "body.timeout.ms": 300, "connections.max": 250}) as listener:
        slow, good = asyncio.run(all_together(listener.consumer.port))
        # Who goes on sending to a connection that is closed may miss what it was told.
        assert slow[408] + slow[0] == 180 and slow[408] >= 100
        assert good[200] > 0
        assert listener.metrics.snapshot()["webhook.hook-bytes-pending"] == 0


PIECES = [
    request(b"1"),
    b"POST /events HTTP/1.1\r\n",
    b"transfer-encoding: chunked\r\n",
    b"content-length: 9\r\n",
    b"\r\n",
    b"0\r\n\r\n",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1, max_size=200) | st.sampled_from(PIECES), max_size=5))
def test_whatever_comes_is_answered_or_closed(standing: Listener, pieces: list[bytes]) -> None:
    async def send() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", standing.consumer.port)
        with contextlib.suppress(OSError):
            for piece in pieces:
                writer.write(piece)
            writer.write_eof()
            await reader.read()
        writer.close()

    asyncio.run(send())
    assert standing.post(b"1").status_code == 200


@pytest.fixture(scope="module")
def standing() -> Iterator[Listener]:
    with Listener({"header.timeout.ms": 1_000}) as listener:
        yield listener


def test_long_heads_are_refused(standing: Listener) -> None:
    head = b"x: " + b"a" * MIB + b"\r\n"
    assert asyncio.run(exchange(standing.consumer.port, request(b"1", head))) == 400
    assert standing.post(b"1").status_code == 200
