"""UDP: what arrives is delivered, and what does not is counted, as far as anybody can know."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import (
    ConfigError,
    MessageTooLargeError,
    SerdeError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.net import UdpSystemFactory
from streambench.system.net.settings import NUMBERED
from tests.ports import free_ports
from tests.system.net.peers import SOURCE, Receiver, config, receiving, send, sending, to

UDP = UdpSystemFactory()

counts_drops = pytest.mark.skipif(
    not Path("/proc/net/udp").exists(), reason="the kernel does not tell what it drops"
)


def udp(**settings: Any) -> Config:
    return config("udp", **settings)


def datagrams(receiver: Receiver, *data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for each in data:
            sock.sendto(each, (receiver.address().host, receiver.address().port))


def test_a_datagram_is_a_message() -> None:
    with receiving(UDP, udp()) as receiver:
        datagrams(receiver, b"a\nb", b"", bytes(range(256)), b"x" * 65_507)
        assert receiver.receive(4) == [b"a\nb", b"", bytes(range(256)), b"x" * 65_507]
        receiver.acknowledge(3)


def test_a_datagram_may_hold_lines() -> None:
    with receiving(UDP, udp(framing="lines")) as receiver:
        datagrams(receiver, b"a\nb\n", b"c", b"\nd")
        assert receiver.receive(5) == [b"a", b"b", b"c", b"", b"d"]


def test_a_producer_fills_datagrams_with_lines() -> None:
    settings = udp(framing="lines", datagram__bytes=100)
    with receiving(UDP, settings) as receiver, sending(UDP, to(receiver, settings)) as producer:
        messages = [b"message %02d" % number for number in range(50)] + [b"x" * 500]
        send(producer, *messages)
        producer.flush(SOURCE)
        assert receiver.receive(51) == messages


def test_one_that_is_too_large_is_passed_over_and_counted() -> None:
    with receiving(UDP, udp(max__message__bytes=10)) as receiver:
        datagrams(receiver, b"x" * 11, b"fine")
        assert receiver.receive(1) == [b"fine"]
        assert receiver.counted("messages-too-large") == 1
    with receiving(UDP, udp(framing="lines", max__message__bytes=10)) as receiver:
        datagrams(receiver, b"good\n" + b"x" * 11 + b"\nfine")
        assert receiver.receive(2) == [b"good", b"fine"]
        assert receiver.counted("messages-too-large") == 1


@counts_drops
def test_what_the_kernel_drops_is_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    settings = udp(receive__buffer__bytes=4096)
    with caplog.at_level(logging.WARNING), receiving(UDP, settings) as receiver:
        datagrams(receiver, *(b"%01000d" % number for number in range(200)))
        got = [each.message for each in receiver.until(lambda: receiver.counted("datagrams-dropped"))]
        assert got == [b"%01000d" % number for number in range(len(got))]
        receiver.stop()
        assert len(got) + receiver.counted("datagrams-dropped") == 200
    assert caplog.text.count("the kernel has dropped") == 1
    assert "receive.buffer.bytes" in caplog.text


def test_gaps_in_the_numbers_are_counted_per_sender() -> None:
    one, other = os.urandom(8), os.urandom(8)

    def numbered(sender: bytes, number: int) -> bytes:
        return NUMBERED + sender + number.to_bytes(8, "big") + b"%d" % number

    with receiving(UDP, udp(sequence="true")) as receiver:
        datagrams(
            receiver,
            numbered(one, 0),
            numbered(other, 2),
            numbered(one, 1),
            numbered(one, 5),
            numbered(other, 3),
        )
        assert receiver.receive(5) == [b"0", b"2", b"1", b"5", b"3"]
        assert (receiver.counted("datagrams-missing"), receiver.counted("datagrams-late")) == (3, 0)
        datagrams(receiver, numbered(one, 3), numbered(one, 6), b"no number", NUMBERED)
        assert receiver.receive(2) == [b"3", b"6"]
        receiver.until(lambda: receiver.counted("datagrams-malformed") == 2)
        assert (receiver.counted("datagrams-missing"), receiver.counted("datagrams-late")) == (3, 1)


@counts_drops
def test_a_producer_that_numbers_tells_its_receiver_what_was_lost() -> None:
    settings = udp(sequence="true", receive__buffer__bytes=4096)
    with receiving(UDP, settings) as receiver, sending(UDP, to(receiver, settings)) as producer:
        send(producer, *(b"%01000d" % number for number in range(200)))
        got = receiver.until(lambda: receiver.counted("datagrams-dropped"))
        send(producer, b"last")
        assert [each.message for each in receiver.until(lambda: receiver.counted("datagrams-missing"))] == [
            b"last"
        ]
        assert len(got) + receiver.counted("datagrams-missing") == 200


def test_senders_whose_numbers_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench.system.net.udp_consumer._SENDERS", 3)
    with receiving(UDP, udp(sequence="true")) as receiver:
        for sender in range(10):
            datagrams(receiver, NUMBERED + sender.to_bytes(8, "big") + bytes(8) + b"m")
        receiver.receive(10)
        (port,) = receiver.consumer._ports.values()  # type: ignore[attr-defined]
        assert len(port._expected) == 3


def test_where_nobody_listens_sending_goes_on_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    registry = MetricsRegistry()
    with sending(UDP, udp(streams__lines__connect=str(free_ports(1, "udp"))), registry) as producer:
        for number in range(10):
            send(producer, b"%d" % number)
        producer.flush(SOURCE)
    assert "does not take what is sent: connection refused" in caplog.text
    assert 0 < registry.snapshot()["udp.t-messages-unsent"] <= 10


def test_all_messages_of_a_datagram_that_nobody_takes_are_counted_once() -> None:
    registry = MetricsRegistry()
    settings = udp(streams__lines__connect=str(free_ports(1, "udp")), framing="lines")
    with sending(UDP, settings, registry) as producer:
        sent = 0
        while not (counted := registry.snapshot().get("udp.t-messages-unsent", 0)):
            send(producer, *(b"%d" % number for number in range(7)))
            producer.flush(SOURCE)
            sent += 7
        assert counted % 7 == 0 and counted <= sent


@pytest.mark.parametrize("size", [0, 1, 1_000])
def test_lines_fill_datagrams_up_to_the_largest_one(size: int) -> None:
    settings = udp(
        framing="lines", datagram__bytes=65_507 - 20, sequence="true", receive__buffer__bytes=4_000_000
    )
    messages = [b"x" * size] * 200
    registry = MetricsRegistry()
    with receiving(UDP, settings) as receiver, sending(UDP, to(receiver, settings), registry) as producer:
        got = []
        for start in range(0, 200, 100):
            send(producer, *messages[start : start + 100])
            producer.flush(SOURCE)
            got += receiver.receive(100)
        assert got == messages
        assert registry.snapshot().get("udp.t-messages-unsent", 0) == 0


@pytest.mark.parametrize(("sequence", "most"), [("false", 65_507), ("true", 65_487)])
def test_more_than_a_datagram_holds_is_an_error_that_names_the_key(sequence: str, most: int) -> None:
    settings = udp(
        streams__lines__connect="127.0.0.1:9", framing="lines", datagram__bytes=most + 1, sequence=sequence
    )
    with (
        sending(UDP, settings) as producer,
        pytest.raises(ConfigError, match=f"systems.t.datagram.bytes: .*holds {most} bytes"),
    ):
        send(producer, b"a")


def test_what_was_sent_to_an_earlier_receiver_is_not_missing() -> None:
    settings = udp(streams__lines__listen=str(free_ports(1, "udp")), sequence="true")
    with sending(UDP, settings) as producer:
        for life in (b"a", b"b"):
            with receiving(UDP, settings) as receiver:
                for _ in range(10):
                    send(producer, life)
                assert receiver.receive(10) == [life] * 10
                assert receiver.counted("datagrams-missing") == 0


def test_each_partition_has_its_own_port() -> None:
    first = free_ports(2, "udp")
    settings = udp(streams__lines__listen=str(first), streams__lines__partitions=2)
    ssps = [SystemStreamPartition("t", "lines", number) for number in range(2)]
    with receiving(UDP, settings, *ssps) as receiver, sending(UDP, settings) as producer:
        send(producer, b"a", partition=1)
        send(producer, b"b")
        found = receiver.until(lambda: receiver.counted("messages-read") == 2)
        assert {(each.ssp.partition, each.message) for each in found} == {(1, b"a"), (0, b"b")}


def test_what_cannot_be_sent_is_an_error() -> None:
    with sending(UDP, udp(streams__lines__connect="127.0.0.1:9", framing="lines")) as producer:
        for message, error in (
            (b"x" * 65_508, MessageTooLargeError),
            ("text", SerdeError),
            (None, SerdeError),
            (b"a\nb", SerdeError),
        ):
            with pytest.raises(error):
                send(producer, message)
        with pytest.raises(UnknownStreamError):
            send(producer, b"a", partition=1)
    with sending(UDP, udp(streams__lines__connect="[::zz]:9")) as producer, pytest.raises(StreamSystemError):
        send(producer, b"a")


def test_a_port_that_is_taken_is_an_error_that_names_the_key() -> None:
    with receiving(UDP, udp()) as receiver:
        with pytest.raises(ConfigError, match="address already in use") as caught:
            receiving(
                UDP, udp(streams__lines__listen=str(receiver.address()), listen__timeout__ms=0)
            ).__enter__()
        assert caught.value.key == "systems.t.streams.lines.listen"
