"""A job with a thousand connections, among them some that mean harm: the others are served, and memory stays
bounded."""

from __future__ import annotations

import os
import random
import resource
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.net.framing import EnvelopeFraming
from tests.conftest import CHECKOUT
from tests.ports import free_ports
from tests.surroundings import SOAK
from tests.system.net.peers import line, said

GOOD = 1_000
HARMFUL = 1_000 if SOAK else 120  # of each kind
MOST = 1_000_000
UNFINISHED = 8_000_000

PROPERTIES = f"""\
job.name=counts
task.class=task.py:Copies
task.inputs=t.in
systems.t.samza.factory=tcp
systems.t.framing=envelope
systems.t.max.message.bytes={MOST}
systems.t.unfinished.bytes={UNFINISHED}
systems.t.max.connections=10000
systems.t.acknowledge.within.ms=50
systems.log.samza.factory=log
systems.log.path=streams
"""

TASK = """\
import streambench as sb


class Copies:
    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"),
                                                  len(envelope.message).to_bytes(4, "big")))
"""


def framed(message: bytes) -> bytes:
    return EnvelopeFraming(SystemStream("t", "in"), 1 << 30).frame(
        OutgoingMessageEnvelope(SystemStream("t", "in"), message), None, message
    )


@contextmanager
def job(directory: Path) -> Iterator[tuple[psutil.Process, int]]:
    """The process of a job and the port that it listens on."""
    port = free_ports(1)
    (directory / "task.py").write_text(TASK)
    (directory / "job.properties").write_text(f"{PROPERTIES}systems.t.streams.in.listen=127.0.0.1:{port}\n")
    command = [sys.executable, "-m", "streambench", "run", "job.properties", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with (directory / "errors.txt").open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
    try:
        yield psutil.Process(process.pid), port
        assert process.poll() is None, (directory / "errors.txt").read_text()
    finally:
        process.kill()
        process.wait()


def connected(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            threading.Event().wait(0.05)


def sent(sock: socket.socket, data: bytes) -> None:
    """As much of it as is taken at once."""
    sock.setblocking(False)
    with suppress(OSError):
        while data:
            data = data[sock.send(data) :]
    sock.settimeout(60)


def served(socks: list[socket.socket], count: int) -> None:
    """Send a message over each connection, and wait until each is told that so many are safe."""
    for number, sock in enumerate(socks):
        sock.sendall(framed(b"%d" % number))
    with selectors.DefaultSelector() as waiting:
        for sock in socks:
            waiting.register(sock, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(60)
            assert ready, f"{len(waiting.get_map())} are not told"
            for key, _ in ready:
                if line(key.fileobj) == b"%d\n" % count:  # type: ignore[arg-type]
                    waiting.unregister(key.fileobj)


def test_a_thousand_are_served_and_those_that_mean_harm_do_none(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, GOOD + 4 * HARMFUL + 500)), hard))
    chance = random.Random(3)
    with job(tmp_path) as (process, port):
        first = connected(port)
        served([first], 1)
        before = process.memory_info().rss
        good = [first, *(connected(port) for _ in range(GOOD - 1))]
        served(good[1:], 1)
        most = process.memory_info().rss

        unfinished, oversized, malformed, silent = (
            [connected(port) for _ in range(HARMFUL)] for _ in range(4)
        )
        for sock in unfinished:
            sent(sock, framed(bytes(MOST - 100))[:-1])
        for sock in oversized:
            sent(sock, (MOST + 1 + chance.randrange(1 << 31)).to_bytes(4, "big") + bytes(2_000_000))
        for sock in malformed:
            junk = chance.randbytes(chance.randint(1, 1000))
            sent(sock, len(junk).to_bytes(4, "big") + junk)
        for sock in malformed[: HARMFUL // 2]:
            sock.shutdown(socket.SHUT_WR)
        for count in (2, 3):
            served(good, count)
            most = max(most, process.memory_info().rss)
        for sock in malformed:
            answer = said(sock)
            assert not answer or answer.startswith(b"error: message 1: a frame is no envelope"), answer
        for sock in oversized:
            answer = said(sock)
            assert not answer or answer.startswith(b"error: message 1: a message of"), answer
        most = max(most, process.memory_info().rss)

        big = connected(port)
        for sock in unfinished:
            sock.close()
        served(good, 4)
        big.sendall(framed(bytes(MOST - 100)))
        assert line(big) == b"1\n"
        for sock in (*good, *oversized, *malformed, *silent, big):
            sock.close()
        most = max(most, process.memory_info().rss)
    # A little for each connection, as much as is allowed for what is unfinished, and what Python keeps for
    # itself.
    allowed = UNFINISHED + HARMFUL * 33_000 + (GOOD + 4 * HARMFUL) * 6_000 + 50_000_000
    assert most - before < allowed < HARMFUL * MOST, (before, most)
    assert "Traceback" not in (tmp_path / "errors.txt").read_text()
