"""TCP with TLS: the same, for those who trust the receiver's certificate."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from streambench.errors import ConfigError, StreamSystemError
from streambench.system.net import TcpSystemFactory
from tests.system.net.peers import SOURCE, config, receiving, send, sending, to
from tests.system.webhook.receiving import certificate

TCP = TcpSystemFactory()


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("certificate"))


def test_messages_of_any_size_come_through_and_are_acknowledged(pem: Path) -> None:
    messages = [b"%d" % number for number in range(5_000)] + [b"x" * 1_000_000, b"last"]
    settings = config(tls__certificate=pem, tls__ca=pem)
    with (
        receiving(TCP, settings) as receiver,
        receiver.at_work() as found,
        sending(TCP, to(receiver, settings)) as producer,
    ):
        send(producer, *messages)
        producer.flush(SOURCE)
        assert found == messages


def test_a_sender_without_tls_and_a_silent_one_are_turned_away(pem: Path) -> None:
    settings = config(tls__certificate=pem, tls__ca=pem, frame__timeout__ms=200)
    with receiving(TCP, settings) as receiver, receiver.connect() as plain, receiver.connect() as silent:
        plain.sendall(b"hello\n")
        receiver.until(lambda: receiver.counted("connections-lost"))
        receiver.until(lambda: receiver.counted("connections-refused-slow"))
        assert receiver.counted("messages-read") == 0
        context = ssl.create_default_context(cafile=str(pem))
        silent.close()
        with (
            receiver.at_work() as found,
            context.wrap_socket(receiver.connect(), server_hostname="127.0.0.1") as sender,
        ):
            sender.sendall(b"hello\n")
            assert sender.recv(100) == b"1\n"
        assert found == [b"hello"]


def test_a_receiver_that_is_not_trusted_is_not_sent_anything(pem: Path, tmp_path: Path) -> None:
    settings = config(tls__certificate=pem, connect__timeout__ms=60_000)
    with receiving(TCP, settings) as receiver, receiver.at_work() as found:
        with sending(
            TCP, to(receiver, settings).with_values({"systems.t.tls.ca": certificate(tmp_path)})
        ) as producer:
            send(producer, b"secret")
            with pytest.raises(StreamSystemError, match="certificate verify failed"):
                producer.flush(SOURCE)
        assert found == []


def test_a_file_that_holds_no_certificate_is_an_error_that_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    for key in ("tls.certificate", "tls.ca"):
        wrong = config(
            **{key.replace(".", "__"): tmp_path / "none.pem"}, streams__lines__connect="127.0.0.1:9"
        )
        reason = pytest.raises(ConfigError, match=r"none\.pem holds no certificate")
        with reason as caught, sending(TCP, wrong) as producer, receiving(TCP, wrong):
            send(producer, b"x")
        assert caught.value.key == f"systems.t.{key}"


def test_a_receiver_that_only_closes_is_tried_until_the_time_is_up(pem: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        settings = config(
            tls__ca=pem, streams__lines__connect=str(mute.getsockname()[1]), connect__timeout__ms=300
        )
        with sending(TCP, settings) as producer:
            send(producer, b"x")
            with pytest.raises(StreamSystemError, match="no receiver"):
                producer.flush(SOURCE)
