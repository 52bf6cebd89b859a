"""Which RabbitMQ is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streambench.errors import StreambenchError
from streambench.testing.rabbitmq import PROGRAM, RabbitServer, find_server
from tests.conftest import CHECKOUT


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
    monkeypatch.setattr("streambench.testing.rabbitmq._is_program", lambda path: False)
    with pytest.raises(StreambenchError, match=r"no RabbitMQ here.*make rabbitmq.*apt install rabbitmq-server"):
        find_server()


def test_make_and_python_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM, raising=False)
    told = subprocess.run([CHECKOUT / "tools" / "rabbitmq.sh", "find"], capture_output=True, text=True, check=False)
    if told.returncode == 0:
        assert find_server() == told.stdout.strip()
    else:
        with pytest.raises(StreambenchError):
            find_server()
