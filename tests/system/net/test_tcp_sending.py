"""TCP, sending: a flush returns when all is acknowledged, or says what was not."""

from __future__ import annotations

import socket
import threading

import pytest

from streambench.errors import (
    ConfigError,
    MessageTooLargeError,
    SerdeError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.system.net import TcpSystemFactory
from tests.ports import free_ports
from tests.system.net.peers import SOURCE, STREAM, config, receiving, send, sending, to

TCP = TcpSystemFactory()


def test_a_flush_returns_when_everything_is_acknowledged() -> None:
    settings = config()
    with receiving(TCP, settings) as receiver, sending(TCP, to(receiver, settings)) as producer:
        send(producer, b"a", b"b")
        flushing = threading.Thread(target=producer.flush, args=(SOURCE,))
        flushing.start()
        assert receiver.receive(2) == [b"a", b"b"]
        receiver.acknowledge(0)
        assert flushing.is_alive()
        receiver.acknowledge(1)
        flushing.join()


def test_what_was_not_acknowledged_is_sent_again_once_a_receiver_is_back() -> None:
    port = free_ports(1)
    settings = config(streams__lines__listen=str(port))
    registry = MetricsRegistry()
    with sending(TCP, settings, registry) as producer:
        with receiving(TCP, settings) as receiver:
            send(producer, b"a", b"b", b"c")
            flushing = threading.Thread(target=producer.flush, args=(SOURCE,))
            flushing.start()
            assert receiver.receive(3) == [b"a", b"b", b"c"]
            receiver.acknowledge(0)
        with receiving(TCP, settings) as receiver:
            assert receiver.receive(2, acknowledge=True) == [b"b", b"c"]
            flushing.join()
        assert registry.snapshot()["tcp.t-messages-sent-again"] == 2
        with receiving(TCP, settings) as receiver, receiver.at_work() as found:
            send(producer, b"d")
            producer.flush(SOURCE)
            assert found == [b"d"]


def test_a_sender_keeps_no_more_than_it_may() -> None:
    settings = config(send__buffer__bytes=200_000, acknowledge__timeout__ms=60_000)
    with receiving(TCP, settings) as receiver, sending(TCP, to(receiver, settings)) as producer:
        most = 0

        def work() -> None:
            nonlocal most
            for number in range(2_000):
                send(producer, b"%01000d" % number)
                (way,) = producer._connections[STREAM]  # type: ignore[attr-defined]
                most = max(most, way._kept_bytes + way.fresh_bytes)
            producer.flush(SOURCE)

        working = threading.Thread(target=work)
        working.start()
        assert receiver.receive(2_000, acknowledge=True) == [b"%01000d" % number for number in range(2_000)]
        working.join()
        assert 0 < most < 300_000


def test_what_could_not_be_sent_is_told_by_every_flush() -> None:
    settings = config(
        streams__lines__connect=str(free_ports(1)), connect__timeout__ms=50, acknowledge="false"
    )
    with sending(TCP, settings) as producer:
        send(producer, b"a")
        for _ in range(2):
            with pytest.raises(StreamSystemError, match="no receiver listens"):
                producer.flush(SOURCE)
    with receiving(TCP, config()) as receiver, sending(TCP, to(receiver, config())) as producer:
        appends = producer.appends(STREAM)
        assert appends is not None
        appends.partitions[0]((None, b"two\nlines", None))
        for _ in range(2):
            with pytest.raises(SerdeError, match="holds a newline"):
                producer.flush(SOURCE)


def test_what_was_not_read_in_time_is_told_by_every_flush() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        settings = config(
            streams__lines__connect=str(mute.getsockname()[1]),
            acknowledge="false",
            acknowledge__timeout__ms=100,
        )
        with sending(TCP, settings) as producer:
            send(producer, *[b"x" * 1_000_000] * 20)
            for _ in range(2):
                with pytest.raises(StreamSystemError, match="has read nothing for"):
                    producer.flush(SOURCE)


def test_where_nobody_listens_the_error_says_so_in_time() -> None:
    settings = config(streams__lines__connect=str(free_ports(1)), connect__timeout__ms=200)
    with sending(TCP, settings) as producer:
        send(producer, b"a")
        with pytest.raises(
            StreamSystemError,
            match=r"no receiver listens at .*streams\.lines\.connect.*connection refused",
        ):
            producer.flush(SOURCE)


def test_after_it_has_failed_nobody_waits_once_more() -> None:
    """Whoever cleans up after an error flushes again."""
    port = free_ports(1)
    with sending(TCP, config(streams__lines__connect=str(port), connect__timeout__ms=200)) as producer:
        send(producer, b"a")
        with pytest.raises(StreamSystemError) as first:
            producer.flush(SOURCE)
        with socket.create_server(("127.0.0.1", int(port))) as late:
            late.setblocking(False)
            with pytest.raises(StreamSystemError) as second:
                producer.flush(SOURCE)
            assert second.value is first.value
            with pytest.raises(BlockingIOError):
                late.accept()


def test_who_waits_for_a_receiver_is_told_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.system.net.tcp_producer._WARN_AFTER_S", 0.1)
    port = free_ports(1)
    with sending(TCP, config(streams__lines__connect=str(port), acknowledge="false")) as producer:
        send(producer, b"a")
        flushing = threading.Thread(target=producer.flush, args=(SOURCE,))
        flushing.start()
        while "no receiver listens at" not in caplog.text:
            assert flushing.is_alive()
            threading.Event().wait(0.01)
        with socket.create_server(("127.0.0.1", int(port))) as server, server.accept()[0] as peer:
            assert peer.recv(100) == b"a\n"
            flushing.join()
    assert caplog.text.count("no receiver listens at") == 1 and "trying for 30 seconds" in caplog.text


def test_where_nobody_acknowledges_the_error_says_what_to_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        settings = config(streams__lines__connect=str(mute.getsockname()[1]), acknowledge__timeout__ms=200)
        with sending(TCP, settings) as producer:
            send(producer, b"a")
            with pytest.raises(
                StreamSystemError, match=r"has not acknowledged 1 messages.*acknowledge=false"
            ):
                producer.flush(SOURCE)
        with sending(TCP, settings.with_values({"systems.t.acknowledge": "false"})) as producer:
            send(producer, b"a", b"b")
            producer.flush(SOURCE)
        mute.accept()[0].close()
        with mute.accept()[0] as peer:
            assert peer.recv(100) == b"a\nb\n"


def test_a_receiver_that_says_something_else_is_not_taken_for_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as strange:
        settings = config(streams__lines__connect=str(strange.getsockname()[1]))
        with sending(TCP, settings) as producer:
            send(producer, b"a")
            flushing: list[BaseException] = []

            def flush() -> None:
                try:
                    producer.flush(SOURCE)
                except StreamSystemError as error:
                    flushing.append(error)

            thread = threading.Thread(target=flush)
            thread.start()
            with strange.accept()[0] as peer:
                peer.sendall(b"220 mail.example.org ESMTP\r\n")
                thread.join()
            assert "is it the receiver of this stream?" in str(flushing[0])


def test_what_the_receiver_refuses_is_an_error_and_oversize_is_not_sent() -> None:
    settings = config(max__message__bytes=1000)
    with receiving(TCP, settings) as receiver, receiver.at_work():
        lax = to(receiver, settings).with_values({"systems.t.max.message.bytes": 10_000})
        with sending(TCP, lax) as producer:
            send(producer, b"a", b"x" * 5000)
            with pytest.raises(
                StreamSystemError, match=r"refuses what it was sent: message 2: .*max\.message\.bytes"
            ):
                producer.flush(SOURCE)
        with sending(TCP, to(receiver, settings)) as producer:
            with pytest.raises(MessageTooLargeError):
                send(producer, b"x" * 5000)
            with pytest.raises(SerdeError):
                send(producer, b"a\nb")
            with pytest.raises(UnknownStreamError):
                send(producer, b"a", partition=1)


def test_a_busy_receiver_is_tried_again() -> None:
    settings = config(max__connections=1)
    with receiving(TCP, settings) as receiver, receiver.connect() as other, receiver.at_work() as found:
        while not receiver.counted("connections"):
            threading.Event().wait(0.01)
        with sending(TCP, to(receiver, settings)) as producer:
            send(producer, b"a")
            flushing = threading.Thread(target=producer.flush, args=(SOURCE,))
            flushing.start()
            while not receiver.counted("connections-refused-too-many"):
                threading.Event().wait(0.01)
            other.close()
            flushing.join()
        assert found == [b"a"]


@pytest.mark.parametrize("framing", ["lines", "length", "envelope"])
def test_plain_messages_go_the_quick_way_among_the_others(framing: str) -> None:
    settings = config(framing=framing)
    with (
        receiving(TCP, settings) as receiver,
        receiver.at_work() as found,
        sending(TCP, to(receiver, settings)) as producer,
    ):
        quick = producer.appends(STREAM)
        assert quick is not None
        for number in range(0, 3000, 3):
            send(producer, b"%d" % number)
            quick.partitions[0]((b"k", b"%d" % (number + 1), None))
            quick.partitions[0]((None, b"%d" % (number + 2), None))
            if number % 300 == 0:
                quick.apply_limits()
        producer.flush(SOURCE)
        assert found == [b"%d" % number for number in range(3000)]


def test_a_broken_line_is_an_error_on_the_fast_path_unless_ignored() -> None:
    settings = config(streams__lines__connect="127.0.0.1:9")
    with sending(TCP, settings) as producer:
        quick = producer.appends(STREAM)
        assert quick is not None
        quick.partitions[0]((None, b"a\nb", None))
        with pytest.raises(SerdeError, match=r"would be several lines: b'a\\nb'"):
            quick.apply_limits()
    with sending(TCP, settings.with_values({"task.drop.serialization.errors": "true"})) as producer:
        assert producer.appends(STREAM) is None


def test_an_address_that_is_none_is_refused_when_the_streams_are_looked_up() -> None:
    admin = TCP.get_admin("t", config(**{"streams.lines.listen": "127.0.0.1:99999"}))
    with pytest.raises(
        ConfigError, match=r"systems\.t\.streams\.lines\.listen: '127\.0\.0\.1:99999' is no address"
    ):
        admin.metadata([STREAM])
