"""The inputs of a replay: recorded messages in their recorded order, and the time as it was."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Candidate, Explanation
from streambench.chunk import Chunk, Messages
from streambench.config import Config
from streambench.container.coordination import Coordination
from streambench.container.timers import Windows
from streambench.debug.history.batches import Batches
from streambench.debug.history.recorded_inputs import RecordedConsumer
from streambench.debug.replay.checked_outputs import CheckedProducer, RecordedChecks
from streambench.errors import OffsetError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.recording.recording import Event, Recording
from streambench.system.api import Sender, SystemFactory
from streambench.system.memory import MemoryAdmin, MemoryProducer, MemoryStreams, MemorySystemFactory
from streambench.system.systems import Systems

_CHUNK = 500


class ReplayClock:
    """The time of a replay: that of the recording at ``position``. Something is due as long as an event of
    the recording waits at the position."""

    def __init__(self, recording: Recording, *, follows_code: bool) -> None:
        """``follows_code``: swaps of the code are events, too."""
        self.position = 0
        self._timeline: deque[Event] = deque(
            each for each in recording.timeline if follows_code or each.kind != "code"
        )
        self._now_ms = recording.header.now_ms

    def now_ms(self) -> int:
        timeline = self._timeline
        while timeline and timeline[0].kind == "clock" and timeline[0].position <= self.position:
            self._now_ms = timeline.popleft().now_ms
        return self._now_ms

    def monotonic_ns(self) -> int:
        return 1 if self.has_event else 0

    @property
    def has_event(self) -> bool:
        """True while an event waits at the position."""
        for each in self._timeline:
            if each.position > self.position:
                return False
            if each.kind != "clock":
                return True
        return False

    def take(self) -> Event:
        """The next event; the time is that of it. Readings of the clock before it were not needed."""
        while True:
            event = self._timeline.popleft()
            if event.kind != "clock":
                self._now_ms = event.now_ms or self._now_ms
                return event


class ReplayChooser(MessageChooser):
    """Chooses in the order of the recording."""

    def __init__(self, recording: Recording, clock: ReplayClock) -> None:
        self._clock = clock
        self._order = [each.ssp for each in recording.messages]
        self._batches = Batches(recording.batches)
        self._has_batches = recording.header.has_batches
        self._edges = sorted({each.position for each in recording.events})
        self._inside: dict[SystemStreamPartition, IncomingMessageEnvelope] = {}

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self._inside[envelope.ssp] = envelope

    def choose(self) -> IncomingMessageEnvelope | None:
        clock = self._clock
        if clock.position >= len(self._order) or clock.has_event:
            return None
        envelope = self._inside.pop(self._order[clock.position], None)
        if envelope is not None:
            clock.position += 1
        return envelope

    def take_batch(self, offsets: Sequence[str]) -> int:
        """The rest of the batch as it was recorded.

        Where that is not known, the messages of the partition up to the next event, or to the batch that
        failed."""
        clock = self._clock
        before = clock.position - 1
        _, end = self._batches.edges(clock.position)
        if end == clock.position and not self._has_batches:
            end = self._end_of_run(before, before + len(offsets))
        count = min(len(offsets), end - before)
        clock.position = before + count
        return count

    def _end_of_run(self, before: int, at_most: int) -> int:
        """The position after the messages of one partition that follow each other."""
        ssp, end = self._order[before], before + 1
        following = bisect_right(self._edges, before)
        if following < len(self._edges):
            at_most = min(at_most, self._edges[following])
        while end < min(at_most, len(self._order)) and self._order[end] == ssp:
            if self._batches.count(end + 1) > 1:
                break
            end += 1
        return end

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        return Explanation("as it was recorded", None if chosen is None else Candidate.of(chosen))


class CountingChooser(MessageChooser):
    """A configured chooser, which chooses recorded messages in its own order.

    Windows and ends of inputs stay after as many messages as they were recorded."""

    def __init__(self, chooser: MessageChooser, clock: ReplayClock) -> None:
        self._chooser = chooser
        self._clock = clock
        self.register, self.update = chooser.register, chooser.update  # type: ignore[method-assign]
        self.start, self.stop = chooser.start, chooser.stop  # type: ignore[method-assign]
        self.explain = chooser.explain  # type: ignore[method-assign]

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        raise AssertionError("an attribute of the object stands in for it")

    def choose(self) -> IncomingMessageEnvelope | None:
        if self._clock.has_event:
            return None
        envelope = self._chooser.choose()
        if envelope is not None:
            self._clock.position += 1
        return envelope


class ReplayWindows:
    """The windows of a replay: repeats the events of the recording when their position is reached. Stands in
    for the ``Windows`` of a container, of which it calls tasks by."""

    due_ns = 1

    def __init__(
        self,
        windows: Windows,
        coordination: Coordination,
        clock: ReplayClock,
        follow_code: Callable[[], None],
    ) -> None:
        self._follow_code = follow_code
        self._windows = windows
        self._coordination = coordination
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._windows, name)

    def call_due(self, now_ns: int, envelope: IncomingMessageEnvelope | None, processed: int) -> None:
        """Repeat the events of this position. Raises TaskError."""
        while self._clock.has_event:
            event = self._clock.take()
            if event.kind == "window":
                self._windows.call_again(event.tasks, envelope, processed)
            elif event.kind == "end_of_stream":
                self._coordination.end_again(event.tasks)
            elif event.kind == "code":
                self._follow_code()
            else:
                self._coordination.commit_again(event.tasks)


class ReplaySystemFactory(MemorySystemFactory):
    """The factory of all systems of a replay: inputs give what was recorded, everything else is in memory, of
    this replay alone."""

    def __init__(self, recording: Recording) -> None:
        streams = MemoryStreams()
        super().__init__(streams)
        self._memory = streams
        self._recording = recording
        self._checks = RecordedChecks(recording)
        self._offsets: dict[SystemStreamPartition, list[str]] = {}
        for task in recording.tasks:
            for name in task.partitions:
                known = self._offsets.setdefault(SystemStreamPartition.parse(name), [])
                begin = task.offsets.get(name) or task.starts.get(name)
                if begin is not None and begin not in known:
                    known.append(begin)
        for message in recording.messages:
            known = self._offsets[message.ssp]
            if message.offset not in known[-1:]:
                known.append(message.offset)

    def get_input(
        self,
        system: str,
        config: Config,
        metrics: MetricsRegistry,
        streams: Collection[SystemStream],
        who: str,
    ) -> RecordedConsumer:
        """A consumer of the recorded messages."""
        messages: dict[SystemStreamPartition, list[IncomingMessageEnvelope]] = {
            ssp: [] for ssp in self._offsets if ssp.system == system
        }
        for each in self._recording.messages:
            if each.ssp.system == system:
                messages[each.ssp].append(each)
        return RecordedConsumer({ssp: _chunks(ssp, found) for ssp, found in messages.items()})

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        if self._checks.is_in_memory(system):
            return MemoryProducer(self._memory)  # which refuses what cannot be copied
        return CheckedProducer(self._memory, self._checks.of)

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        """That of the recorded system, as the recorded job configured it."""
        return self._checks.of(stream)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> MemoryAdmin:
        return ReplayAdmin(self._memory, self._offsets, self._recording.streams)


class ReplaySystems(Systems):
    """The systems of a replay: all have the same factory, whatever the configuration names."""

    def __init__(self, config: Config, factory: ReplaySystemFactory) -> None:
        super().__init__(config, factory)
        self._replay = factory

    def factory(self, system: str, *, key: str | None = None) -> SystemFactory:
        return self._replay

    def has(self, system: str) -> bool:
        return True


class ReplayAdmin(MemoryAdmin):
    """Knows the recorded partitions; other streams are in memory."""

    def __init__(
        self,
        streams: MemoryStreams,
        offsets: Mapping[SystemStreamPartition, Sequence[str]],
        counts: Mapping[SystemStream, int],
    ) -> None:
        super().__init__(streams)
        self._counts = counts
        self._widest = 1 + max((ssp.partition for ssp in offsets), default=0)
        self._partitions: dict[SystemStream, dict[int, Sequence[str]]] = {}
        self._ranks: dict[str, int] = {}
        for ssp, known in offsets.items():
            self._partitions.setdefault(ssp.system_stream, {})[ssp.partition] = known
            self._ranks.update(zip(known, range(len(known)), strict=True))

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        found = {}
        for stream in streams:
            recorded = self._partitions.get(stream)
            if recorded is None:
                found.update(super().metadata([stream]))
            else:
                found[stream] = {
                    number: PartitionMetadata(known[0], known[-1], self._end(known[-1]))
                    if known
                    else PartitionMetadata(None, None, None)
                    for number, known in recorded.items()
                }
        return found

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        """Create a stream with its recorded number of partitions.

        Where that is not known, it has no fewer than the inputs have, so that a partition that the task names
        exists."""
        return super().create(stream, self._counts.get(stream) or max(partitions, self._widest))

    def compare(self, offset: str, other: str) -> int | None:
        order = super().compare(offset, other)
        if order is None and offset in self._ranks and other in self._ranks:
            mine, others = self._ranks[offset], self._ranks[other]
            return (mine > others) - (mine < others)
        return order

    def after(self, offset: str) -> str:
        try:
            return super().after(offset)
        except OffsetError:
            return self._end(offset)

    def identity(self, ssp: SystemStreamPartition, position: str) -> str | None:
        return None if ssp.system_stream in self._partitions else super().identity(ssp, position)

    def _end(self, offset: str) -> str:
        return str(int(offset) + 1) if offset.isascii() and offset.isdecimal() else f"{offset}+"


def _chunks(ssp: SystemStreamPartition, messages: Sequence[IncomingMessageEnvelope]) -> Iterator[Messages]:
    for start in range(0, len(messages), _CHUNK):
        yield Chunk.of(ssp, messages[start : start + _CHUNK])
