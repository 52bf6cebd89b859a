"""The producer of ``udp``: datagrams, which may get lost."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from streambench.errors import StreamSystemError, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.adapters import SenderProducer
from streambench.system.address import Address
from streambench.system.api import Sender
from streambench.system.net.datagrams import DatagramCheck
from streambench.system.net.settings import NUMBERED, Streams, UdpSettings, udp_settings

log = logging.getLogger(__name__)


class UdpProducer(SenderProducer):
    """Sends to the receivers of one system, at most once.

    ``flush`` returns when the kernel has taken everything. Only the receiver can count what is lost after
    that (``sequence=true``). The metric ``<system>-messages-unsent`` has what is known of it here. It counts
    messages that the kernel would not take, or of which it reported afterwards that no receiver did.
    """

    def __init__(self, streams: Streams, metrics: MetricsRegistry) -> None:
        super().__init__()
        self._streams = streams
        self._unsent = metrics.counter(f"{streams.system}-messages-unsent", "udp")
        self._sockets: dict[SystemStream, list[DatagramSender]] = {}

    def stop(self) -> None:
        super().stop()
        for senders in self._sockets.values():
            for each in senders:
                each.sock.close()
        self._sockets.clear()

    def _new_sender(self, stream: SystemStream) -> Sender:
        senders = self._senders_of(stream)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            if partition >= len(senders):
                raise no_partition(stream, partition, len(senders))
            senders[partition].add(message)

        return send

    def flush(self, source: str) -> None:
        for senders in self._sockets.values():
            for each in senders:
                each.flush()

    def _senders_of(self, stream: SystemStream) -> list[DatagramSender]:
        if stream not in self._sockets:
            key, addresses = self._streams.connecting(stream)
            settings = udp_settings(self._streams.config, stream)
            senders = self._sockets[stream] = []
            for number, address in enumerate(addresses):
                senders.append(DatagramSender(f"{stream}.{number}", address, key, settings, self._unsent))
        return self._sockets[stream]


class DatagramSender:
    """The socket that sends to one partition."""

    def __init__(self, name: str, address: Address, key: str, settings: UdpSettings, unsent: Any) -> None:
        self._name = name
        self._address = address
        self._settings = settings
        self._unsent = unsent
        self._head = NUMBERED + os.urandom(8) if settings.sequence else b""
        self._number = 0
        self._has_warned = False
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        check = DatagramCheck.of(settings)
        self._check, self._most, self._are_lines = check.check, check.most, check.are_lines
        self._sent = 0
        """The number of messages in the last datagram, unless they are counted as lost."""
        self.sock = socket.socket(address.family, socket.SOCK_DGRAM)
        try:
            self.sock.connect((address.host, address.port))
        except OSError as error:
            self.sock.close()
            raise StreamSystemError(
                f"{name}: cannot send to {address} ({key}): {(error.strerror or str(error)).lower()}"
            ) from error

    def add(self, message: Any) -> None:
        # The check costs a call: it is made only for what it can refuse.
        if type(message) is not bytes or len(message) > self._most or b"\n" in message:
            self._check(self._name, message)
        if not self._are_lines:
            self._send(message, 1)
            return
        size = len(message)
        if self._pending and self._pending_bytes + size + 1 > self._settings.datagram_bytes:
            self._send_pending()
        self._pending.append(message)
        self._pending_bytes += size + 1

    def flush(self) -> None:
        """Hand over to the kernel what waits to fill a datagram."""
        if self._pending:
            self._send_pending()
        if self._sent:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._lose(OSError(code, os.strerror(code)), self._sent)
                self._sent = 0

    def _send_pending(self) -> None:
        lines, self._pending, self._pending_bytes = self._pending, [], 0
        self._send(b"\n".join(lines) + b"\n", len(lines))

    def _send(self, data: bytes, messages: int) -> None:
        if self._head:
            data = self._head + self._number.to_bytes(8, "big") + data
            self._number += 1
        try:
            self.sock.send(data)
        except OSError as error:
            try:
                # As a rule the first attempt only reports the datagram before, which no receiver took.
                self.sock.send(data)
            except OSError as again:
                self._lose(again, messages)
                messages = 0
            else:
                self._lose(error, self._sent)
        self._sent = messages

    def _lose(self, error: OSError, messages: int) -> None:
        self._unsent.count += messages
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: %s does not take what is sent: %s",
                self._name,
                self._address,
                (error.strerror or str(error)).lower(),
            )
