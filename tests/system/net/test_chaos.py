"""Many senders that do anything at any time: nothing breaks, nothing is invented, nothing leaks."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

import pytest

from streambench.system.net import TcpSystemFactory
from tests.surroundings import SOAK
from tests.system.net.peers import config, receiving

STEPS = 50_000 if SOAK else 1_500
MOST = 40_000


class Sender:
    """A connection; what it completed, and what it was told."""

    def __init__(self, sock: socket.socket, name: int) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.name = name
        self.sent = 0
        self.told = b""
        self.is_bad = False
        self._left = b""

    def send(self, chance: random.Random) -> None:
        if not self._left:
            length = chance.choice((0, 1, 10, 1000, 20_000, MOST - 16))
            body = b"%d:%d:" % (self.name, self.sent)
            self._left = len(body + bytes(length)).to_bytes(4, "big") + body + bytes(length)
            self.sent += 1
        part = self._left[: chance.choice((1, 4, 5, 3000, 1 << 20))]
        self._left = self._left[self.sock.send(part) :]

    def misbehave(self, chance: random.Random) -> None:
        if not self._left:
            self.is_bad = True
            self.sock.send(chance.choice((b"\xff" * 10, (MOST + 1).to_bytes(4, "big"))))

    def listen(self) -> None:
        self.told += self.sock.recv(1000)


@pytest.mark.parametrize("seed", range(3))
def test_each_sender_is_received_in_order_and_acked_no_more_than_it_sent(seed: int) -> None:
    chance = random.Random(seed)
    settings = config(
        framing="length",
        max__message__bytes=MOST,
        unfinished__bytes=2 * MOST,
        max__connections=12,
        frame__timeout__ms=150,
        idle__timeout__ms=400,
        unacknowledged__bytes=300_000,
    )
    senders: list[Sender] = []
    names, delivered, acknowledged = 0, 0, -1
    got: dict[int, int] = {}
    with receiving(TcpSystemFactory(), settings) as receiver:
        (listener,) = receiver.consumer._ports.values()  # type: ignore[attr-defined]
        for _ in range(STEPS):
            if len(senders) < 16 and chance.random() < 0.1:
                senders.append(Sender(receiver.connect(), names))
                names += 1
            if senders:
                sender = chance.choice(senders)
                action = chance.choice(
                    ("send", "send", "send", "send", "listen", "misbehave", "shut", "close", "reset")
                )
                if action in ("misbehave", "shut", "close", "reset") and chance.random() < 0.8:
                    action = "send"
                try:
                    if action == "send":
                        sender.send(chance)
                    elif action == "listen":
                        sender.listen()
                    elif action == "misbehave":
                        sender.misbehave(chance)
                    elif action == "shut":
                        sender.sock.shutdown(socket.SHUT_WR)
                    else:
                        if action == "reset":
                            sender.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                        sender.sock.close()
                        senders.remove(sender)
                except BlockingIOError:
                    pass
                except OSError:
                    sender.sock.close()
                    senders.remove(sender)
            for each in receiver.poll(chance.choice((0, 0, 0, 1)), at_most=chance.choice((1, 5, 1000))):
                name, number, _ = each.message.split(b":", 2)
                assert int(number) == got.get(int(name), 0)
                got[int(name)] = int(number) + 1
                assert int(each.offset) == delivered
                delivered += 1
            if delivered and chance.random() < 0.1:
                acknowledged = chance.randint(max(0, acknowledged), delivered - 1)
                receiver.acknowledge(acknowledged)
            with_slot = sum(each.has_slot for each in listener.connections)
            assert listener._slots.free + with_slot == 2
            quiet = sum(each.is_half for each in listener.connections) + len(listener._slots.waiting)
            assert len(listener.selector.get_map()) == 1 + len(listener.connections) - quiet
            assert (
                sum(each.splitter.unfinished for each in listener.connections)
                < 2 * (MOST + 200_000) + 12 * 33_000
            )
        for sender in senders:
            sender.sock.setblocking(True)
            sender.sock.settimeout(0.01)
            with suppress(OSError):
                while data := sender.sock.recv(1000):
                    sender.told += data
            counts = [int(line) for line in sender.told.splitlines()[:-1] if line.isdigit()]
            assert counts == sorted(counts) and all(count <= got.get(sender.name, 0) for count in counts)
            sender.sock.close()
        for each in receiver.until(lambda: receiver.acknowledge(1 << 40) or not listener.connections):
            name, number, _ = each.message.split(b":", 2)
            assert int(number) == got.get(int(name), 0)
            got[int(name)] = int(number) + 1
            delivered += 1
        assert listener._slots.free == 2 and len(listener.selector.get_map()) == 1
    assert got and delivered == sum(got.values())
