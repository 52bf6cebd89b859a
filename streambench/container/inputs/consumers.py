"""Input: the consumers of a container. The only source of non-determinism: messages, time, commands.

A replay is the same container with other consumers, which return what was recorded. Nothing else in the
container depends on the outside world.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct

from streambench.chunk import Messages
from streambench.clock import Clock
from streambench.container.trace import Trace
from streambench.errors import StreambenchError, do_all
from streambench.model import SystemStreamPartition
from streambench.system.api import SystemConsumer
from streambench.system.capabilities import Acknowledging, Ending

Command = Callable[[], None]
_Poll = Callable[[Mapping[SystemStreamPartition, int], int], Sequence[Messages]]

_READER_POLL_MS = 100

# Idle, a container is awake for a twentieth of the time at most, unless that would keep a message waiting for
# too long.
_REST = 19
_LONGEST_REST_S = 0.2


class FetchedRecords(Struct):
    """Messages from a reader thread, with the partitions that were at their head at that poll, or have
    ended."""

    system: str
    chunks: Sequence[Messages]
    at_head: frozenset[SystemStreamPartition]
    at_end: frozenset[SystemStreamPartition] = frozenset()


class ReaderFailure(Struct):
    """A reader thread has ended with this error."""

    error: BaseException


class Consumers:
    """Polls the consumers that may be polled by the event loop, and runs a reader thread for each of the
    others.

    ``inbox`` holds what came from other threads, in order: FetchedRecords, ReaderFailures and Commands. The
    event loop looks at it once per iteration; ``wake`` is set whenever something is added. ``polls``: how
    often each system was polled. ``refresh_epoch``: the number of the last one that was asked.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.inbox: deque[FetchedRecords | ReaderFailure | Command] = deque()
        self.wake = threading.Event()
        self.polls: dict[str, int] = {}
        self.refresh_epoch = 0
        self.trace: Trace | None = None
        self._polled: dict[str, SystemConsumer] = {}
        self._polls: dict[str, _Poll] = {}
        self._readers: dict[str, ReaderThread] = {}
        self._ending: dict[str, Ending] = {}
        self._awaiting: dict[str, Acknowledging] = {}
        self._awake_since = 0.0

    def add(
        self,
        system: str,
        consumer: SystemConsumer,
        starts: Mapping[SystemStreamPartition, str],
        room: int,
        *,
        batches: bool = False,
    ) -> None:
        """Start reading partitions of a system at these offsets; at most ``room`` messages of each wait in
        memory. ``batches``: for tasks that take batches.

        Raises what the consumer raises."""
        self.polls[system] = 0
        if isinstance(consumer, Ending):
            self._ending[system] = consumer
        if isinstance(consumer, Acknowledging):
            self._awaiting[system] = consumer
        poll = consumer.poll_batches if batches else consumer.poll_chunks
        if consumer.polled_by_loop:
            for ssp, offset in starts.items():
                consumer.register(ssp, offset)
            self._polled[system] = consumer
            self._polls[system] = poll
            consumer.start()
        else:
            reader = self._readers[system] = ReaderThread(self, system, consumer, poll, starts, room)
            reader.start()

    def is_polled(self, system: str) -> bool:
        """True where ``poll`` has to be called for this system; the messages of the others arrive by
        themselves."""
        return system in self._polled

    def at_once(self, system: str) -> int:
        """The most messages to ask for of one partition of a polled system (``SystemConsumer.at_once``)."""
        return self._polled[system].at_once

    def poll(self, system: str, wanted: Mapping[SystemStreamPartition, int]) -> Sequence[Messages]:
        """The next messages of partitions of a polled system; never waits."""
        self.polls[system] += 1
        chunks = self._polls[system](wanted, 0)
        if self.trace is not None:
            self.trace.read(chunks)
        return chunks

    def head_check(self, system: str) -> Callable[[SystemStreamPartition], bool]:
        """Return a function that is true of a partition of a polled system that was at its head at its last
        poll."""
        return self._polled[system].at_head

    def at_end(self, ssp: SystemStreamPartition) -> bool:
        """True where a partition of a polled system has ended."""
        return self._ending[ssp.system].at_end(ssp)

    def may_end(self, system: str) -> bool:
        """True where partitions of this system may end. Known of all systems once they are added."""
        return system in self._ending

    def awaits_acknowledgement(self, system: str) -> bool:
        """True where the consumer of this system acknowledges. Known once it is added."""
        return system in self._awaiting

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        """Acknowledge everything up to these offsets to the consumers that wait for it."""
        for system, own in by_system(offsets).items():
            self._awaiting[system].acknowledge(own)

    def consumed(self, ssp: SystemStreamPartition, messages: int) -> None:
        """Return credit to the reader of this partition: so many of its messages no longer wait."""
        self._readers[ssp.system].consumed(ssp, messages)

    def request_refresh(self) -> int:
        """Have every reader poll again: what it said of the heads of its partitions may be older than a
        message that was sent since. The number of the request, for ``refreshed``."""
        self.refresh_epoch += 1
        return self.refresh_epoch

    def refreshed(self, question: int, systems: Collection[str]) -> bool:
        """True where the readers of these systems have polled since the request; the result is in the inbox,
        or was taken from it. A reader whose partitions have all ended polls no more."""
        return all(
            reader.refreshed_epoch >= question
            for system, reader in self._readers.items()
            if system in systems
        )

    def post(self, command: Command) -> None:
        """Have the event loop call ``command`` between two messages. May be called from any thread."""
        self.inbox.append(command)
        self.wake.set()

    def arrive(self, what: FetchedRecords | ReaderFailure) -> None:
        """Take what a reader thread brings."""
        if self.trace is not None and isinstance(what, FetchedRecords):
            self.trace.read(what.chunks)
        self.inbox.append(what)
        self.wake.set()

    def wait(self, milliseconds: float, at_most: float = 0) -> None:
        """Wait until something is in the inbox, but no longer than this.

        With very many partitions it takes a while to find that none has messages. So that this takes only
        a small part of the time, the wait may be longer: up to ``at_most``, and to a fixed bound."""
        busy = time.perf_counter() - self._awake_since
        rest = max(milliseconds / 1000, min(at_most / 1000, busy * _REST, _LONGEST_REST_S))
        if not self.inbox:
            self.wake.wait(rest)
        self.wake.clear()
        self._awake_since = time.perf_counter()

    def stop(self, timeout_ms: int) -> None:
        """Stop all consumers, whatever one of them raises; that is raised at the end."""
        for reader in self._readers.values():
            reader.ask_to_stop()
        stops = [consumer.stop for consumer in self._polled.values()]
        joins = [partial(reader.join, timeout_ms) for reader in self._readers.values()]
        self._polled = {}
        self._readers = {}
        do_all([*stops, *joins])


