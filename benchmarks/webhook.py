"""A webhook against a bare uvicorn and starlette application that takes the same requests, by the CPU time of
this process; the sender is another one, over many connections.

The bare application reads the body, looks whether it is JSON, and answers: it keeps nothing, so that there is
nothing it would have to wait for.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import streambench as sb
from streambench.container.container import Container
from streambench.metrics.registry import MetricsRegistry
from streambench.system.webhook.consumer import WebhookConsumer
from streambench.system.webhook.settings import WebhookSettings

from .container import in_turns
from .report import Figure

_HOST = "127.0.0.1"
_SSP = sb.SystemStreamPartition("bench", "in", 0)
_CONNECTIONS = 50
_SHARE = 100  # a request costs about a hundred times as much as a message of a log
_runs = itertools.count()


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of the bare application and ours."""
    count //= _SHARE
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    peer = spawning.Process(target=_peer, args=(count, theirs), daemon=True)
    peer.start()
    runs: dict[str, Callable[[], float]] = {
        "bare": lambda: _bare(ours),
        "consumer": lambda: _consumer(count, ours),
        "job": lambda: _job(count, directory, ours, {}),
        "landed": lambda: _job(count, directory, ours, {"systems.bench.samza.landing": "kept"}),
    }
    best = in_turns(runs, rounds, count)
    ours.send(None)
    peer.join()
    kinds = (
        ("consumer", "consumer alone"),
        ("job", "in a job, durable by its commit"),
        ("landed", "in a job, landed"),
    )
    for job, what in kinds:
        note = f"{best[job] / 1000:.0f} us a request, bare {best['bare'] / 1000:.0f}"
        yield Figure(
            f"webhook: {what} / bare uvicorn and starlette", best["bare"] / best[job], "x", note=note
        )


def _config(directory: Path, more: dict[str, Any]) -> sb.Config:
    number = next(_runs)
    return sb.Config({
        "job.name": f"bench-{number}", "task.inputs": "bench.in", "task.checkpoint.system": "kept",
        "systems.kept.samza.factory": "log", "systems.kept.path": directory / f"kept-{number}",
        "systems.bench.samza.factory": "webhook", "systems.bench.port": 0, **more,
    })  # fmt: skip


def _process(
    envelope: sb.IncomingMessageEnvelope, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator
) -> None:
    pass


def _job(count: int, directory: Path, peer: Connection[Any, Any], more: dict[str, Any]) -> float:
    ports: list[int] = []
    listened = WebhookConsumer.start

    def start(consumer: WebhookConsumer) -> None:
        listened(consumer)
        ports.append(consumer.port)

    WebhookConsumer.start = start  # type: ignore[method-assign]
    try:
        container = Container(_config(directory, more), _process)
        container.start()
        while not ports:
            time.sleep(0.001)
    finally:
        WebhookConsumer.start = listened  # type: ignore[method-assign]
    peer.send(ports[0])
    began = time.process_time()
    container.run(lambda: peer.poll())
    seconds = time.process_time() - began
    assert peer.recv() == count
    container.stop()
    return seconds


def _consumer(count: int, peer: Connection[Any, Any]) -> float:
    consumer = WebhookConsumer("bench", WebhookSettings("bench", _config(Path(), {})), MetricsRegistry())
    consumer.register(_SSP, "0")
    consumer.start()
    peer.send(consumer.port)
    began = time.process_time()
    while not peer.poll():
        polled = consumer.poll({_SSP: 1000}, 100)
        if polled:
            consumer.acknowledge({_SSP: polled[-1].offset})
    seconds = time.process_time() - began
    assert peer.recv() == count
    consumer.stop()
    return seconds


def _bare(peer: Connection[Any, Any]) -> float:
    async def take(request: Request) -> JSONResponse:
        orjson.loads(await request.body())
        return JSONResponse({"messages": 1})

    app = Starlette(routes=[Route("/in", take, methods=["POST"])])
    config = uvicorn.Config(
        app,
        port=0,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        access_log=False,
        log_level="error",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.001)
    peer.send(server.servers[0].sockets[0].getsockname()[1])
    began = time.process_time()
    peer.recv()
    seconds = time.process_time() - began
    server.should_exit = True
    thread.join()
    return seconds


def _peer(count: int, bench: Connection[Any, Any]) -> None:
    """Another process: posts to each port that it gets."""
    while (port := bench.recv()) is not None:
        bench.send(asyncio.run(_post(count, port)))


async def _post(count: int, port: int) -> int:
    body = orjson.dumps({"n": 12345, "user": "user 17", "what": "x" * 80})
    request = (
        b"POST /in HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    left = iter(range(count))

    async def connection() -> int:
        reader, writer = await asyncio.open_connection(_HOST, port)
        taken = 0
        with closing(writer):
            for _ in left:
                writer.write(request)
                head = await reader.readuntil(b"}")
                assert head.startswith(b"HTTP/1.1 200 "), head
                taken += 1
        return taken

    return sum(await asyncio.gather(*(connection() for _ in range(_CONNECTIONS))))
