"""The acceptor: takes connections for a server, never more of them than the process has descriptors to spare.

asyncio's own servers accept all that wait in one go, and count nothing before a handshake of TLS is over. A
flood of connections that send nothing would take every descriptor of the process, and the job would end for
want of files. Here each connection is known from the moment that it is accepted. Where there is no room for
another one, the oldest that has no request under way makes way for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol

from streambench import descriptors

log = logging.getLogger("streambench.webhook")

# Between two bunches the server reads what came on the connections that it has.
_AT_ONCE = 32
_REST_S = 0.1
_QUIET_S = 10.0
_NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class Accepted(Protocol):
    """A protocol of asyncio that can make way for another connection."""

    @property
    def is_idle(self) -> bool:
        """No request is under way on it."""

    @property
    def is_unfinished(self) -> bool:
        """A request has begun, of which not all has come."""

    def make_way(self) -> None:
        """Close it at once."""


class Acceptor:
    """Accepts on ``listener`` from ``open`` to ``close``, on the thread of its event loop."""

    def __init__(
        self,
        listener: socket.socket,
        most: int,
        make: Callable[[], Accepted],
        tls: ssl.SSLContext | None,
        handshake_s: float,
    ) -> None:
        """``most`` connections at once; ``make`` a protocol for each, within ``handshake_s`` seconds where
        they speak ``tls``."""
        self._listener = listener
        self._most = most
        self._make = make
        self._tls = tls
        self._handshake_s = handshake_s
        self._open: dict[Accepted, asyncio.Task[None] | None] = {}
        self._reported = -_QUIET_S
        self._is_open = False

    def open(self) -> None:
        """Begin to accept."""
        descriptors.allow(self._most)
        self._is_open = True
        self._resume()

    def close(self) -> None:
        """Accept no more; what is still in its handshake is closed."""
        self._is_open = False
        asyncio.get_running_loop().remove_reader(self._listener)
        for task in self._open.values():
            if task is not None:
                task.cancel()

    def begins_request(self, connection: Accepted) -> None:
        """A connection shows that it is of use: those that do not make way before it."""
        if connection in self._open:
            self._open[connection] = self._open.pop(connection)

    def forget(self, connection: Accepted) -> None:
        """A connection is closed."""
        self._open.pop(connection, None)

    def _resume(self) -> None:
        if self._is_open:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        # What makes way is closed behind this bunch: for so long there are a few more.
        room = descriptors.spare()
        for _ in range(_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue
            except OSError as error:
                # Still readable, it would be tried without end.
                self._report(
                    f"no connection can be accepted: {error.strerror}; raise the limit of open files "
                    "(ulimit -n)"
                )
                loop.remove_reader(self._listener)
                loop.call_later(_REST_S, self._resume)
                return
            sock.setblocking(False)
            if (len(self._open) >= self._most or room <= 0) and not self._make_way():
                with contextlib.suppress(OSError):
                    if self._tls is None:
                        sock.send(_NO_ROOM)
                sock.close()
                continue
            room -= 1
            connection = self._make()
            self._open[connection] = None
            task = loop.create_task(self._connect(sock, connection))
            if connection in self._open:
                self._open[connection] = task

    async def _connect(self, sock: socket.socket, connection: Accepted) -> None:
        loop = asyncio.get_running_loop()
        handshake_s = self._handshake_s if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(
                lambda: connection, sock, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )  # type: ignore[type-var]
        except (OSError, asyncio.CancelledError):
            self._open.pop(connection, None)
            sock.close()
        else:
            if connection in self._open:
                self._open[connection] = None

    def _make_way(self) -> bool:
        """Close the oldest connection without a request under way, or else with an unfinished one; False
        where there is none."""
        count = len(self._open)
        idle = (each for each in self._open if each.is_idle)
        unfinished = (each for each in self._open if each.is_unfinished)
        for candidates in (idle, unfinished):
            oldest = next(candidates, None)
            if oldest is not None:
                task = self._open.pop(oldest)
                if task is not None:
                    task.cancel()
                oldest.make_way()
                self._report(
                    f"{count} connections are open, and those without a request make way for others "
                    "(connections.max, ulimit -n)"
                )
                return True
        self._report(
            f"{count} connections have requests under way, and further ones are refused (connections.max, "
            "ulimit -n)"
        )
        return False

    def _report(self, text: str) -> None:
        now = time.monotonic()
        if now - self._reported >= _QUIET_S:
            self._reported = now
            log.warning("port %s: %s", self._listener.getsockname()[1], text)
