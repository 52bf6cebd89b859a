"""One partition of a ``tcp`` stream: a listening socket, its connections, and what they have sent.

All sockets are non-blocking, and are looked at in ``take`` alone, on the thread that polls. ``acknowledge``
answers the senders on its own thread: one lock guards everything.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from typing import Any

from streambench import descriptors
from streambench.chunk import Chunk
from streambench.locks import not_for_children
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.address import Address, announce, listening_socket
from streambench.system.net.acks import Acks
from streambench.system.net.connection import NOT_NOW, Connection, is_exhausted
from streambench.system.net.framing import Framing
from streambench.system.net.settings import TcpSettings
from streambench.system.net.slots import LITTLE, Slots

log = logging.getLogger(__name__)

_BACKLOG = 4096
_MOST_AT_ONCE = 128 << 10
_ACCEPTED_AT_ONCE = 32
_CLOSING_S = 2.0
_CLOSING_BYTES = 1 << 20
_QUIET_S = 10.0


class Counters:
    """Counters of the connections of one system."""

    def __init__(self, system: str, metrics: MetricsRegistry) -> None:
        def counter(name: str) -> Any:
            return metrics.counter(f"{system}-{name}", "tcp")

        self.read = counter("messages-read")
        self.accepted = counter("connections-accepted")
        self.lost = counter("connections-lost")
        self.cut_off = counter("messages-cut-off")
        self.refused = {
            kind: counter(f"connections-refused-{kind}")
            for kind in ("too-large", "malformed", "slow", "idle", "too-many", "exhausted")
        }


class Listener:
    """Receives one partition.

    Its memory is bounded. One read of one socket limits what has arrived and was not taken. Of an unfinished
    message a connection holds a little. It needs a slot to hold as much as a message may have, and
    ``unfinished_bytes`` limits the slots.
    ``unacknowledged_bytes`` limits what was delivered and is not acknowledged.
    """

    def __init__(
        self,
        ssp: SystemStreamPartition,
        address: Address,
        start: int,
        settings: TcpSettings,
        framing: Framing,
        tls: ssl.SSLContext | None,
        counters: Counters,
    ) -> None:
        self.ssp = ssp
        self.address = address
        self.at_head = False
        self.is_held = False
        """Nothing is delivered until more is acknowledged."""
        self.selector = selectors.DefaultSelector()
        self.connections: dict[Connection, None] = {}
        self.settings = settings
        self._framing = framing
        self._tls = tls
        self._counters = counters
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._ready: deque[Connection | None] = deque()
        self._waiting: deque[tuple[Connection, list[Any]]] = deque()
        self._next = start
        self._acks = Acks()
        self._arrived = self._safe = 0
        self._marks: deque[tuple[int, int]] = deque()
        """Of what is not acknowledged: offsets, and how many bytes had arrived when those before them were
        delivered."""
        self._buffer = memoryview(bytearray(_MOST_AT_ONCE))
        slots = max(1, settings.unfinished_bytes // settings.max_message_bytes)
        self._slots = Slots(slots, self.selector)
        self._answered_later: dict[Connection, None] = {}
        self._silent: dict[Connection, None] = {}
        """Those on which no message has come, the oldest first."""
        self._warned: dict[str, float] = {}
        self._frame_timeout_s = settings.frame_timeout_ms / 1000
        self._idle_timeout_s = settings.idle_timeout_ms / 1000
        timeouts_s = [each for each in (self._frame_timeout_s, self._idle_timeout_s) if each]
        self.tick_s = min([1.0, *(each / 4 for each in timeouts_s)])
        self._seen = self._swept = time.monotonic()

    def open(self) -> None:
        listening = listening_socket(self.address, _BACKLOG, self.settings.receive_buffer_bytes)
        self._socket = listening
        asked, self.address = self.address.port, Address(self.address.host, listening.getsockname()[1])
        self.selector.register(listening, selectors.EVENT_READ, None)
        announce(self.ssp, f"tcp://{self.address}{' (TLS)' if self._tls else ''}", asked=asked)

    def close(self) -> None:
        """Close all connections: what was not acknowledged is theirs to send again."""
        with self._lock:
            for connection in list(self.connections):
                with contextlib.suppress(OSError):
                    connection.acknowledge()
                self._close(connection)
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self.selector.close()
            self._waiting.clear()
            self._ready.clear()

    def take(self, at_most: int) -> Chunk | None:
        """The next messages, without waiting for any."""
        with self._lock:
            now = time.monotonic()
            if now - self._seen > 2 * self.tick_s:
                self._extend_deadlines(now)
            self._seen = now
            if self._is_full():
                return None
            found: list[Any] = []
            looked = served = False
            while len(found) < at_most:
                if self._waiting:
                    self._deliver(found, at_most)
                elif self._ready:
                    served = True
                    self._serve(self._ready.popleft(), now)
                elif looked:
                    break
                else:
                    looked = True
                    self._ready.extend(key.data for key, _ in self.selector.select(0))
            self.at_head = not found and not served
            if now - self._swept >= self.tick_s and not self._ready:
                self._sweep(now)
            if not found:
                return None
            self._counters.read.count += len(found)
            if self.settings.acknowledge:
                self._marks.append((self._next, self._arrived))
            return self._framing.chunk(self.ssp, self._next - len(found), found)

    def acknowledge(self, offset: int) -> None:
        """Acknowledge to the senders what they sent, up to and including this offset."""
        with self._lock:
            while self._marks and self._marks[0][0] <= offset + 1:
                self._safe = self._marks.popleft()[1]
            for connection, safe in self._acks.up_to(offset).items():
                connection.safe = safe
                if not connection.is_closed and connection.until is None:
                    self._answer(connection)
                    self._end_half(connection)

    # What a connection sends

    def _is_full(self) -> bool:
        """True if so much is not acknowledged that nothing more may be delivered."""
        waits = self._arrived - self._safe
        self.is_held = bool(self._marks) and waits > self.settings.unacknowledged_bytes
        if self.is_held:
            self.at_head = False
            self._warn(
                "full",
                f"{waits} bytes wait to be acknowledged (unacknowledged.bytes); more is read when the job "
                "has committed",
            )
        return self.is_held

    def _deliver(self, found: list[Any], at_most: int) -> None:
        connection, messages = self._waiting[0]
        room = at_most - len(found)
        if len(messages) > room:
            self._waiting[0] = (connection, messages[room:])
            messages = messages[:room]
        else:
            self._waiting.popleft()
        found += messages
        self._next += len(messages)
        if self.settings.acknowledge:
            self._acks.add(connection, self._next, len(messages))

    def _serve(self, connection: Connection | None, now: float) -> None:
        if connection is None:
            self._accept(now)
        elif not connection.is_closed and connection not in self._slots.waiting:
            try:
                most = _MOST_AT_ONCE if self._slots.may_hold_much(connection) else LITTLE
                size = connection.sock.recv_into(self._buffer, most)
            except NOT_NOW:
                return
            except OSError as error:
                self._lose(connection, error)
                return
            if connection.until is not None:
                connection.received += size
                if not size or connection.received > _CLOSING_BYTES:
                    self._close(connection)
            elif size:
                self._receive(connection, size, now)
            else:
                self._end(connection)

    def _receive(self, connection: Connection, size: int, now: float) -> None:
        splitter = connection.splitter
        messages = splitter.split(bytes(self._buffer[:size]))
        self._arrived += size
        connection.heard = now
        if messages:
            connection.received += len(messages)
            self._silent.pop(connection, None)
            self._waiting.append((connection, messages))
        if splitter.refusal is not None:
            kind = "too-large" if splitter.is_too_large else "malformed"
            self._refuse(connection, kind, splitter.refusal, now)
        elif not splitter.unfinished:
            connection.began = None
        elif connection.began is None or messages:
            connection.began = now
        self._slots.adjust(connection)

    # How connections begin and end

    def _accept(self, now: float) -> None:
        assert self._socket is not None
        room = descriptors.spare()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, peer = self._socket.accept()
            except NOT_NOW:
                return
            except OSError as error:
                if is_exhausted(error):
                    # Still readable, it would be tried without end; the next sweep tries again.
                    self.selector.unregister(self._socket)
                    remedy = "raise the limit of open files (ulimit -n)"
                    why = f"no connection can be accepted: {error.strerror}; {remedy}"
                    self._count_refusal("exhausted", why)
                    return
                continue  # this one is gone already
            sock.setblocking(False)
            named = str(Address(peer[0], peer[1]))
            count = len(self.connections)
            is_full = count >= self.settings.max_connections or room <= 0
            room -= not is_full
            if is_full and not self._close_silent():
                why = f"{named} is refused: {count} connections are open (max.connections)"
                self._count_refusal("too-many", why)
                with contextlib.suppress(OSError):
                    sock.send(b"busy: %d connections are open already\n" % count)
                sock.close()
                continue
            self._admit(sock, named, now)

    def _close_silent(self) -> bool:
        """Close the oldest connection on which no message has come, so that a flood of silent ones does not
        keep others out."""
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        count = len(self.connections)
        why = f"{oldest.peer} has sent nothing, and makes way for another: {count} connections are open"
        self._count_refusal("too-many", why)
        oldest.close_gracefully("busy: others wait for a connection, and nothing came on this one")
        self._close(oldest)
        return True

    def _admit(self, sock: socket.socket, peer: str, now: float) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError:  # it is gone already
            sock.close()
            return
        connection = Connection(
            not_for_children(sock), peer, self._framing.splitter(self.settings.max_message_bytes), now
        )
        if self._tls is not None:
            connection.began = now
        self._counters.accepted.count += 1
        self.connections[connection] = self._silent[connection] = None
        self.selector.register(sock, selectors.EVENT_READ, connection)
        # What was sent with the connection is there already, as a rule.
        self._ready.append(connection)

    def _end(self, connection: Connection) -> None:
        """The sender will send nothing more."""
        self._cut_off(connection)
        if not self.settings.acknowledge or connection.safe >= connection.received:
            self._close(connection)
            return
        connection.is_half = True
        self.selector.unregister(connection.sock)
        # Where it does not listen either, the answer to this shows it.
        self._answer(connection, anyway=True)

    def _end_half(self, connection: Connection) -> None:
        if (
            connection.is_half
            and not connection.is_closed
            and connection.safe >= connection.received
            and not connection.unsent
        ):
            self._close(connection)

    def _lose(self, connection: Connection, error: OSError) -> None:
        self._counters.lost.count += 1
        log.info("%s: the connection of %s is lost: %s", self.ssp, connection.peer, error.strerror or error)
        self._cut_off(connection)
        self._close(connection)

    def _cut_off(self, connection: Connection) -> None:
        if connection.splitter.unfinished and connection.until is None:
            self._counters.cut_off.count += 1
            size = connection.splitter.unfinished
            log.info(
                "%s: %s stopped in the middle of a message, of which %d bytes are discarded",
                self.ssp,
                connection.peer,
                size,
            )
            connection.splitter.forget()

    def _refuse(
        self, connection: Connection, kind: str, why: str, now: float, *, word: str = "error"
    ) -> None:
        """Say why nothing more is read of a connection; ``busy``: trying again may help."""
        number = f"message {connection.received + 1}: " if word == "error" else ""
        self._count_refusal(kind, f"{connection.peer} is refused: {number}{why}")
        connection.close_gracefully(f"{word}: {number}{why}")
        connection.until = now + _CLOSING_S
        connection.received = 0
        connection.began = None

    def _close(self, connection: Connection) -> None:
        if connection.is_closed:
            return
        if not connection.is_half and connection not in self._slots.waiting:
            self.selector.unregister(connection.sock)
        self._slots.waiting.pop(connection, None)
        self._answered_later.pop(connection, None)
        self._silent.pop(connection, None)
        self.connections.pop(connection, None)
        connection.close()
        if connection.has_slot:
            self._slots.release(connection)

    def _answer(self, connection: Connection, *, anyway: bool = False) -> None:
        try:
            if connection.acknowledge(anyway=anyway):
                self._answered_later.pop(connection, None)
            else:
                self._answered_later[connection] = None
        except OSError as error:
            self._lose(connection, error)

    # As time goes by

    def _sweep(self, now: float) -> None:
        self._swept = now
        for connection in list(self._answered_later):
            self._answer(connection)
            self._end_half(connection)
        for connection in list(self.connections):
            self._check_deadlines(connection, now)
        if self._socket is not None and self._socket not in self.selector.get_map():
            self.selector.register(self._socket, selectors.EVENT_READ, None)

    def _check_deadlines(self, connection: Connection, now: float) -> None:
        frame_s, idle_s = self._frame_timeout_s, self._idle_timeout_s
        if connection.until is not None:
            if now >= connection.until:
                self._close(connection)
        elif connection.is_half:
            if connection.is_lost():
                self._close(connection)
        elif connection in self._slots.waiting:
            pass
        elif frame_s and connection.began is not None and now - connection.began > frame_s:
            self._cut_off(connection)
            why = f"it was not complete after {frame_s:g} seconds (frame.timeout.ms)"
            self._refuse(connection, "slow", why, now)
            self._slots.adjust(connection)
        elif idle_s and now - connection.heard > idle_s and not self._awaits_ack(connection):
            why = f"nothing came for {idle_s:g} seconds (idle.timeout.ms)"
            self._refuse(connection, "idle", why, now, word="busy")

    def _awaits_ack(self, connection: Connection) -> bool:
        return self.settings.acknowledge and connection.safe < connection.received

    def _extend_deadlines(self, now: float) -> None:
        """Extend the deadlines of senders by the time in which nothing was read for want of room."""
        late = now - self._seen
        for connection in self.connections:
            connection.heard += late
            if connection.began is not None:
                connection.began += late
            if connection.until is not None:
                connection.until += late
        self._swept = now

    def _count_refusal(self, kind: str, text: str) -> None:
        """Count and log a refusal."""
        self._counters.refused[kind].count += 1
        self._warn(kind, text)

    def _warn(self, kind: str, text: str) -> None:
        """Warn, unless the same was logged just now."""
        now = time.monotonic()
        if now - self._warned.get(kind, -_QUIET_S) >= _QUIET_S:
            self._warned[kind] = now
            log.warning("%s: %s", self.ssp, text)