class ReaderThread:
    """The thread of one consumer: asks for what there is room for, and hands it over in lists."""

    def __init__(
        self,
        consumers: Consumers,
        system: str,
        consumer: SystemConsumer,
        poll: _Poll,
        starts: Mapping[SystemStreamPartition, str],
        room: int,
    ) -> None:
        self.refreshed_epoch = 0
        self._consumers = consumers
        self._system = system
        self._consumer = consumer
        self._poll = poll
        self._starts = starts
        self._room = dict.fromkeys(starts, room)
        # Read in parts, so that room is made for one while another is processed; but not for a few messages
        # at a time.
        self._part = max(1, room // 4)
        self._enough = max(1, room // 10)
        self._changed = threading.Condition()
        self._stopping = False
        self._is_started = threading.Event()
        self._start_error: BaseException | None = None
        self._stop_error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name=f"reader of {system}", daemon=True)

    def start(self) -> None:
        """Return when the consumer has started. Raises what it raises."""
        self._thread.start()
        self._is_started.wait()
        if self._start_error is not None:
            raise self._start_error

    def consumed(self, ssp: SystemStreamPartition, messages: int) -> None:
        with self._changed:
            self._room[ssp] += messages
            self._changed.notify()

    def ask_to_stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, timeout_ms: int) -> None:
        """Wait until the consumer has stopped. Raises what it raises, and StreambenchError where it takes too
        long."""
        self._thread.join(timeout_ms / 1000)
        if self._thread.is_alive():
            raise StreambenchError(
                f"the {self._thread.name} did not stop within {timeout_ms} ms (task.shutdown.ms)"
            )
        if self._stop_error is not None:
            raise self._stop_error

    def _live(self) -> None:
        try:
            if self._start_consumer():
                self._read()
        except BaseException as error:
            self._consumers.arrive(ReaderFailure(error))
        finally:
            self._stop_consumer()

    def _start_consumer(self) -> bool:
        try:
            for ssp, offset in self._starts.items():
                self._consumer.register(ssp, offset)
            self._consumer.start()
        except BaseException as error:
            self._start_error = error
        self._is_started.set()
        return self._start_error is None

    def _stop_consumer(self) -> None:
        try:
            self._consumer.stop()
        except BaseException as error:
            self._stop_error = error

    def _read(self) -> None:
        nothing: frozenset[SystemStreamPartition] = frozenset()
        reported = nothing, nothing
        ending = self._consumer if isinstance(self._consumer, Ending) else None
        while wanted := self._wanted():
            question = self._consumers.refresh_epoch
            chunks = self._poll(wanted, _READER_POLL_MS)
            self._consumers.polls[self._system] += 1
            with self._changed:
                for chunk in chunks:
                    self._room[chunk.ssp] -= len(chunk)
            at_head = frozenset(ssp for ssp in self._starts if self._consumer.at_head(ssp))
            at_end = frozenset(filter(ending.at_end, at_head)) if ending else nothing
            if chunks or (at_head, at_end) != reported:
                reported = at_head, at_end
                self._consumers.arrive(FetchedRecords(self._system, chunks, at_head, at_end))
            if self.refreshed_epoch != question:
                self.refreshed_epoch = question
                self._consumers.wake.set()

    def _wanted(self) -> dict[SystemStreamPartition, int]:
        """The partitions that have room; empty only when it is time to stop."""
        with self._changed:
            while not self._stopping:
                wanted = {
                    ssp: min(room, self._part) for ssp, room in self._room.items() if room >= self._enough
                }
                if wanted:
                    return wanted
                self._changed.wait()
        return {}


def by_system(starts: Mapping[SystemStreamPartition, str]) -> dict[str, dict[SystemStreamPartition, str]]:
    """The same offsets, system by system."""
    systems: dict[str, dict[SystemStreamPartition, str]] = {}
    for ssp, offset in sorted(starts.items()):
        systems.setdefault(ssp.system, {})[ssp] = offset
    return systems
