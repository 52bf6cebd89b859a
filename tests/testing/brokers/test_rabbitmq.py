"""Which RabbitMQ is found; and that one for tests is nobody else's business: it listens on the loopback
alone, leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from streambench.errors import StreambenchError
from streambench.testing.brokers.rabbitmq import PROGRAM, RabbitServer, find_server
from tests.conftest import CHECKOUT, rabbit_server

PATIENCE_S = 60

OWNER = """\
import signal, sys
from pathlib import Path
from streambench.testing.brokers.rabbitmq import RabbitServer

server = RabbitServer(sys.argv[1], Path(sys.argv[2]))
server.start()
print(server.port, flush=True)
signal.pause()
"""


def test_the_one_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "rabbitmq-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv(PROGRAM, str(program))
    assert RabbitServer.installed(tmp_path / "data").program == str(program)


def test_a_name_that_leads_nowhere_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAM, str(tmp_path / "none"))
    with pytest.raises(StreambenchError, match=r"STREAMBENCH_RABBITMQ=.*none is not a program"):
        find_server()


def test_without_one_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM, raising=False)
    monkeypatch.setattr("streambench.testing.brokers.rabbitmq._is_program", lambda path: False)
    with pytest.raises(
        StreambenchError, match=r"no RabbitMQ here.*make rabbitmq.*apt install rabbitmq-server"
    ):
        find_server()


def test_make_and_python_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM, raising=False)
    told = subprocess.run(
        [CHECKOUT / "tools" / "rabbitmq.sh", "find"], capture_output=True, text=True, check=False
    )
    if told.returncode == 0:
        assert find_server() == told.stdout.strip()
    else:
        with pytest.raises(StreambenchError):
            find_server()


def of(directory: Path) -> list[psutil.Process]:
    """The processes that work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(directory)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def listening(processes: list[psutil.Process]) -> set[tuple[str, int]]:
    return {
        each.laddr
        for one in processes
        for each in one.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    }


def test_it_listens_on_the_loopback_alone_and_dies_with_its_owner(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    program = rabbit_server(directory).program
    command = [sys.executable, "-c", OWNER, program, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as owner:
        try:
            assert owner.stdout is not None
            port = int(owner.stdout.readline())
            addresses = listening(of(directory))
            assert ("127.0.0.1", port) in addresses
            assert {host for host, _ in addresses} <= {"127.0.0.1", "::1"}
        finally:  # else the end of the block would wait for it
            owner.kill()
    until = time.monotonic() + PATIENCE_S
    while left := of(directory):
        assert time.monotonic() < until, left
        time.sleep(0.05)
