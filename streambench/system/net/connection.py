"""The receiver's side of one connection."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl

from msgspec import Struct

from streambench.system.net.framing import Splitter

NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The errors of a socket that does not block, where it would."""


class Connection(Struct, eq=False):
    """A connection with what is known of it.

    ``received``: how many messages have ended in it; ``safe``: how many of those are; ``acked``: the same as
    its sender knows. ``heard``: when it last sent anything, ``began``: since when it has been sending the
    message that is not complete (None: there is none). ``until``: it was refused, and is listened to until
    then so that it can read why. ``has_slot``: it may hold much of an unfinished message. ``is_half``: its
    sender will send nothing more, and waits for what is still to be acknowledged.
    """

    sock: socket.socket
    peer: str
    splitter: Splitter
    heard: float
    received: int = 0
    safe: int = 0
    acked: int = 0
    began: float | None = None
    until: float | None = None
    has_slot: bool = False
    is_half: bool = False
    is_closed: bool = False
    unsent: bytes = b""

    def acknowledge(self, *, anyway: bool = False) -> bool:
        """Say how many messages are safe, where that is news (or ``anyway``); False where the sender must be
        answered later, because it reads nothing now. Raises OSError where the connection is lost."""
        is_news = not self.unsent and anyway
        try:
            while self.unsent or is_news or self.safe != self.acked:
                if not self.unsent:
                    self.unsent, self.acked, is_news = b"%d\n" % self.safe, self.safe, False
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
        except NOT_NOW:
            return False
        return True

    def close_gracefully(self, line: str) -> None:
        """Say why nothing more is read, and that nothing more will be said."""
        # Without a reader it does not matter.
        with contextlib.suppress(OSError):
            self.sock.send(self.unsent + line.encode() + b"\n")
            self.sock.shutdown(socket.SHUT_WR)

    def is_lost(self) -> bool:
        """True if the kernel knows that the other end is gone."""
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def close(self) -> None:
        self.is_closed = True
        self.splitter.forget()
        self.sock.close()


def is_exhausted(error: OSError) -> bool:
    """True if a socket could not be had because there are too many files."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
