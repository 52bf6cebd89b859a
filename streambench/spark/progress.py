"""Progress of the containers while Spark runs them.

Spark itself reports nothing of a task before it ends. Each container therefore sends a datagram now and then
to the process that deploys. Datagrams need no connection, hold up no process, and may be lost. Where a
network lets none through, the display stays at 0 and everything else continues.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from streambench.spark.result import ContainerProgress, DeployProgress, progress_of

ReportedStage = Literal["running", "done", "failed"]

_RATE_OVER_S = 5.0
_LARGEST = 4096
# As UTF-8 it stays below the largest datagram.
_LONGEST_ERROR = 500


class Address(Struct, frozen=True):
    """The address to send to, and the secret by which a datagram is known to come from one of the own
    containers."""

    host: str
    port: int
    secret: bytes


class Note(Struct, array_like=True, frozen=True):
    """A report of a container: fields as in ContainerProgress, ``messages`` of this attempt alone."""

    container: int
    attempt: int
    stage: ReportedStage
    messages: int = 0
    left: int | None = None
    partitions_done: int = 0
    error: str = ""
    busy: str = ""
    busy_s: float = 0.0


class Listener:
    """Gathers what the containers of one round send. ``host``: the address at which the executors reach this
    process. ``planned``: the containers of ``job``, waiting. ``began``: when the round did, now if not
    given."""

    def __init__(
        self,
        host: str,
        planned: Sequence[ContainerProgress],
        job: str = "",
        round: int = 1,
        began: float | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._opened = now()
        self._began = self._opened if began is None else began
        self._planned = planned
        self._job = job
        self._round = round
        self._heard: dict[int, tuple[float, Note]] = {}
        self._counts: deque[tuple[float, int]] = deque()
        self._secret = secrets.token_bytes(16)
        self._decoder = msgspec.msgpack.Decoder(Note)
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
                datagram = self._socket.recv(_LARGEST)
            except OSError:
                break
            if hmac.compare_digest(datagram[:16], self._secret):
                self._take(datagram[16:])
        now = self._now()
        each = [self._of(container, now) for container in self._planned]
        return progress_of(
            each,
            seconds=now - self._began,
            running_s=now - self._opened,
            job=self._job,
            round=self._round,
            rate=self._rate(now, sum(container.messages for container in each)),
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
        _, known = self._heard.get(note.container, (0.0, None))
        if (
            known is None
            or note.attempt > known.attempt
            or (note.attempt == known.attempt and known.stage == "running")
        ):
            self._heard[note.container] = self._now(), note

    def _of(self, planned: ContainerProgress, now: float) -> ContainerProgress:
        """A container as it was last heard."""
        if planned.number not in self._heard:
            return planned
        at, note = self._heard[planned.number]
        messages, left = note.messages, planned.total if note.left is None else note.left
        if note.attempt and left is not None and planned.total is not None:
            messages = planned.total - left  # what earlier attempts have committed counts, too
        return replace(
            planned,
            stage=note.stage,
            attempt=note.attempt,
            messages=messages,
            left=left,
            partitions_done=note.partitions_done,
            silent_s=now - at if note.stage == "running" else 0.0,
            error=note.error,
            busy=note.busy,
            busy_s=note.busy_s + now - at if note.busy else 0.0,
        )

    def _rate(self, now: float, messages: int) -> float:
        """Messages per second over the last seconds."""
        self._counts.append((now, messages))
        while now - self._counts[0][0] > _RATE_OVER_S:
            self._counts.popleft()
        since, before = self._counts[0]
        return max(0, messages - before) / (now - since) if now > since else 0.0


class ProgressReporter:
    """Reports to the deploying process how far a container is. Says nothing where it has no address or the
    network refuses."""

    def __init__(self, address: Address | None, container: int, attempt: int) -> None:
        self._address = address
        self._container = container
        self._attempt = attempt
        self._socket: socket.socket | None = None
        self._last = Note(container, attempt, "running")

    def report(
        self,
        stage: ReportedStage,
        messages: int = 0,
        left: int | None = None,
        partitions_done: int = 0,
        error: str = "",
    ) -> None:
        """Send it, without waiting. Of the error, its first line."""
        line = error.partition("\n")[0][:_LONGEST_ERROR]
        self._last = Note(self._container, self._attempt, stage, messages, left, partitions_done, line)
        self._send(self._last)

    def report_busy(self, what: str, seconds: float) -> None:
        """Send the last report once more, and what the container has been busy with for so long. May be
        called on another thread than ``report``."""
        if self._last.stage == "running":
            self._send(replace(self._last, busy=what, busy_s=seconds))

    def _send(self, note: Note) -> None:
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
            datagram = self._address.secret + msgspec.msgpack.encode(note)
            self._socket.sendto(datagram, (self._address.host, self._address.port))
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Send no more reports."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
