"""The consumer of ``udp``: a socket for each partition, read on the thread that polls."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streambench.chunk import numbered
from streambench.locks import not_for_children
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.address import Address, announce
from streambench.system.api import Chunk
from streambench.system.net.consumer import ListeningConsumer
from streambench.system.net.settings import (
    HEADER,
    LARGEST_DATAGRAM,
    NUMBERED,
    Streams,
    UdpSettings,
    udp_settings,
)

log = logging.getLogger(__name__)

_LOOK_AT_LOSSES_S = 1.0
_SENDERS = 10_000


class UdpConsumer(ListeningConsumer["_Port"]):
    """Receives partitions of one system, each on a port of its own.

    What does not fit waits in the kernel's buffer (``receive.buffer.bytes``), and is lost when that is full.
    The kernel counts what it drops, and the metric ``<system>-datagrams-dropped`` follows it. With
    ``sequence=true`` the gaps in the numbers of a sender show what was lost anywhere on the way. They are
    counted from the first datagram on that came: what was lost before cannot be distinguished from what an
    earlier consumer received. No sender learns of it.
    """

    kind = "udp"

    def __init__(self, streams: Streams, metrics: MetricsRegistry) -> None:
        super().__init__(streams, metrics)
        self._counters = _Counters(streams.system, metrics)
        self._looked = 0.0

    def stop(self) -> None:
        if self._ports:
            self._count_losses()
        super().stop()

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        ports = [(self._ports[ssp], at_most) for ssp, at_most in wanted.items() if at_most > 0]
        until = time.monotonic() + timeout_ms / 1000
        while True:
            chunks = [chunk for port, at_most in ports if (chunk := port.take(at_most)) is not None]
            now = time.monotonic()
            if now - self._looked >= _LOOK_AT_LOSSES_S:
                self._looked = now
                self._count_losses()
            if chunks or now >= until:
                return chunks
            with selectors.DefaultSelector() as selector:
                for port, _ in ports:
                    selector.register(port.sock, selectors.EVENT_READ)
                selector.select(min(until - now, _LOOK_AT_LOSSES_S))

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        """Do nothing: no sender waits for an answer to a datagram."""

    def _port(self, ssp: SystemStreamPartition, address: Address, offset: int) -> _Port:
        settings = udp_settings(self._streams.config, ssp.system_stream)
        return _Port(ssp, address, offset, settings, self._counters)

    def _count_losses(self) -> None:
        dropped = _dropped_by_the_kernel()
        for port in self._ports.values():
            port.count_dropped(dropped)


class _Counters:
    def __init__(self, system: str, metrics: MetricsRegistry) -> None:
        def counter(name: str) -> Any:
            return metrics.counter(f"{system}-{name}", "udp")

        self.read = counter("messages-read")
        self.dropped = counter("datagrams-dropped")
        self.missing = counter("datagrams-missing")
        self.late = counter("datagrams-late")
        self.too_large = counter("messages-too-large")
        self.malformed = counter("datagrams-malformed")


class _Port:
    """The socket of one partition."""

    def __init__(
        self,
        ssp: SystemStreamPartition,
        address: Address,
        start: int,
        settings: UdpSettings,
        counters: _Counters,
    ) -> None:
        self.ssp = ssp
        self.address = address
        self.at_head = False
        self.sock = not_for_children(socket.socket(address.family, socket.SOCK_DGRAM))
        self._next = start
        self.settings = settings
        self._counters = counters
        self._is_plain = (
            settings.framing == "datagram"
            and not settings.sequence
            and settings.max_message_bytes >= LARGEST_DATAGRAM
        )
        self._left: deque[bytes] = deque()
        self._expected: OrderedDict[bytes, int] = OrderedDict()
        self._dropped = 0
        self._inode = 0
        self._has_warned = False

    def open(self) -> None:
        wanted = self.settings.receive_buffer_bytes
        if wanted:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
        self.sock.bind((self.address.host, self.address.port))
        self.sock.setblocking(False)
        asked, self.address = self.address.port, Address(self.address.host, self.sock.getsockname()[1])
        self._inode = os.fstat(self.sock.fileno()).st_ino
        # Linux reports twice what was asked for, which is its own need for each byte.
        given = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        announce(
            self.ssp, f"udp://{self.address}, with a buffer of {given:,} bytes in the kernel", asked=asked
        )
        if given < wanted:
            log.info(
                "%s: %d bytes were asked for (receive.buffer.bytes); sysctl net.core.rmem_max is the most",
                self.ssp,
                wanted,
            )

    def close(self) -> None:
        self.sock.close()

    def take(self, at_most: int) -> Chunk | None:
        """The next messages, without waiting for any."""
        found: list[bytes] = []
        receive, append, left = self.sock.recv, found.append, self._left
        is_plain, self.at_head = self._is_plain, False
        try:
            while len(found) < at_most:
                if left:
                    append(left.popleft())
                elif is_plain:
                    append(receive(65_535))
                else:
                    left.extend(self._messages(receive(65_535)))
        except (BlockingIOError, InterruptedError):
            self.at_head = not found
        if not found:
            return None
        start, self._next = self._next, self._next + len(found)
        self._counters.read.count += len(found)
        return Chunk(self.ssp, numbered(start, self._next), [None] * len(found), found)

    def count_dropped(self, dropped: Mapping[int, int]) -> None:
        """Follow the kernel's count."""
        now = dropped.get(self._inode, self._dropped)
        news, self._dropped = now - self._dropped, now
        if news > 0:
            self._counters.dropped.count += news
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "%s: the kernel has dropped %d datagrams, because they came faster than they were "
                    "processed; raise receive.buffer.bytes (and sysctl net.core.rmem_max). The metric "
                    "%s-datagrams-dropped goes on counting",
                    self.ssp,
                    news,
                    self.ssp.system,
                )

    def _messages(self, datagram: bytes) -> list[bytes]:
        """The messages of a datagram, those left out that cannot be taken."""
        if self.settings.sequence:
            if len(datagram) < HEADER or not datagram.startswith(NUMBERED):
                self._counters.malformed.count += 1
                return []
            self._count_number(
                datagram[len(NUMBERED) : len(NUMBERED) + 8],
                int.from_bytes(datagram[len(NUMBERED) + 8 : HEADER], "big"),
            )
            datagram = datagram[HEADER:]
        if self.settings.framing == "lines":
            messages = datagram.split(b"\n")
            if not messages[-1]:
                messages.pop()
        else:
            messages = [datagram]
        most = self.settings.max_message_bytes
        if len(datagram) > most:
            whole = len(messages)
            messages = [message for message in messages if len(message) <= most]
            self._counters.too_large.count += whole - len(messages)
        return messages

    def _count_number(self, sender: bytes, number: int) -> None:
        # A sender may have sent to another that listened here before: what it lost until its first datagram
        # came is not known.
        expected = self._expected.pop(sender, number)
        if number >= expected:
            self._counters.missing.count += number - expected
            expected = number + 1
        else:
            self._counters.late.count += 1
        self._expected[sender] = expected
        if len(self._expected) > _SENDERS:
            self._expected.popitem(last=False)


def _dropped_by_the_kernel() -> dict[int, int]:
    """Per socket (its inode), how many datagrams Linux has dropped because its buffer was full; nothing where
    that cannot be known."""
    found = {}
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if len(columns) > 12 and columns[9].isdigit() and columns[-1].isdigit():
                found[int(columns[9])] = int(columns[-1])
    return found
