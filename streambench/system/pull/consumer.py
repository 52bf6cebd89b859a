"""The consumer of a simple plug-in: one reader thread for each partition, whose queues one ``poll``
empties."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from streambench.errors import OffsetError, StreambenchError, StreamSystemError, described, do_all, shortened
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStreamPartition
from streambench.system.api import SystemConsumer
from streambench.system.pull.api import StreamConsumer
from streambench.system.pull.failure import named
from streambench.system.pull.positions import Positions

Make = Callable[[SystemStreamPartition, str | None], StreamConsumer]
"""Makes the consumer of one partition from an offset on, or from its beginning."""

Bounds = Callable[[SystemStreamPartition], PartitionMetadata | None]
"""The oldest and newest offsets of a partition as of now, as the plug-in reports them; None where it
cannot."""

log = logging.getLogger(__name__)

_AHEAD = 100
_SHORTEST_REST_S = 0.005
_LONGEST_REST_S = 0.1
_LONG_CALL_S = 0.05
_SAID_AFTER_S = 5.0


class PullConsumer(SystemConsumer):
    """Reads partitions of one system, each by a StreamConsumer on a thread of its own.

    A thread reads a little ahead (at most 100 messages) and then waits until a poll has made room. A
    partition is at its head when there was nothing to read and its bounds, where they are known, show nothing
    further. A call of ``get_message`` that returns None may only have been too early.
    """

    def __init__(self, make: Make, positions: Positions, bounds: Bounds) -> None:
        self._make = make
        self._positions = positions
        self._bounds = bounds
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._readers: dict[SystemStreamPartition, _PartitionReader] = {}
        self._ready: dict[_PartitionReader, None] = {}
        """Those that have messages."""
        self._failed: dict[_PartitionReader, None] = {}

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        try:
            self._positions.parsed(offset)
        except OffsetError as error:
            raise OffsetError(f"{ssp}: {error}") from None
        self._readers[ssp] = _PartitionReader(
            ssp, offset, self._make, self._positions, self._bounds, self._lock, self._notify
        )

    def start(self) -> None:
        for reader in self._readers.values():
            reader.thread.start()
        for reader in self._readers.values():
            reader.is_ready.wait()
        for reader in self._readers.values():
            if reader.not_made is not None:
                raise reader.not_made

    def stop(self) -> None:
        for reader in self._readers.values():
            reader.ask_to_stop()
        do_all([reader.join for reader in self._readers.values()])

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        readers = [self._readers[ssp] for ssp, at_most in wanted.items() if at_most > 0]
        until = time.monotonic() + timeout_ms / 1000
        with self._lock:
            for reader in readers:
                reader.ask()
            while True:
                for reader in self._failed:
                    if wanted.get(reader.ssp, 0) > 0 and not reader.waiting:
                        assert reader.failure is not None
                        raise reader.failure
                taken = self._take(wanted)
                left = until - time.monotonic()
                if taken or left <= 0:
                    return taken
                self._news.wait(left)

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        reader = self._readers.get(ssp)
        if reader is None:
            return False
        with self._lock:
            return reader.is_at_head

    def _take(self, wanted: Mapping[SystemStreamPartition, int]) -> list[IncomingMessageEnvelope]:
        taken: list[IncomingMessageEnvelope] = []
        for reader in list(self._ready):
            at_most = wanted.get(reader.ssp, 0)
            if at_most > 0:
                taken += reader.take(at_most)
                if not reader.waiting:
                    del self._ready[reader]
        return taken

    def _notify(self, reader: _PartitionReader) -> None:
        """A reader has a message, or has failed. Called with the lock held."""
        (self._ready if reader.failure is None else self._failed)[reader] = None
        self._news.notify()


class _PartitionReader:
    """The thread of one partition. Everything here is guarded by the consumer's one lock."""

    def __init__(
        self,
        ssp: SystemStreamPartition,
        position: str,
        make: Make,
        positions: Positions,
        bounds: Bounds,
        lock: threading.Lock,
        notify: Callable[[_PartitionReader], None],
    ) -> None:
        self.ssp = ssp
        self.waiting: deque[IncomingMessageEnvelope] = deque()
        self.failure: StreambenchError | None = None
        self.not_made: StreambenchError | None = None
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self._live, name=f"reader of {ssp}", daemon=True)
        self._start, self._is_behind = positions.parsed(position)
        self._position = position
        self._last: str | None = None
        self._make = make
        self._positions = positions
        self._bounds = bounds
        self._warned_of_bounds = False
        self._lacks_since: float | None = None
        self._warned_of_lack = False
        self._lock = lock
        self._changed = threading.Condition(lock)
        self._notify = notify
        self._stopping = False
        self._asked = 0
        self._answered = -1
        self._close_failure: StreambenchError | None = None

    @property
    def is_at_head(self) -> bool:
        """True if there was nothing more when the last poll began, or later."""
        return not self.waiting and self._answered == self._asked

    def ask(self) -> None:
        """A poll begins: what is known of the head is out of date."""
        self._asked += 1
        self._changed.notify()

    def take(self, at_most: int) -> list[IncomingMessageEnvelope]:
        waiting = self.waiting
        self._changed.notify()
        if len(waiting) <= at_most:
            taken = list(waiting)
            waiting.clear()
            return taken
        return [waiting.popleft() for _ in range(at_most)]

    def ask_to_stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._changed.notify()

    def join(self) -> None:
        """Wait for the thread. Raises what closing the consumer raised, once."""
        if self.thread.ident is not None:
            self.thread.join()
        failure, self._close_failure = self._close_failure, None
        if failure is not None:
            raise failure

    def _live(self) -> None:
        try:
            consumer = self._make(self.ssp, self._start)
        except BaseException as error:
            self.not_made = named(self.ssp, "cannot be read", error)
            self.is_ready.set()
            return
        self.is_ready.set()
        try:
            self._read(consumer)
        except BaseException as error:
            with self._lock:
                self.failure = named(self.ssp, "cannot be read", error)
                self._notify(self)
        try:
            consumer.close()
        except BaseException as error:
            self._close_failure = named(self.ssp, "was not closed properly", error)

    def _read(self, consumer: StreamConsumer) -> None:
        get_message, rest_s, is_first = consumer.get_message, _SHORTEST_REST_S, True
        while (asked := self._wait_for_room()) is not None:
            began = time.monotonic()
            message = get_message()
            if message is None:
                # A call that lasts long waits for messages itself, and would have returned what came
                # meanwhile; to be answered by a later one, a poll would have to last longer.
                is_long = time.monotonic() - began > _LONG_CALL_S
                with self._lock:
                    answered = self._asked if is_long else asked
                has_more = self._has_more()  # asked of the plug-in, which may take its time
                with self._lock:
                    if not has_more:
                        self._answered = answered
                    if self._asked == asked and not self._stopping:
                        self._changed.wait(rest_s)
                rest_s = min(2 * rest_s, _LONGEST_REST_S)
                continue
            rest_s = _SHORTEST_REST_S
            envelope = self._envelope(message)
            self._last, self._lacks_since = envelope.offset, None
            if is_first:
                is_first = False
                if not self._is_wanted(envelope.offset):
                    continue
            with self._lock:
                self._answered = -1
                self.waiting.append(envelope)
                self._notify(self)

    def _has_more(self) -> bool:
        """True if the partition holds more than was read, by its bounds; where these are not known, what
        ``get_message`` says decides."""
        try:
            bounds = self._bounds(self.ssp)
            lacking = None if bounds is None else self._lacking(bounds)
            self._warned_of_bounds = False
        except Exception as error:
            if not self._warned_of_bounds:
                self._warned_of_bounds = True
                log.warning(
                    "%s: whether it is read to its end is not known now: %s", self.ssp, described(error)
                )
            return True
        if lacking is None:
            self._lacks_since, self._warned_of_lack = None, False
            return False
        now = time.monotonic()
        if self._lacks_since is None:
            self._lacks_since = now
        elif now - self._lacks_since >= _SAID_AFTER_S and not self._warned_of_lack:
            self._warned_of_lack = True
            log.warning(
                "%s: get_message returns nothing behind %s, but bounds() names %s: the partition counts as "
                "caught up only when that was read, or bounds() says otherwise",
                self.ssp,
                self._position if self._last is None else self._last,
                lacking,
            )
        return True

    def _lacking(self, bounds: PartitionMetadata) -> str | None:
        """The unread rest of a partition with these bounds, in words; None for nothing."""
        positions = self._positions
        position = self._position if self._last is None else positions.after(self._last)
        if bounds.newest is not None:
            order = positions.compare(position, bounds.newest)
            # Without an order, only the place behind the newest message is known to lie behind it.
            return f"a newest message {bounds.newest}" if order is None or order <= 0 else None
        if bounds.oldest is None or bounds.upcoming is None:
            return None
        order = positions.compare(position, bounds.upcoming)
        return f"messages up to {bounds.upcoming} (the next)" if order is not None and order < 0 else None

    def _wait_for_room(self) -> int | None:
        """The number of polls so far; None when it is time to stop."""
        with self._lock:
            while len(self.waiting) >= _AHEAD and not self._stopping:
                self._changed.wait()
            return None if self._stopping else self._asked

    def _envelope(self, message: Any) -> IncomingMessageEnvelope:
        try:
            offset, content = message.offset_id, message.message
        except AttributeError:
            raise StreamSystemError(
                f"{self.ssp}: get_message returned {shortened(message)}, which is no StreamMessage"
            ) from None
        if not self._positions.is_id(offset):
            raise StreamSystemError(
                f"{self.ssp}: {shortened(offset)} cannot be the offset_id of a message: it is text, neither "
                "empty nor 'oldest' nor "
                "beginning with 'after:', and where the system is numbered a whole number from 0 on"
            )
        return IncomingMessageEnvelope(
            self.ssp, offset, getattr(message, "key", None), content, getattr(message, "timestamp", None)
        )

    def _is_wanted(self, first: str) -> bool:
        """True if the first message that was read is the first one wanted: not the one to begin behind.
        Raises OffsetError where the consumer does not begin where it was to begin."""
        if self._start is None:
            return True
        order = self._positions.compare(first, self._start)
        if order is None or order < 0:
            raise OffsetError(
                f"{self.ssp}: reading was to begin at {self._start}, but the first message read is {first}; "
                f"if {self._start} is gone, "
                f"choose another place to go on: {self._positions.rewind.replace('PARTITION', str(self.ssp))}"
            )
        return not (order == 0 and self._is_behind)
