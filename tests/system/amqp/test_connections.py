"""Brokers that are not there, refuse, vanish and come back."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.errors import (
    ConfigError,
    MessageTooLargeError,
    SerdeError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.testing.brokers.rabbitmq import RabbitServer, free_ports
from tests.surroundings import missing
from tests.system.amqp.broker import Amqp, wait_for

Make = Callable[..., Amqp]

_HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"
_TUNE, _CLOSE, _CHANNEL_IS_OPEN = b"\x00\x0a\x00\x1e", b"\x00\x0a\x00\x32", b"\x00\x14\x00\x0b"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of somebody who accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"amqp://guest:s3cret@127.0.0.1:{server.getsockname()[1]}/"


def refusals(url: str, **settings: int) -> list[str]:
    """What consumer, producer and admin say of a broker."""
    system = Amqp(url, **{"connect.timeout.ms": 300, **settings})
    said = []
    for ask in (
        system.consumer,
        system.producer,
        lambda: system.systems.admin("q").metadata([system.stream]),
    ):
        with pytest.raises(StreamSystemError) as raised:
            ask()
        said.append(str(raised.value))
    system.close()
    return said


def test_a_broker_that_is_not_there_is_told_at_once_with_the_key() -> None:
    for said in refusals(f"amqp://guest:s3cret@127.0.0.1:{free_ports(1)[0]}/"):
        assert re.search(r"127\.0\.0\.1:\d+ \(systems\.q\.url\) cannot be reached: .*refused", said)
        assert "s3cret" not in said


def test_a_broker_that_says_nothing_is_not_waited_for(silent: str) -> None:
    for said in refusals(silent):
        assert re.search(r"systems\.q\.url\) cannot be reached", said)


def test_a_wrong_password_is_told_without_telling_it(rabbitmq: RabbitServer) -> None:
    for said in refusals(
        rabbitmq.url.replace("guest:guest", "guest:s3cret"), **{"connect.timeout.ms": 5_000}
    ):
        assert "refuses the user or the password" in said
        assert "s3cret" not in said


def test_a_password_by_reference_is_used_and_a_wrong_one_is_not_told(
    rabbitmq: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = rabbitmq.url.replace("guest:guest", "guest:${env:BROKER_PASSWORD}")
    monkeypatch.setenv("BROKER_PASSWORD", "guest")
    system = Amqp(url).create()
    system.send(b"x")
    assert [each.message for each in system.receive(system.consumer(), 1)] == [b"x"]
    system.close()
    monkeypatch.setenv("BROKER_PASSWORD", "m4rk3r-S3cret")
    for said in refusals(url, **{"connect.timeout.ms": 5_000}):
        assert "refuses the user or the password" in said
        assert "m4rk3r" not in said
    assert "m4rk3r" not in repr(Amqp(url).config)


def test_a_wrong_virtual_host_is_told(rabbitmq: RabbitServer) -> None:
    for said in refusals(rabbitmq.url + "nowhere", **{"connect.timeout.ms": 5_000}):
        assert "refuses the virtual host" in said
        assert "nowhere" in said


def test_a_queue_that_is_no_stream_queue_is_not_read_as_one(amqp: Make) -> None:
    system = amqp().create()
    system.send(b"x")
    wrong = amqp(**{"queue.type": "stream", "streams.STREAM.queue": system.stream.stream})
    with pytest.raises(StreamSystemError, match=r"no stream queue: set systems\.q\.queue\.type"):
        wrong.receive(wrong.consumer(), 1)


def test_a_stream_queue_is_not_read_as_another(amqp: Make) -> None:
    system = amqp(**{"queue.type": "stream"}).create()
    wrong = amqp(**{"streams.STREAM.queue": system.stream.stream})
    consumer = wrong.consumer()
    system.send(b"x")
    with pytest.raises(StreamSystemError, match=r"stream queue: set systems\.q\.queue\.type=stream"):
        wrong.receive(consumer, 1)


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(amqp: Make) -> None:
    system = amqp(**{"max.message.bytes": 10}).create()
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes=10"):
        system.send(b"12345678901")
    system.send(b"1234567890")
    assert system.waiting() == 1


def test_what_is_no_bytes_is_refused(amqp: Make) -> None:
    system = amqp().create()
    for envelope in (
        sb.OutgoingMessageEnvelope(system.stream, "text"),
        sb.OutgoingMessageEnvelope(system.stream, b"x", 5),
        sb.OutgoingMessageEnvelope(system.stream, b"x", headers={"a": "text"}),  # type: ignore[dict-item]
    ):
        with pytest.raises(SerdeError, match=str(system.stream)):
            system.producer().send("test", envelope)


@pytest.mark.parametrize(
    ("key", "timestamp", "headers", "said"),
    [
        (b"k" * 300, None, None, "the routing key .* has 300 bytes"),
        (b"", None, {"n" * 256: b""}, "the name of a header has 256 bytes"),
        (b"", None, {"\u00e4" * 128: b""}, "the name of a header has 256 bytes"),
        (b"", None, {"\ud800": b""}, "the name of a header cannot be encoded"),
        (b"", None, {"amqp.content.type": b"t" * 256}, "the header 'amqp.content.type' has 256 bytes"),
        (b"", None, {"amqp.routing.key": b"t" * 256}, "the routing key .* has 256 bytes"),
        (b"", 1.5, None, r"the timestamp 1\.5 is not a number of milliseconds"),
        (b"", 1 << 63, None, "the timestamp 9223372036854775808 is not"),
        (
            b"",
            None,
            {"h": bytes(131_072)},
            "key and headers have about .* takes no more than 131,064 of them",
        ),
    ],
)
def test_what_amqp_cannot_express_is_refused_and_the_connection_stays(
    amqp: Make,
    caplog: pytest.LogCaptureFixture,
    key: bytes,
    timestamp: int,
    headers: dict[str, bytes],
    said: str,
) -> None:
    system = amqp(**{"streams.STREAM.exchange": "refusing", "streams.STREAM.exchange.type": "topic"}).create()
    consumer, producer = system.consumer(), system.producer()
    producer.send("test", sb.OutgoingMessageEnvelope(system.stream, b"1"))
    with pytest.raises(SerdeError, match=f"{system.stream}: {said}"):
        producer.send(
            "test",
            sb.OutgoingMessageEnvelope(system.stream, b"bad", key, timestamp=timestamp, headers=headers),
        )
    most = {"n" * 255: b"", "h": bytes(130_000), "amqp.content.type": b"t" * 255}
    producer.send(
        "test",
        sb.OutgoingMessageEnvelope(system.stream, b"2", b"k" * 255, timestamp=(1 << 63) - 1, headers=most),
    )
    producer.flush("test")
    first, second = system.receive(consumer, 2)
    assert (first.message, second.message, second.timestamp) == (b"1", b"2", (1 << 63) - 1)
    assert {
        name: value for name, value in (second.headers or {}).items() if name != "amqp.routing.key"
    } == most
    assert not caplog.records


def test_a_queue_that_is_full_refuses_and_that_is_an_error(amqp: Make) -> None:
    limits = {
        "streams.STREAM.arguments.x-max-length": 3,
        "streams.STREAM.arguments.x-overflow": "reject-publish",
    }
    system = amqp(**{"queue.type": "classic", **limits}).create()
    with pytest.raises(StreamSystemError, match=f"{system.stream}: the broker refuses a message"):
        system.send(*[b"x"] * 10)


def test_a_producer_that_lost_a_message_never_passes_for_a_complete_one(
    amqp: Make,
) -> None:
    limits = {
        "streams.STREAM.arguments.x-max-length": 2,
        "streams.STREAM.arguments.x-overflow": "reject-publish",
    }
    system = amqp(**{"queue.type": "classic", **limits}).create()
    with writing(system.systems, system.stream, 1, "test") as writer:
        with pytest.raises(StreamSystemError, match="the broker refuses a message"):
            writer.send([sb.OutgoingMessageEnvelope(system.stream, b"x")] * 5)
        with pytest.raises(StreamSystemError, match="the broker refuses a message"):
            writer.flush()
        with pytest.raises(StreamSystemError, match="the broker refuses a message"):
            writer.send([sb.OutgoingMessageEnvelope(system.stream, b"x")])
    assert writer.durable == 0


def test_a_vanished_queue_is_an_error_that_names_the_stream_when_sent_to(
    amqp: Make,
) -> None:
    system = amqp().create()
    producer = system.producer()
    producer.send("test", sb.OutgoingMessageEnvelope(system.stream, b"1"))
    producer.flush("test")
    system.systems.admin("q").delete(system.stream)
    producer.send("test", sb.OutgoingMessageEnvelope(system.stream, b"2"))
    with pytest.raises(UnknownStreamError, match=f"{system.stream}: there is no queue"):
        producer.flush("test")


class Breaker:
    """Stands between a client and the broker, and cuts all connections, or lets nothing through, when it is
    told to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.heartbeats = 0
        """How many the client has sent."""
        self.is_closed = False
        self.passes = threading.Event()
        """Whether it lets anything through; else both ends see somebody who is there and never says a word.
        """
        self.passes.set()
        self.loses: bytes | None = None
        """What is not passed on: where one of the ends says it, all connections are cut."""
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._server.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def cut(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with suppress(OSError):  # the other end may have been quicker
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self.is_closed = True
        self.passes.set()
        # A close alone does not end an accept.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client = self._server.accept()[0]
            except OSError:
                return
            self.connections += 1
            broker = socket.create_connection(("127.0.0.1", self._port))
            with self._lock:
                self._sockets += [client, broker]
            for ends in ((client, broker), (broker, client)):
                threading.Thread(
                    target=self._pass_on, args=ends, kwargs={"counts": ends[0] is client}, daemon=True
                ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, *, counts: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                self.passes.wait()
                self.heartbeats += counts and data.count(_HEARTBEAT)
                if self.loses is not None and self.loses in data:
                    return self.cut()
                target.sendall(data)
        except OSError:
            return


@pytest.fixture
def breaker(rabbitmq: RabbitServer) -> Iterator[Breaker]:
    breaker = Breaker(rabbitmq.port)
    yield breaker
    if not breaker.is_closed:
        breaker.close()


def test_a_producer_resends_what_a_lost_connection_left_unconfirmed(
    breaker: Breaker, caplog: pytest.LogCaptureFixture
) -> None:
    system = Amqp(breaker.url).create()
    producer = system.producer()
    numbers = iter(range(3_000))
    for _ in range(3):
        for number in [next(numbers) for _ in range(1_000)]:
            producer.send("test", sb.OutgoingMessageEnvelope(system.stream, b"%d" % number))
        breaker.cut()
    producer.flush("test")
    received = system.left(system.consumer())
    system.close()
    assert {int(each.message) for each in received} == set(range(3_000))
    first_copies = [each for each in received if "amqp.resent" not in (each.headers or {})]
    assert len({each.message for each in first_copies}) == len(first_copies)
    assert any("trying again" in record.message for record in caplog.records)


def test_a_consumer_gets_unacknowledged_messages_after_a_lost_connection(
    breaker: Breaker,
) -> None:
    system = Amqp(breaker.url, prefetch=20).create()
    system.send(*[b"%d" % number for number in range(30)])
    metrics = MetricsRegistry()
    consumer = system.consumer(metrics=metrics)
    first = system.receive(consumer, 10)
    breaker.cut()
    wait_for(lambda: metrics.snapshot()["amqp.q-reconnects"] == 1)
    # These numbers belong to a connection that is gone: nothing may be acknowledged by them.
    consumer.acknowledge({system.ssp: first[-1].offset})
    second = system.receive(consumer, 20)
    consumer.acknowledge({system.ssp: second[-1].offset})
    rest = system.receive(consumer, 10)
    consumer.acknowledge({system.ssp: rest[-1].offset})
    wait_for(lambda: consumer.poll({system.ssp: 1}, 10) or consumer.at_head(system.ssp))
    consumer.stop()
    assert [each.message for each in second + rest] == [b"%d" % number for number in range(30)]
    assert [each.offset for each in first + second + rest] == [str(number) for number in range(40)]
    assert all("amqp.redelivered" in (each.headers or {}) for each in second[:10])
    assert system.left(system.consumer()) == []
    system.close()


def test_a_reader_of_a_stream_queue_goes_on_where_it_was(breaker: Breaker) -> None:
    system = Amqp(breaker.url, **{"queue.type": "stream"}).create()
    system.send(*[b"%d" % number for number in range(500)])
    consumer = system.consumer()
    received = system.receive(consumer, 120)
    breaker.cut()
    received += system.receive(consumer, 380)
    assert [int(each.message) for each in received] == list(range(500))
    assert system.left(consumer) == []
    system.close()


def test_a_broker_that_does_not_come_back_is_an_error_in_the_end(breaker: Breaker) -> None:
    system = Amqp(breaker.url, **{"patience.ms": 200}).create()
    consumer, producer = system.consumer(), system.producer()
    producer.send("test", sb.OutgoingMessageEnvelope(system.stream, b"1"))
    producer.flush("test")
    breaker.close()
    with pytest.raises(StreamSystemError, match="cannot be reached"):
        while True:
            consumer.poll({system.ssp: 1}, 100)
    with pytest.raises(StreamSystemError, match=r"cannot be reached|has not confirmed"):
        while True:
            producer.send("test", sb.OutgoingMessageEnvelope(system.stream, b"2"))
            producer.flush("test")
    system.close()


def test_a_broker_that_loses_every_connection_at_once_is_not_flooded(breaker: Breaker) -> None:
    system = Amqp(breaker.url, **{"patience.ms": 1_000}).create()
    consumer = system.consumer()
    breaker.loses = _CHANNEL_IS_OPEN
    breaker.cut()
    before = breaker.connections
    with pytest.raises(StreamSystemError, match="cannot be reached"):
        while True:
            consumer.poll({system.ssp: 1}, 100)
    assert breaker.connections - before < 10  # each waits longer than the one before
    system.close()


def test_a_broker_that_stops_during_an_opening_refused_no_password(
    breaker: Breaker,
) -> None:
    breaker.loses = _TUNE
    for said in refusals(breaker.url):
        assert "closed the connection at once, without a reason: it has just stopped, or refuses" in said


def test_what_was_answered_counts_though_the_connection_is_lost_at_the_end(breaker: Breaker) -> None:
    system = Amqp(breaker.url).create()
    breaker.loses = _CLOSE
    assert list(system.systems.metadata([system.stream])[system.stream]) == [0]
    system.close()


def test_heartbeats_go_on_while_a_task_is_slow(breaker: Breaker) -> None:
    system = Amqp(f"{breaker.url}?heartbeat=1").create()
    system.send(b"1", b"2")
    metrics = MetricsRegistry()
    consumer = system.consumer(metrics=metrics)
    received = system.receive(consumer, 1)
    # Nobody polls from here on, for longer than the broker would have patience with a client that says
    # nothing.
    before = breaker.heartbeats
    wait_for(lambda: breaker.heartbeats >= before + 5)
    consumer.acknowledge({system.ssp: received[-1].offset})
    received += system.receive(consumer, 1)
    assert [each.message for each in received] == [b"1", b"2"]
    assert metrics.snapshot()["amqp.q-reconnects"] == 0
    system.close()


def test_a_sender_waits_when_a_stalled_broker_has_not_confirmed_many_bytes(
    breaker: Breaker,
) -> None:
    system = Amqp(
        breaker.url, **{"patience.ms": 300, "send.buffer.bytes": 1_000_000, "connect.timeout.ms": 1_000}
    ).create()
    producer = system.producer()
    producer.sender(system.stream)
    breaker.passes.clear()
    sent = 0
    with pytest.raises(StreamSystemError, match="has not confirmed what was sent"):
        while sent < 1_000:
            producer.send(
                "test", sb.OutgoingMessageEnvelope(system.stream, b"", headers={"h": bytes(100_000)})
            )
            sent += 1
    assert sent == 10
    breaker.passes.set()
    producer.flush("test")
    assert system.waiting() == 10
    # All of it is confirmed: there is room again.
    for _ in range(10):
        producer.send("test", sb.OutgoingMessageEnvelope(system.stream, bytes(99_000)))
    producer.flush("test")
    system.close()


def test_a_stop_leaves_a_broker_behind_that_does_not_answer(
    breaker: Breaker, caplog: pytest.LogCaptureFixture
) -> None:
    system = Amqp(breaker.url).create()
    parts = [system.consumer(config={"systems.q.connect.timeout.ms": 300})]
    breaker.passes.clear()
    parts[0].stop()
    assert "AMQP consumer of q" not in {each.name for each in threading.enumerate()}
    assert not [
        each for each in psutil.Process().net_connections() if each.raddr and each.raddr.port == breaker.port
    ]
    assert (
        "did not answer within 0.3 seconds (systems.q.connect.timeout.ms); the connection is cut"
        in caplog.text
    )
    breaker.passes.set()
    system.close()


def test_pika_does_not_fill_the_log_on_the_way_to_an_error() -> None:
    assert not logging.getLogger("pika").isEnabledFor(logging.ERROR)


def test_tls_is_spoken_where_the_url_says_amqps(tmp_path: Path) -> None:
    """To a server that only shakes hands: what matters is which certificates are trusted."""
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*command, *more], check=True, capture_output=True)
    except FileNotFoundError:
        missing("openssl", remedy="apt-get install openssl")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client = server.accept()[0]
                except OSError:
                    return
                try:
                    with context.wrap_socket(client, server_side=True) as secured:
                        heard.append(secured.recv(8))
                except OSError:
                    client.close()

        threading.Thread(target=serve, daemon=True).start()
        url = f"amqps://127.0.0.1:{server.getsockname()[1]}/"
        assert "certificate verify failed" in refusals(url, **{"connect.timeout.ms": 2_000})[0]
        assert heard == []
        trusting = {"tls.ca": str(certificate), "tls.server.name": "localhost", "connect.timeout.ms": 2_000}
        refusals(url, **trusting)  # type: ignore[arg-type]
        assert heard[0] == b"AMQP\0\0\x09\x01"


def test_a_certificate_that_is_not_there_is_an_error_that_names_the_key(tmp_path: Path) -> None:
    system = Amqp("amqps://127.0.0.1:1/", **{"tls.ca": tmp_path / "nothing.pem"})
    with pytest.raises(ConfigError, match=r"systems\.q\.tls\.ca: .*nothing\.pem cannot be used"):
        system.consumer()


def test_pika_that_is_not_installed_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pika", None)
    with pytest.raises(sb.StreambenchError, match=r"streambench\[amqp\]"):
        Amqp("amqp://127.0.0.1/").systems.admin("q")
