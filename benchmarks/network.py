"""TCP against bare loops over sockets that do the same, by the CPU time of this process; the sender and
the receiver of the output run in another one.

The bare loops take connections, split what comes into lines, and report to the sender at the end how many
they took. One is written with sockets, one with asyncio (a coroutine that awaits each line, which is how one
would begin).
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson

import streambench as sb
from streambench.container.container import Container
from streambench.metrics.registry import MetricsRegistry
from streambench.system.net import TcpSystemFactory

from .container import in_turns
from .data import messages
from .report import Figure
from .tasks import SKIPPED, JsonCount

_HOST = "127.0.0.1"
_SSP = sb.SystemStreamPartition("bench", "in", 0)
_AT_ONCE = 256 << 10
_ROOM = 2500  # as a container asks for
_runs = itertools.count()

Handle = Callable[[bytes], None]


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of the bare loops and ours."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    peer = spawning.Process(target=_peer, args=(count, theirs), daemon=True)
    peer.start()
    sink: int = ours.recv()
    runs: dict[str, Callable[[], float]] = {
        "bare consumer": lambda: _bare(_sockets, count, ours, None),
        "asyncio consumer": lambda: _bare(_asyncio, count, ours, None),
        "consumer": lambda: _consumer(count, ours),
        "bare": lambda: _bare(_sockets, count, ours, sink),
        "asyncio": lambda: _bare(_asyncio, count, ours, sink),
        "job": lambda: _job(count, directory, ours, sink),
    }
    best = in_turns(runs, rounds, count)
    ours.send(None)
    peer.join()
    for what, job, aim in (("consumer alone", "consumer", 0.9), ("in -> task -> out", "job", 0.7)):
        sockets, coroutine = (
            f"{'bare' if job == 'job' else 'bare consumer'}",
            f"{'asyncio' if job == 'job' else 'asyncio consumer'}",
        )
        note = f"{best[job]:.0f} ns, bare {best[sockets]:.0f}, asyncio {best[coroutine]:.0f}"
        yield Figure(f"tcp: {what} / bare asyncio loop", best[coroutine] / best[job], "x", aim=aim, note=note)
        yield Figure(f"tcp: {what} / bare socket loop", best[sockets] / best[job], "x")


# Ours


def _config(directory: Path, sink: int) -> sb.Config:
    return sb.Config({
        "job.name": f"bench-{next(_runs)}", "task.inputs": "bench.in", "task.checkpoint.system": "kept",
        "systems.kept.samza.factory": "log", "systems.kept.path": directory / "kept",
        "systems.bench.samza.factory": "tcp", "systems.bench.streams.in.listen": f"{_HOST}:0",
        "systems.bench.streams.out.connect": f"{_HOST}:{sink}",
    })  # fmt: skip


def _job(count: int, directory: Path, peer: Connection[Any, Any], sink: int) -> float:
    container = Container(_config(directory, sink), JsonCount)
    container.start()
    peer.send(int(container.metrics.gauge("bench-in-0-port", "tcp").read()))
    began = time.process_time()
    container.run(count)
    container.commit()
    seconds = time.process_time() - began
    container.stop()
    assert peer.recv() == count
    return seconds


def _consumer(count: int, peer: Connection[Any, Any]) -> float:
    consumer = TcpSystemFactory().get_consumer(
        "bench", sb.Config({"systems.bench.streams.in.listen": f"{_HOST}:0"}), MetricsRegistry()
    )
    consumer.register(_SSP, "0")
    consumer.start()
    peer.send(consumer.addresses[_SSP].port)
    began, taken = time.process_time(), 0
    while taken < count:
        for chunk in consumer.poll_chunks({_SSP: _ROOM}, 100):
            taken += len(chunk)
    consumer.acknowledge({_SSP: str(count - 1)})
    seconds = time.process_time() - began
    consumer.stop()
    assert peer.recv() == count
    return seconds


# The bare loops


def _bare(
    loop: Callable[[socket.socket, Handle | None, int], None],
    count: int,
    peer: Connection[Any, Any],
    sink: int | None,
) -> float:
    """Seconds of CPU for a loop that takes what is sent, and with a ``sink`` does what JsonCount does."""
    with socket.create_server((_HOST, 0)) as server:
        out = None if sink is None else _Out(sink)
        peer.send(server.getsockname()[1])
        began = time.process_time()
        loop(server, None if out is None else out.handle, count)
        if out is not None:
            out.flush()
        seconds = time.process_time() - began
    assert peer.recv() == count
    return seconds


class _Out:
    """Counts as JsonCount does, and sends a thousand messages at a time."""

    def __init__(self, sink: int) -> None:
        self._sock = socket.create_connection((_HOST, sink))
        self._counts: dict[str, int] = {}
        self._waiting: list[bytes] = []
        self._sent = 0

    def handle(self, message: bytes) -> None:
        row = orjson.loads(message)
        if row["n"] == SKIPPED:
            return
        user = row["user"]
        count = self._counts[user] = self._counts.get(user, 0) + 1
        self._waiting.append(orjson.dumps({"user": user, "count": count}))
        if len(self._waiting) >= 1000:
            self._send()

    def _send(self) -> None:
        self._sent += len(self._waiting)
        self._sock.sendall(b"\n".join(self._waiting) + b"\n")
        self._waiting.clear()

    def flush(self) -> None:
        """Return when the sink has acknowledged everything."""
        self._send()
        said = b"\n"
        while not said.endswith(b"\n%d\n" % self._sent):
            said = said[-20:] + self._sock.recv(_AT_ONCE)
        self._sock.close()


def _sockets(server: socket.socket, handle: Handle | None, count: int) -> None:
    connection, _ = server.accept()
    rest, taken = b"", 0
    with connection:
        while taken < count:
            lines = (rest + connection.recv(_AT_ONCE)).split(b"\n")
            rest = lines.pop()
            taken += len(lines)
            if handle is not None:
                for line in lines:
                    handle(line)
        connection.sendall(b"%d\n" % taken)


def _asyncio(server: socket.socket, handle: Handle | None, count: int) -> None:
    async def take() -> None:
        done = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken = 0
            while taken < count:
                line = await reader.readline()
                taken += 1
                if handle is not None:
                    handle(line)
            writer.write(b"%d\n" % taken)
            await writer.drain()
            writer.close()
            done.set()

        async with await asyncio.start_server(serve, sock=server, limit=_AT_ONCE):
            await done.wait()

    asyncio.run(take())


# The other process


def _peer(count: int, pipe: Connection[Any, Any]) -> None:
    """Sends all messages to each port that it gets, says how many were acknowledged, and acknowledges what
    is sent to it."""
    data = b"\n".join(messages(count).all) + b"\n"
    sink = socket.create_server((_HOST, 0))
    threading.Thread(target=_take_all, args=(sink,), daemon=True).start()
    pipe.send(sink.getsockname()[1])
    while (port := pipe.recv()) is not None:
        with socket.create_connection((_HOST, port)) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            said = b""
            while part := connection.recv(_AT_ONCE):
                said = said[-100:] + part
            pipe.send(int(said.split()[-1]))


def _take_all(sink: socket.socket) -> None:
    while True:
        connection, _ = sink.accept()
        taken = 0
        with connection, suppress(OSError):
            while data := connection.recv(_AT_ONCE):
                taken += data.count(b"\n")
                connection.sendall(b"%d\n" % taken)
