"""TCP: whatever senders do, what they completed is received, what is safe is acknowledged, and the rest is
told and counted."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from streambench.errors import (
    ConfigError,
    UnknownStreamError,
)
from streambench.model import SystemStreamPartition
from streambench.system.net import TcpSystemFactory
from tests.ports import free_ports
from tests.system.net.peers import SOURCE, SSP, config, line, receiving, said, send, sending, to

TCP = TcpSystemFactory()


def test_whoever_can_send_a_line_is_a_sender() -> None:
    with receiving(TCP, config()) as receiver, receiver.connect() as sender:
        sender.sendall(b"one\ntwo\nthr")
        assert receiver.receive(2) == [b"one", b"two"]
        sender.sendall(b"ee\n")
        assert receiver.receive(1) == [b"three"]


def test_a_sender_is_told_how_many_of_its_messages_are_safe() -> None:
    with receiving(TCP, config()) as receiver, receiver.connect() as one, receiver.connect() as other:
        one.sendall(b"a\nb\n")
        assert receiver.receive(2) == [b"a", b"b"]
        other.sendall(b"c\n")
        assert receiver.receive(1) == [b"c"]
        one.sendall(b"d\n")
        assert receiver.receive(1) == [b"d"]
        receiver.acknowledge(0)
        assert line(one) == b"1\n"
        receiver.acknowledge(3)
        assert (line(one), line(other)) == (b"3\n", b"1\n")


def test_without_acknowledgements_nothing_is_said() -> None:
    with receiving(TCP, config(acknowledge="false")) as receiver, receiver.connect() as sender:
        sender.sendall(b"a\n")
        assert receiver.receive(1) == [b"a"]
        receiver.acknowledge(0)
        sender.shutdown(socket.SHUT_WR)
        receiver.until(lambda: not receiver.counted("connections"))
        assert said(sender) == b""


def test_a_sender_with_a_closed_sending_side_is_answered_until_all_is_safe() -> None:
    with receiving(TCP, config()) as receiver, receiver.connect() as sender:
        sender.sendall(b"a\nb\n")
        sender.shutdown(socket.SHUT_WR)
        assert receiver.receive(2) == [b"a", b"b"]
        receiver.acknowledge(0)
        assert receiver.until(lambda: receiver.counted("connections") == 1) == []
        receiver.acknowledge(1)
        assert said(sender).splitlines()[-1] == b"2"
        receiver.until(lambda: not receiver.counted("connections"))


def test_a_sender_that_is_gone_for_good_is_not_waited_for() -> None:
    with receiving(TCP, config(frame__timeout__ms="100")) as receiver:
        with receiver.connect() as sender:
            sender.sendall(b"a\n")
        assert receiver.receive(1) == [b"a"]
        receiver.until(lambda: not receiver.counted("connections"))
        receiver.acknowledge(0)


def test_half_a_message_at_the_end_is_counted_and_never_delivered() -> None:
    with receiving(TCP, config()) as receiver:
        with receiver.connect() as sender:
            sender.sendall(b"whole\nha")
        assert receiver.until(lambda: receiver.counted("messages-cut-off"))[0].message == b"whole"
        with receiver.connect() as sender:
            sender.sendall(b"lf\n")
            assert receiver.receive(1) == [b"lf"]


def test_a_connection_that_is_reset_takes_nothing_else_with_it() -> None:
    with receiving(TCP, config()) as receiver, receiver.connect() as other:
        reset = receiver.connect()
        reset.sendall(b"a\nha")
        assert receiver.receive(1) == [b"a"]
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        reset.close()
        receiver.until(lambda: receiver.counted("connections-lost"))
        assert receiver.counted("messages-cut-off") == 1
        other.sendall(b"b\n")
        assert receiver.receive(1) == [b"b"]
        receiver.acknowledge(1)
        assert line(other) == b"1\n"


@pytest.mark.parametrize(
    ("framing", "bad", "kind", "why"),
    [
        ("lines", b"x" * 200_000, "too-large", b"max.message.bytes"),
        ("lines", b"x" * 200_000 + b"\n", "too-large", b"max.message.bytes"),
        ("length", b"GET / HTTP/1.1\r\n\r\n", "too-large", b"max.message.bytes"),
        ("envelope", b"\0\0\0\3abc", "malformed", b"no envelope"),
    ],
)
def test_what_cannot_be_taken_is_counted_and_what_came_before_it_is_kept(
    framing: str, bad: bytes, kind: str, why: bytes
) -> None:
    good = {"lines": b"ok\n", "length": b"\0\0\0\2ok", "envelope": b"\0\0\0\x0d\x81\xa7message\xc4\2ok"}[
        framing
    ]
    with (
        receiving(TCP, config(framing=framing, max__message__bytes=100_000)) as receiver,
        receiver.connect() as sender,
    ):
        sender.sendall(good + bad)
        found = receiver.until(lambda: receiver.counted(f"connections-refused-{kind}"))
        assert [each.message for each in found] == [b"ok"]
        with receiver.at_work():
            answer = said(sender)
        assert answer.startswith(b"error: message 2: ") and why in answer
        with receiver.connect() as other:
            other.sendall(good)
            assert receiver.receive(1) == [b"ok"]


def test_a_message_as_large_as_is_allowed_is_taken() -> None:
    message = b"x" * 100_000
    for framing in ("lines", "length"):
        settings = config(framing=framing, max__message__bytes=100_000)
        with (
            receiving(TCP, settings) as receiver,
            sending(TCP, to(receiver, settings)) as producer,
            receiver.at_work() as found,
        ):
            send(producer, message, b"", message)
            producer.flush(SOURCE)
            assert found == [message, b"", message]


def test_a_message_that_takes_too_long_is_cut_off() -> None:
    with (
        receiving(TCP, config(frame__timeout__ms=200)) as receiver,
        receiver.connect() as slow,
        receiver.connect() as quick,
    ):
        slow.sendall(b"a\nb")
        stop = threading.Event()

        def drip() -> None:
            while not stop.is_set():
                try:
                    slow.send(b"b")
                except OSError:
                    return
                stop.wait(0.02)

        dripping = threading.Thread(target=drip)
        dripping.start()
        quick.sendall(b"q\n")
        found = receiver.until(lambda: receiver.counted("connections-refused-slow"))
        assert sorted(each.message for each in found) == [b"a", b"q"]
        assert receiver.counted("messages-cut-off") == 1
        with receiver.at_work():
            assert b"error: message 2: it was not complete" in said(slow)
        stop.set()
        dripping.join()
        quick.sendall(b"r\n")
        assert receiver.receive(1) == [b"r"]


def test_a_silent_connection_is_closed_unless_it_waits_for_an_answer() -> None:
    with (
        receiving(TCP, config(idle__timeout__ms=200)) as receiver,
        receiver.connect() as waiting,
        receiver.connect() as idle,
    ):
        waiting.sendall(b"a\n")
        assert [
            each.message for each in receiver.until(lambda: receiver.counted("connections-refused-idle"))
        ] == [b"a"]
        assert said(idle).startswith(b"busy: ")
        receiver.acknowledge(0)
        assert line(waiting) == b"1\n"
        receiver.until(lambda: receiver.counted("connections-refused-idle") == 2)


def test_too_many_connections_are_refused_and_the_others_are_served() -> None:
    with receiving(TCP, config(max__connections=3)) as receiver:
        held = [receiver.connect() for _ in range(3)]
        for each in held:  # a connection on which nothing came would make way
            each.sendall(b"first\n")
        assert receiver.receive(3) == [b"first"] * 3
        refused = receiver.connect()
        receiver.until(lambda: receiver.counted("connections-refused-too-many"))
        assert said(refused) == b"busy: 3 connections are open already\n"
        held[0].close()
        receiver.until(lambda: receiver.counted("connections") == 2)
        held[0] = receiver.connect()
        for number, each in enumerate(held):
            each.sendall(b"%d\n" % number)
        assert sorted(receiver.receive(3)) == [b"0", b"1", b"2"]
        for each in [*held, refused]:
            each.close()


def test_what_there_is_no_room_for_stays_with_its_sender() -> None:
    settings = config(receive__buffer__bytes=65_536)
    with receiving(TCP, settings) as receiver, receiver.connect() as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        sender.setblocking(False)
        message = b"x" * 999 + b"\n"
        sent = 0
        with pytest.raises(BlockingIOError):
            while True:
                sent += sender.send(message[sent % 1000 :])
                if sent % 100_000 < 1000:
                    receiver.poll(0, at_most=1)
        assert sent < 3_000_000
        sender.setblocking(True)
        rest = threading.Thread(target=sender.sendall, args=(message[sent % 1000 :],))
        rest.start()
        wanted = sent // 1000 + 1 - receiver.counted("messages-read")
        assert set(receiver.receive(int(wanted))) == {b"x" * 999}
        rest.join()


def test_no_more_is_read_than_may_wait_for_acknowledgement(caplog: pytest.LogCaptureFixture) -> None:
    settings = config(unacknowledged__bytes=1_000_000)
    with receiving(TCP, settings) as receiver, sending(TCP, to(receiver, settings)) as producer:

        def work() -> None:
            send(producer, *[b"%01000d" % number for number in range(5_000)])
            producer.flush(SOURCE)

        working = threading.Thread(target=work)
        working.start()
        found: list[Any] = []
        while len(found) < 5_000:
            polled = receiver.poll(200)
            found += [each.message for each in polled]
            (listener,) = receiver.consumer._ports.values()  # type: ignore[attr-defined]
            assert listener._arrived - listener._safe < 1_000_000 + 300_000
            if not polled and listener.is_held:
                assert not receiver.consumer.at_head(SSP)
                receiver.acknowledge(len(found) - 1)
        assert found == [b"%01000d" % number for number in range(5_000)]
        receiver.acknowledge(4_999)
        working.join()
    assert "bytes wait to be acknowledged (unacknowledged.bytes)" in caplog.text


def test_time_during_which_nothing_is_read_is_not_the_senders_fault() -> None:
    with (
        receiving(TCP, config(frame__timeout__ms=1000, idle__timeout__ms=1000)) as receiver,
        receiver.connect() as sender,
    ):
        sender.sendall(b"a\nb")
        assert receiver.receive(1) == [b"a"]
        late = time.monotonic() + 1.2
        while time.monotonic() < late:
            assert receiver.consumer.poll({}, 10) == []
        receiver.poll(0)
        sender.sendall(b"c\n")
        assert receiver.receive(1) == [b"bc"]


def test_of_many_large_messages_at_once_a_limit_is_held_and_all_arrive() -> None:
    size = 300_000
    settings = config(framing="length", max__message__bytes=size, unfinished__bytes=2 * size)
    with receiving(TCP, settings) as receiver:
        senders = [receiver.connect() for _ in range(20)]
        frames = [size.to_bytes(4, "big") + bytes([number]) * size for number in range(20)]
        for sender, frame in zip(senders, frames, strict=True):
            sender.sendall(frame[: size // 2])
        listener = receiver.consumer._ports[SSP]  # type: ignore[attr-defined]
        for _ in range(50):
            receiver.poll(1)
            assert sum(each.splitter.unfinished for each in listener.connections) < 2 * size + 20 * 33_000
        threads = [
            threading.Thread(target=each.sendall, args=(frame[size // 2 :],))
            for each, frame in zip(senders, frames, strict=True)
        ]
        for each in threads:
            each.start()
        assert sorted(receiver.receive(20)) == [bytes([number]) * size for number in range(20)]
        for each in threads:
            each.join()
        for each in senders:
            each.close()
        receiver.until(lambda: not receiver.counted("connections") or receiver.acknowledge(19))
        assert listener._slots.free == 2


def test_a_container_listens_on_the_ports_of_its_own_partitions_alone() -> None:
    first = free_ports(3)
    settings = config(streams__lines__listen=f"127.0.0.1:{first}", streams__lines__partitions=3)
    one, others = (
        SystemStreamPartition("t", "lines", 1),
        [SystemStreamPartition("t", "lines", number) for number in (0, 2)],
    )
    with receiving(TCP, settings, one) as container, receiving(TCP, settings, *others) as other:
        assert container.address(one).port == first + 1
        assert [other.address(ssp).port for ssp in others] == [first, first + 2]
        with sending(TCP, settings) as producer, container.at_work() as found, other.at_work() as rest:
            for partition in range(3):
                send(producer, b"%d" % partition, partition=partition)
            producer.flush(SOURCE)
        assert (found, sorted(rest)) == ([b"1"], [b"0", b"2"])


def test_a_port_that_is_taken_is_an_error_that_names_the_key() -> None:
    with receiving(TCP, config()) as receiver:
        taken = config(streams__lines__listen=str(receiver.address()), listen__timeout__ms=150)
        with pytest.raises(
            ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: address already in use; .*another port"
        ) as caught:
            receiving(TCP, taken).__enter__()
        assert caught.value.key == "systems.t.streams.lines.listen"
    with pytest.raises(ConfigError, match="give an address of this machine"):
        receiving(TCP, config(streams__lines__listen="203.0.113.1:7000")).__enter__()


def test_a_port_that_becomes_free_is_taken() -> None:
    port = free_ports(1)
    with receiving(TCP, config(streams__lines__listen=str(port))) as old:
        letting_go = threading.Timer(0.2, old.stop)
        letting_go.start()
        with receiving(TCP, config(streams__lines__listen=str(port), listen__timeout__ms=60_000)) as new:
            assert new.address().port == port
        letting_go.join()


@pytest.mark.parametrize(
    ("settings", "key", "what"),
    [
        ({"streams__lines__listen": "127.0.0.1"}, "streams.lines.listen", "HOST:PORT"),
        ({"streams__lines__listen": "here:70000"}, "streams.lines.listen", "HOST:PORT"),
        (
            {"streams__lines__listen": "1,2", "streams__lines__partitions": 3},
            "streams.lines.listen",
            "2 addresses for 3 partitions",
        ),
        (
            {"streams__lines__listen": "65535", "streams__lines__partitions": 2},
            "streams.lines.listen",
            "beyond the last one",
        ),
        ({"framing": "csv"}, "framing", "lines, length, envelope"),
        ({"max__message__bytes": "many"}, "max.message.bytes", "whole number"),
        ({"streams__lines__max__connections": "0"}, "streams.lines.max.connections", "give 1 or more"),
        ({"acknowledge": "yes"}, "acknowledge", "neither true nor false"),
        ({"tls__certificate": "/nothing.pem"}, "tls.certificate", "no file"),
        ({"streams__lines__lisen": "1"}, "streams.lines.lisen", "did you mean listen"),
    ],
)
def test_what_is_configured_wrongly_is_an_error_that_names_the_key(
    settings: dict[str, Any], key: str, what: str
) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        receiving(TCP, config(**settings)).__enter__()
    assert caught.value.key == f"systems.t.{key}"


def test_a_stream_without_an_address_is_unknown_and_a_target_is_no_source() -> None:
    nothing = SystemStreamPartition("t", "nothing", 0)
    with pytest.raises(
        UnknownStreamError, match=r"systems\.t\.streams\.nothing\.listen=HOST:PORT; there are: t\.lines"
    ):
        receiving(TCP, config(), nothing).__enter__()
    with pytest.raises(ConfigError, match="is missing"):
        receiving(TCP, config(streams__lines__listen="", streams__lines__connect="127.0.0.1:9")).__enter__()
    with sending(TCP, config()) as producer, pytest.raises(ConfigError, match="port 0"):
        send(producer, b"x")


# The producer
