"""The producer of ``tcp``: one connection for each partition, on the container's own thread."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import time
from collections import deque
from typing import Any, NoReturn

from streambench.errors import StreambenchError, StreamSystemError, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.adapters import SenderProducer
from streambench.system.address import Address
from streambench.system.api import PartitionAppenders, Sender
from streambench.system.net.connection import NOT_NOW
from streambench.system.net.framing import FRAMINGS, Framing
from streambench.system.net.settings import Streams, TcpSettings, tcp_settings

log = logging.getLogger(__name__)

_AT_ONCE = 64 << 10
_FIELDS = 3
_TOLERANT = ("task.drop.serialization.errors", "task.dead.letter.stream")
_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_LONGEST_ANSWER = 4096
_WARN_AFTER_S = 1.5


class TcpProducer(SenderProducer):
    """Sends to the receivers of one system, at least once.

    A message is kept until the receiver has acknowledged it. Where the connection is lost before that, it is
    sent again over a new one, and may then arrive twice. ``flush`` returns when all is acknowledged. ``send``
    waits once as much as ``send.buffer.bytes`` is not. With ``acknowledge=false`` nothing is kept. ``flush``
    returns when the kernel has taken all, and what is on its way when a connection is lost is lost as well.

    Once a partition has failed, all that is sent to it later fails at once, with the same error. A task that
    has waited for a receiver in vain must not wait as long again when it flushes. Another producer begins
    again.
    """

    def __init__(self, streams: Streams, metrics: MetricsRegistry) -> None:
        super().__init__()
        self._streams = streams
        self._reconnects = metrics.counter(f"{streams.system}-reconnects", "tcp")
        self._sent_again = metrics.counter(f"{streams.system}-messages-sent-again", "tcp")
        self._connections: dict[SystemStream, list[TcpConnection]] = {}

    def stop(self) -> None:
        super().stop()
        for connection in self._all():
            connection.disconnect()
        self._connections.clear()

    def _new_sender(self, stream: SystemStream) -> Sender:
        connections = self._connections_of(stream)
        frame = connections[0].framing.frame

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            try:
                connection = connections[partition]
            except IndexError:
                raise no_partition(stream, partition, len(connections)) from None
            if connection.fields:
                connection.take_plain()
            data = frame(envelope, key, message)
            connection.fresh.append(data)
            connection.fresh_bytes += len(data)
            if connection.fresh_bytes >= _AT_ONCE:
                connection.push()

        return send

    def appends(self, stream: SystemStream) -> PartitionAppenders | None:
        connections, config = self._connections_of(stream), self._streams.config
        may_fail = connections[0].settings.framing == "lines"
        if may_fail and any(config.text(key) not in (None, "false") for key in _TOLERANT):
            return None  # which message has a newline in it has to be known at once
        limits = [each.apply_limits for each in connections]

        def apply_limits() -> None:
            for each in limits:
                each()

        extends = [each.fields.extend for each in connections]
        return PartitionAppenders(extends, connections[0].framing.largest, apply_limits)

    def flush(self, source: str) -> None:
        for connection in self._all():
            connection.push()
        for connection in self._all():
            connection.finish()

    def _all(self) -> list[TcpConnection]:
        return [each for connections in self._connections.values() for each in connections]

    def _connections_of(self, stream: SystemStream) -> list[TcpConnection]:
        if stream not in self._connections:
            key, addresses = self._streams.connecting(stream)
            settings = tcp_settings(self._streams.config, stream)
            tls = self._tls(stream, settings)
            framing = FRAMINGS[settings.framing](stream, settings.max_message_bytes)
            self._connections[stream] = [
                TcpConnection(f"{stream}.{number}", address, key, settings, framing, tls, self)
                for number, address in enumerate(addresses)
            ]
        return self._connections[stream]

    def _tls(self, stream: SystemStream, settings: TcpSettings) -> ssl.SSLContext | None:
        if settings.tls_ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=settings.tls_ca)
        except (OSError, ssl.SSLError) as error:
            key = self._streams.config.stream_key(stream.system, stream.stream, "tls.ca")
            raise self._streams.config.error(
                key, f"{settings.tls_ca} holds no certificates: {error}"
            ) from error

    def reconnected(self, sent_again: int) -> None:
        """Count a new connection, over which so many messages are sent again."""
        self._reconnects.count += 1
        self._sent_again.count += sent_again


class _Refused(StreamSystemError):
    """The receiver refuses what it was sent, for good."""


class TcpConnection:
    """The connection to the receiver of one partition.

    ``fields`` (key, message, None, and so on) and ``fresh`` (frames) are what was added since the last
    ``push``. ``_frames`` holds what is not acknowledged (or, without acknowledgements, not written), in
    order. Of these, ``_sent`` have been handed to the connection, whose bytes that are not written
    are ``_unwritten``. The receiver counts what it got over this connection; ``_acked`` is what it last said.
    """

    def __init__(
        self,
        name: str,
        address: Address,
        key: str,
        settings: TcpSettings,
        framing: Framing,
        tls: ssl.SSLContext | None,
        producer: TcpProducer,
    ) -> None:
        self.settings = settings
        self.framing = framing
        self.fields: list[Any] = []
        self._name = name
        self._address = address
        self._key = key
        self._tls = tls
        self._producer = producer
        self._socket: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None
        self._frames: deque[bytes] = deque()
        self.fresh: list[bytes] = []
        self.fresh_bytes = 0
        self._kept_bytes = 0
        self._sent = 0
        self._unwritten = memoryview(b"")
        self._acked = 0
        self._answer = b""
        self._was_connected = False
        self._pause_s = _SHORTEST_PAUSE_S / 2
        self._not_before = 0.0
        self._failure: StreambenchError | None = None
        self._last_progress = 0.0
        """The time of the last acknowledgement (or write), or since when one is awaited."""

    def apply_limits(self) -> None:
        """Write the kept messages once there are enough of them."""
        if self.fields:
            self.take_plain()
        if self.fresh_bytes >= _AT_ONCE:
            self.push()

    def take_plain(self) -> None:
        """Make frames of ``fields``. Raises SerdeError where a message cannot be framed: it and those behind
        it are gone."""
        keys, messages = self.fields[0::_FIELDS], self.fields[1::_FIELDS]
        self.fields.clear()
        try:
            frames = self.framing.frames(keys, messages)
        except StreambenchError as error:
            self._failure = self._failure or error
            raise
        self.fresh += frames
        self.fresh_bytes += sum(map(len, frames))

    def push(self) -> None:
        """Write what there is without waiting; but wait where too much is kept."""
        self._keep_fresh()
        if self._frames:
            self._exchange(0)
        if self._kept_bytes > self.settings.send_buffer_bytes:
            self._work_until(lambda: self._kept_bytes <= self.settings.send_buffer_bytes // 2)

    def finish(self) -> None:
        """Return when everything is acknowledged (or, without acknowledgements, written)."""
        self._keep_fresh()
        self._work_until(lambda: not self._frames and not self._unwritten)

    def disconnect(self) -> None:
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        if self._socket is not None:
            # With something left to read, what is still on its way would be thrown away.
            with contextlib.suppress(OSError):
                while self._socket.recv(_LONGEST_ANSWER):
                    pass
            self._socket.close()
            self._socket = None

    def _keep_fresh(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.fields:
            self.take_plain()
        if self.fresh:
            if not self._frames:
                self._last_progress = time.monotonic()
            self._frames.extend(self.fresh)
            self._kept_bytes += self.fresh_bytes
            self.fresh, self.fresh_bytes = [], 0

    def _work_until(self, is_done: Any) -> None:
        while not is_done():
            left = self._last_progress + self.settings.acknowledge_timeout_ms / 1000 - time.monotonic()
            if left <= 0:
                self._fail(self._not_acknowledged())
            self._exchange(left)

    def _fail(self, error: StreamSystemError, cause: BaseException | None = None) -> NoReturn:
        self.disconnect()
        self._failure = error
        raise error from cause

    def _not_acknowledged(self) -> StreamSystemError:
        seconds = f"{self.settings.acknowledge_timeout_ms / 1000:g} seconds"
        if not self.settings.acknowledge:
            return StreamSystemError(f"{self._name}: {self._address} has read nothing for {seconds}")
        return StreamSystemError(
            f"{self._name}: {self._address} has not acknowledged {len(self._frames)} messages: nothing new "
            f"was said for {seconds}. A job acknowledges with its commits: set its task.commit.ms below "
            f"that, or {self._streams_key('acknowledge.timeout.ms')} above. A receiver that never does takes "
            f"{self._streams_key('acknowledge')}=false"
        )

    def _streams_key(self, name: str) -> str:
        return f"{self._key.rpartition('.')[0]}.{name}"

    def _exchange(self, timeout_s: float) -> None:
        """Write and read what can be, after waiting so long at most for the first of it. Connects where there
        is no connection."""
        try:
            if self._socket is None:
                self._connect()
            sock, selector = self._socket, self._selector
            assert sock is not None and selector is not None
            # What it has said comes first: that it is gone, perhaps.
            self._read(sock)
            self._fill()
            self._write(sock)
            if timeout_s > 0 and (self._frames or self._unwritten):
                selector.modify(
                    sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unwritten else 0)
                )
                selector.select(timeout_s)
        except _Refused as error:
            self._fail(error, error.__cause__)
        except OSError as error:
            log.info(
                "%s: the connection to %s is lost: %s", self._name, self._address, error.strerror or error
            )
            self._lose()

    def _lose(self) -> None:
        """Begin again, after a pause that becomes longer as long as nothing is acknowledged."""
        self.disconnect()
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._not_before = time.monotonic() + self._pause_s
        if not self.settings.acknowledge and self._unwritten:
            # It is not known how much of it arrived.
            self._unwritten = memoryview(b"")

    # The connection

    def _connect(self) -> None:
        """Connect, trying for as long as is configured. Raises StreamSystemError."""
        began = time.monotonic()
        for_s = self.settings.connect_timeout_ms / 1000
        until = began + for_s
        is_reported = False
        while True:
            time.sleep(max(0.0, min(self._not_before, until) - time.monotonic()))
            try:
                self._open(max(0.1, until - time.monotonic()))
                return
            except OSError as error:
                self._lose()
                reason = (error.strerror or str(error)).lower()
                now = time.monotonic()
                if isinstance(error, ssl.SSLCertVerificationError) or now >= until:
                    failure = StreamSystemError(
                        f"{self._name}: no receiver listens at {self._address} ({self._key}): {reason}; "
                        f"tried for {for_s:g} seconds (connect.timeout.ms). Start the receiver first, or "
                        "mend the address"
                    )
                    self._fail(failure, error)
                if not is_reported and now - began >= _WARN_AFTER_S:
                    is_reported = True
                    log.warning(
                        "%s: no receiver listens at %s yet (%s); trying for %g seconds",
                        self._name,
                        self._address,
                        reason,
                        for_s,
                    )

    def _open(self, timeout_s: float) -> None:
        sock = self._socket = socket.create_connection(
            (self._address.host, self._address.port), timeout=timeout_s
        )
        if self._tls is not None:
            sock = self._socket = self._tls.wrap_socket(sock, server_hostname=self._address.host)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        if self._was_connected:
            self._producer.reconnected(self._sent)
        self._was_connected = True
        self._sent = self._acked = 0
        self._unwritten = memoryview(b"")
        self._answer = b""

    def _fill(self) -> None:
        """Hand frames to the connection, once it has written those before."""
        if self._unwritten or self._sent >= len(self._frames):
            return
        if not self.settings.acknowledge:
            self._unwritten = memoryview(b"".join(self._frames))
            self._frames.clear()
            self._kept_bytes = 0
            return
        frames = (
            list(self._frames)
            if not self._sent
            else [self._frames[at] for at in range(self._sent - len(self._frames), 0)]
        )
        self._unwritten = memoryview(b"".join(frames))
        self._sent += len(frames)

    def _write(self, sock: socket.socket) -> None:
        with contextlib.suppress(*NOT_NOW):
            while self._unwritten:
                written = sock.send(self._unwritten[: 4 * _AT_ONCE])
                self._unwritten = self._unwritten[written:]
                if not self.settings.acknowledge:
                    self._progress()

    def _read(self, sock: socket.socket) -> None:
        with contextlib.suppress(*NOT_NOW):
            while data := sock.recv(_LONGEST_ANSWER):
                *lines, self._answer = (self._answer + data).split(b"\n")
                for line in lines:
                    self._understand(line)
                if len(self._answer) > _LONGEST_ANSWER:
                    self._understand(self._answer)
                    self._answer = b""
            raise ConnectionResetError("the receiver has closed it")

    def _understand(self, line: bytes) -> None:
        if line.startswith(b"error: "):
            raise _Refused(
                f"{self._name}: {self._address} refuses what it was sent: {line[7:].decode(errors='replace')}"
            )
        if line.startswith(b"busy: "):
            raise ConnectionResetError(line.decode(errors="replace"))
        if not self.settings.acknowledge:
            return
        if not line.isdigit() or not self._acked <= int(line) <= self._acked + self._sent:
            raise self._not_ours(line)
        count = int(line) - self._acked
        frames = self._frames
        for _ in range(count):
            self._kept_bytes -= len(frames.popleft())
        self._acked += count
        self._sent -= count
        if count:
            self._progress()

    def _progress(self) -> None:
        self._last_progress = time.monotonic()
        self._pause_s = _SHORTEST_PAUSE_S / 2

    def _not_ours(self, said: bytes) -> _Refused:
        return _Refused(
            f"{self._name}: {self._address} answers {said[:80]!r}, which acknowledges nothing: is it the "
            "receiver of this stream? A receiver of another kind takes "
            f"{self._streams_key('acknowledge')}=false"
        )
