"""Silent connections, more than a process may have files: honest senders get through, and the job goes on."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import CHECKOUT
from tests.surroundings import SOAK

FILES = 1024 if SOAK else 200
SILENT = 5000 if SOAK else 400
LASTS_S = 60 if SOAK else 0
POSTS = 20 if SOAK else 5
WITHIN_S = 8.0  # a silent connection may stay longer: header.timeout.ms
MIB = 1 << 20

TASK = """\
import streambench as sb

class Echo(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), envelope.message))
"""

COMMON = {
    "job.name": "flooded", "task.class": "task.py:Echo", "task.inputs": "in.s", "task.commit.ms": "50",
    "systems.log.samza.factory": "log", "systems.log.path": "log", "systems.in.samza.msg.serde": "string",
    "systems.log.samza.msg.serde": "string",
}  # fmt: skip
KINDS = {
    "webhook": {
        "systems.in.samza.factory": "webhook",
        "systems.in.port": "{port}",
        "systems.in.streams.s.format": "raw",
    },
    "https": {
        "systems.in.samza.factory": "webhook",
        "systems.in.port": "{port}",
        "systems.in.streams.s.format": "raw",
        "systems.in.certificate": "cert.pem",
    },
    "tcp": {"systems.in.samza.factory": "tcp", "systems.in.streams.s.listen": "127.0.0.1:{port}"},
}


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """The flood is of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, SILENT + 500)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def post(kind: str, port: int, directory: Path) -> bool:
    """Send one message as an honest sender does, again where it is refused; True once it is safe."""
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as sock,
        ):
            if kind == "tcp":
                sock.sendall(b"honest\n")
                if sock.recv(10).startswith(b"1"):
                    return True
                continue
            way: socket.socket = sock
            if kind == "https":
                import ssl

                context = ssl.create_default_context(cafile=str(directory / "cert.pem"))
                way = context.wrap_socket(sock, server_hostname="localhost")
            way.sendall(b"POST /s HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\nhonest")
            if b" 200 " in way.recv(100):
                return True
    return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_silent_connections_do_not_keep_honest_senders_out(tmp_path: Path, kind: str) -> None:
    port = free_port()
    if kind == "https":
        command = (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
            "subjectAltName=DNS:localhost"
        )
        made = subprocess.run(
            [*command.split(), "-keyout", "key.pem", "-out", "cert.pem"],
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        assert made.returncode == 0
        (tmp_path / "both.pem").write_text(
            (tmp_path / "cert.pem").read_text() + (tmp_path / "key.pem").read_text()
        )
    settings = {**COMMON, **KINDS[kind]}
    text = "".join(f"{key}={value.format(port=port)}\n" for key, value in settings.items()).replace(
        "=cert.pem", "=both.pem"
    )
    (tmp_path / "job.properties").write_text(text)
    (tmp_path / "task.py").write_text(TASK)
    command = f"ulimit -n {FILES} && exec {sys.executable} -m streambench run job.properties -q"
    job = subprocess.Popen(
        ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}
    )
    silent: list[socket.socket] = []
    try:
        while not post(kind, port, tmp_path):
            assert job.poll() is None
        process = psutil.Process(job.pid)
        before = process.memory_info().rss
        sent, slowest, files = 1, 0.0, 0
        began = time.monotonic()
        while len(silent) < SILENT or time.monotonic() - began < LASTS_S:
            for _ in range(min(SILENT // POSTS, SILENT - len(silent))):
                made_ = socket.socket()
                made_.setblocking(False)
                made_.connect_ex(("127.0.0.1", port))
                silent.append(made_)
            asked = time.monotonic()
            assert post(kind, port, tmp_path), (
                f"an honest sender was kept out, with {len(silent)} silent connections"
            )
            slowest = max(slowest, time.monotonic() - asked)
            files = max(files, process.num_fds())
            sent += 1
        grown = process.memory_info().rss - before
        print(
            f"{kind}: {len(silent)} silent connections, {files} files of {FILES}, {slowest:.2f} s at most, "
            f"{grown / MIB:.0f} MiB more"
        )
        assert files < FILES
        assert grown < 100 * MIB
        assert job.poll() is None
        job.terminate()
        assert job.wait() == 0
    finally:
        for each in silent:
            each.close()
        job.kill()
        job.wait()
