"""The slots of a partition: how many of its connections may hold much of an unfinished message."""

from __future__ import annotations

import selectors
import time

from streambench.system.net.connection import Connection

LITTLE = 16 << 10
"""Of an unfinished message a connection holds so many bytes without a slot. It is no less than a record of
TLS, so that none is left in between."""


class Slots:
    """Gives slots to connections with long unfinished messages. One that waits for a slot is taken out of
    ``selector``, so that it is not read. ``free``: how many slots there are."""

    def __init__(self, free: int, selector: selectors.BaseSelector) -> None:
        self.free = free
        self.waiting: dict[Connection, None] = {}
        self._selector = selector

    def may_hold_much(self, connection: Connection) -> bool:
        """True if the next read may leave a long unfinished message."""
        return connection.has_slot or self.free > 0

    def adjust(self, connection: Connection) -> None:
        """Give a connection with a long unfinished message a slot, or do not read it until one is free."""
        needs_much = connection.splitter.unfinished > LITTLE
        if needs_much and not connection.has_slot:
            if self.free > 0:
                self.free -= 1
                connection.has_slot = True
            else:
                self._selector.unregister(connection.sock)
                self.waiting[connection] = None
        elif connection.has_slot and not needs_much:
            self.release(connection)

    def release(self, connection: Connection) -> None:
        """Take the slot of a connection, and give it to one that waits."""
        connection.has_slot = False
        self.free += 1
        if self.waiting:
            waiting = next(iter(self.waiting))
            del self.waiting[waiting]
            self._selector.register(waiting.sock, selectors.EVENT_READ, waiting)
            self.free -= 1
            waiting.has_slot = True
            waiting.heard = waiting.began = time.monotonic()
