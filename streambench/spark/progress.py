"""Progress of the containers while Spark runs them.

Spark itself reports nothing of a task before it ends. Each container therefore sends a datagram now and then
to the process that deploys. Datagrams need no connection, hold up no process, and may be lost: where a
network lets none through, the display stays at 0 and everything else goes on.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import time
from typing import Literal

import msgspec
from msgspec import Struct

from streambench.spark.result import DeployProgress

Stage = Literal["active", "done"]


class Address(Struct, frozen=True):
    """The address to send to, and the secret by which a datagram is known to come from one of the own
    containers."""

    host: str
    port: int
    secret: bytes


class _Note(Struct, array_like=True):
    container: int
    attempt: int
    stage: Stage
    messages: int


class Listener:
    """Gathers what the containers of one round send. ``host``: the address at which the executors reach this
    process. ``began``: when the round did (``time.monotonic()``), now if not given."""

    def __init__(
        self, host: str, containers: int, total: int | None, round: int = 1, began: float | None = None
    ) -> None:
        self._began = time.monotonic() if began is None else began
        self._containers = containers
        self._total = total
        self._round = round
        self._notes: dict[int, _Note] = {}
        self._secret = secrets.token_bytes(16)
        self._decoder = msgspec.msgpack.Decoder(_Note)
        self._socket: socket.socket | None = None
        self.address: Address | None = None
        try:
            family, _, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            self._socket.bind(place)
            self._socket.setblocking(False)
            bound = self._socket.getsockname()
            self.address = Address(bound[0], bound[1], self._secret)
        except OSError:
            self.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self) -> DeployProgress:
        """The progress known by now. Never waits."""
        while self._socket is not None:
            try:
                datagram = self._socket.recv(1024)
            except OSError:
                break
            if hmac.compare_digest(datagram[:16], self._secret):
                self._take(datagram[16:])
        stages = [note.stage for note in self._notes.values()]
        return DeployProgress(
            containers=self._containers,
            active=stages.count("active"),
            done=stages.count("done"),
            total=self._total,
            messages=sum(note.messages for note in self._notes.values()),
            seconds=time.monotonic() - self._began,
            round=self._round,
        )

    def close(self) -> None:
        """Hear no more; may be called more than once."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _take(self, body: bytes) -> None:
        try:
            note = self._decoder.decode(body)
        except msgspec.MsgspecError:
            return
        known = self._notes.get(note.container)
        if (
            known is None
            or note.attempt > known.attempt
            or (note.attempt == known.attempt and known.stage != "done")
        ):
            self._notes[note.container] = note


class Teller:
    """Reports to the deploying process how far a container is. Says nothing where it has no address or the
    network refuses."""

    def __init__(self, address: Address | None, container: int, attempt: int) -> None:
        self._address = address
        self._container = container
        self._attempt = attempt
        self._socket: socket.socket | None = None

    def report(self, stage: Stage, messages: int) -> None:
        """Send it, without waiting."""
        if self._address is None:
            return
        try:
            if self._socket is None:
                family = (
                    socket.AF_INET6
                    if ipaddress.ip_address(self._address.host).version == 6
                    else socket.AF_INET
                )
                self._socket = socket.socket(family, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            note = msgspec.msgpack.encode(_Note(self._container, self._attempt, stage, messages))
            self._socket.sendto(self._address.secret + note, (self._address.host, self._address.port))
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Send no more reports."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
