"""From many partitions to one candidate each: the multiplexer keeps the chooser supplied.

Every input partition has a *lane*. Messages wait in it by the chunk as they were read, then, decoded, one by one; the first of them
is inside the chooser. Work is done per chunk wherever possible: a message that goes through costs one ``popleft`` here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Candidate, Explanation, unexplained
from streambench.chunk import Chunk, Messages, Undecodable, Unreadable
from streambench.container.batches import Waiting
from streambench.container.intake import Arrival, Intake
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.serde.streams import StreamSerdes, decoded

if TYPE_CHECKING:
    from streambench.container.task_instance import Subscription

_REFILLS_PER_LOOK = 16


class Lane:
    """One input partition on its way to the chooser.

    ``subscriptions``: the tasks that get its messages (several for a broadcast input); ``single`` is the only one, None where they are
    several, where one of them begins later than the lane does, and while a message that cannot be decoded waits. ``end``: the first
    offset that is no longer read, None for no end; ``bounded``: the partition ends there, what follows is not just left for the next
    time. ``at_most``: how many messages are asked for at once. ``waiting`` is the buffer where the tasks take batches, else None.
    """

    __slots__ = (
        "at_end", "at_head", "at_most", "bounded", "buffer", "chunks", "delivered", "end", "finished", "key_serde", "may_end",
        "message_serde", "owed", "polled", "serdes", "single", "ssp", "start", "subscriptions", "undecodable", "waiting",
    )  # fmt: skip

    def __init__(self, ssp: SystemStreamPartition, start: str, room: int) -> None:
        """``room``: how many messages may wait."""
        self.ssp = ssp
        self.start = start
        self.at_most = room
        self.buffer: deque[IncomingMessageEnvelope] = deque()
        self.chunks: deque[Messages] = deque()
        self.waiting: Waiting | None = None
        self.subscriptions: tuple[Subscription, ...] = ()
        self.single: Subscription | None = None
        self.key_serde: Serde | None = None
        self.message_serde: Serde | None = None
        self.serdes: tuple[str | None, str | None] = (None, None)
        self.end: str | None = None
        self.bounded = self.may_end = self.at_end = False
        self.finished = False
        self.polled = True
        self.at_head = False
        self.delivered = 0
        self.owed = 0
        self.undecodable = 0

    def read_by(self, serdes: StreamSerdes) -> None:
        """Take the serdes of the stream."""
        stream = self.ssp.system_stream
        self.key_serde, self.message_serde = serdes.for_stream(stream)
        self.serdes = serdes.names_for(stream)

    def find_single(self) -> None:
        """Set ``single`` to what it should be now."""
        alone = len(self.subscriptions) == 1 and self.subscriptions[0].skip_before is None and not self.undecodable
        self.single = self.subscriptions[0] if alone and self.waiting is None else None

    def take_batches(self, longest: int, room: int) -> None:
        """Keep messages as they are read, for tasks that take runs of at most ``longest`` of them."""
        self.buffer = self.waiting = Waiting(self)
        self.at_most = min(longest, room)
        self.find_single()


class Multiplexer:
    """Feeds a chooser from the lanes, one candidate per lane at a time."""

    def __init__(
        self,
        intake: Intake,
        chooser: MessageChooser,
        lanes: Mapping[SystemStreamPartition, Lane],
        *,
        compare: Callable[[str, str, str], int | None],
    ) -> None:
        """``compare(system, a, b)`` compares two offsets of a system."""
        self.chooser = chooser
        self.lanes = dict(sorted(lanes.items()))
        self._intake = intake
        self._compare = compare
        self._dry: dict[Lane, None] = {}
        self._refills = 0
        self._is_started = False
        self.ended: list[Lane] = []
        """The lanes that have come to their end since somebody looked here: everything of them was processed, and nothing will follow."""

    def start(self) -> None:
        """Register the lanes with the chooser and offer what is there, in the order of system, stream and partition."""
        for ssp, lane in self.lanes.items():
            lane.polled = self._intake.is_polled(ssp.system)
            if lane.polled and lane.waiting is None:
                lane.at_most = min(lane.at_most, self._intake.at_once(ssp.system))
            lane.may_end = lane.bounded or (lane.end is None and self._intake.may_end(ssp.system))
            self.chooser.register(ssp, lane.start)
            if lane.end is not None and (self._compare(ssp.system, lane.start, lane.end) or 0) >= 0:
                lane.finished = True
        self._is_started = True
        self.chooser.start()
        for lane in self.lanes.values():
            self._dry[lane] = None
        self.look()

    def stop(self) -> None:
        """Stop the chooser, once, if it was started."""
        if self._is_started:
            self._is_started = False
            self.chooser.stop()

    @property
    def dry(self) -> int:
        """How many lanes wait for messages: where any does, ``look`` is due from time to time."""
        return len(self._dry)

    def offer(self, lane: Lane) -> None:
        """Give the chooser the next message of a lane whose candidate has been chosen; where there is none the lane runs dry."""
        if lane.buffer:
            self.chooser.update(lane.buffer.popleft())
            return
        self._dry[lane] = None
        if lane.owed:
            self._intake.consumed(lane.ssp, lane.owed)
            lane.owed = 0
        while lane.chunks and not lane.finished:
            self._decode(lane, lane.chunks.popleft())
            if self._moisten(lane):
                return
        if lane.polled and not lane.finished:
            self._refills += 1
            # A look polls every lane that ran dry: as many refills as there are of these pay for it.
            if self._refills >= max(_REFILLS_PER_LOOK, len(self._dry)):
                self._refills = 0
                self.look()
            else:
                self._poll(lane.ssp.system, [lane])

    def gather(self, lane: Lane, count: int) -> None:
        """Have ``count`` messages wait in a lane that takes batches, the one inside the chooser included, as far as there are so many."""
        while lane.chunks and not lane.finished and len(lane.buffer) + 1 < count:
            self._decode(lane, lane.chunks.popleft())
        missing = min(count, lane.at_most) - len(lane.buffer) - 1
        if missing > 0 and lane.polled and not lane.finished:
            for chunk in self._intake.poll(lane.ssp.system, {lane.ssp: missing}):
                self._decode(lane, chunk)

    def make_room(self, lane: Lane) -> None:
        """Tell the reader of a lane that takes batches what no longer waits, so that it reads on while a run is processed."""
        taken = lane.owed - len(lane.buffer)
        if taken > 0:
            self._intake.consumed(lane.ssp, taken)
            lane.owed -= taken

    def look(self) -> bool:
        """Poll for the lanes that ran dry; whether the chooser got a candidate by it."""
        before = len(self._dry)
        systems: dict[str, list[Lane]] = {}
        for lane in self._dry:
            if lane.polled and not lane.finished:
                systems.setdefault(lane.ssp.system, []).append(lane)
        for system, lanes in systems.items():
            self._poll(system, lanes)
        for lane in self._dry:
            if self.is_at_head(lane):
                self.chooser.at_head(lane.ssp)
                if lane.may_end and self._is_at_end(lane):
                    lane.may_end = False
                    self.ended.append(lane)
        return len(self._dry) < before

    def accept(self, arrival: Arrival) -> None:
        """Take what a reader thread brought."""
        for chunk in arrival.chunks:
            lane = self.lanes[chunk.ssp]
            if lane.finished:
                continue  # and its reader is not told to go on
            lane.chunks.append(chunk)
            if lane in self._dry:
                self.offer(lane)
        for ssp, lane in self.lanes.items():
            if ssp.system == arrival.system:
                lane.at_head = ssp in arrival.at_head
                lane.at_end = ssp in arrival.at_end

    def caught_up(self) -> bool:
        """Whether nothing waits anywhere, and every partition had nothing more to give when it was last asked."""
        return len(self._dry) == len(self.lanes) and all(self.is_at_head(lane) for lane in self._dry)

    def systems(self) -> set[str]:
        """Those that are still read."""
        return {ssp.system for ssp, lane in self.lanes.items() if not lane.finished}

    def reads_any(self, streams: Collection[SystemStream]) -> bool:
        """Whether any of these is an input."""
        return any(ssp.system_stream in streams for ssp in self.lanes)

    def counts(self, lane: Lane, chosen: Lane | None) -> tuple[int, int]:
        """How many messages of a lane are in memory and not chosen yet, and how many were chosen. ``chosen``: the lane whose candidate was
        chosen last and whose next message has not been offered yet."""
        ready = len(lane.buffer) + (lane not in self._dry and lane is not chosen)
        return ready + sum(map(len, lane.chunks)), lane.delivered - ready

    def explain(self, chosen: IncomingMessageEnvelope | None, without: Lane | None) -> Explanation:
        """Why the chooser chose as it did (None: how things stand with it), with all that wait in it, whether it told of them or not.

        ``without``: the lane whose candidate was chosen last and whose next message has not been offered yet."""
        try:
            told = self.chooser.explain(chosen)
        except Exception as error:
            told = unexplained(self.chooser, error, chosen)
        known = {each.ssp for each in told.waiting}
        waiting = (*told.waiting, *(Candidate(ssp) for ssp in self.candidates(without) if ssp not in known))
        return replace(told, waiting=waiting, held={each.ssp: told.held[each.ssp] for each in waiting if each.ssp in told.held})

    def candidates(self, chosen: Lane | None) -> list[SystemStreamPartition]:
        """The partitions that have a message inside the chooser. ``chosen``: as for ``counts``."""
        return [ssp for ssp, lane in self.lanes.items() if lane not in self._dry and lane is not chosen]

    def is_at_head(self, lane: Lane) -> bool:
        """Whether a partition had nothing more to give when it was last asked."""
        if lane.finished:
            return True
        return self._intake.at_head(lane.ssp) if lane.polled else lane.at_head and not lane.chunks

    def _is_at_end(self, lane: Lane) -> bool:
        """Of a lane that is dry and at its head."""
        if lane.bounded:
            return True
        return self._intake.at_end(lane.ssp) if lane.polled else lane.at_end

    def _poll(self, system: str, lanes: Collection[Lane]) -> None:
        for chunk in self._intake.poll(system, {lane.ssp: lane.at_most for lane in lanes}):
            self._decode(self.lanes[chunk.ssp], chunk)
        for lane in lanes:
            self._moisten(lane)

    def _moisten(self, lane: Lane) -> bool:
        if not lane.buffer:
            return False
        del self._dry[lane]
        self.chooser.update(lane.buffer.popleft())
        return True

    def _decode(self, lane: Lane, chunk: Messages) -> None:
        """Append the messages of a chunk to the lane's buffer, decoded, as far as the lane goes."""
        if not lane.polled:
            lane.owed += len(chunk)
        if lane.waiting is not None:
            self._keep(lane, lane.waiting, chunk)
            return
        assert isinstance(chunk, Chunk)
        if lane.end is not None:
            chunk = self._until_end(lane, chunk)
        lane.delivered += len(chunk)
        if type(chunk) is Unreadable:
            self._decode_one_by_one(lane, chunk)
            return
        key_serde, message_serde = lane.key_serde, lane.message_serde
        if key_serde is None and message_serde is None:
            lane.buffer.extend(chunk.envelopes())
            return
        try:
            keys = chunk.keys if key_serde is None else _decoded(key_serde, chunk.keys)
            messages = chunk.messages if message_serde is None else _decoded(message_serde, chunk.messages)
        except Exception:
            self._decode_one_by_one(lane, chunk)
        else:
            lane.buffer.extend(Chunk(chunk.ssp, chunk.offsets, keys, messages, chunk.timestamps, chunk.headers).envelopes())

    def _keep(self, lane: Lane, waiting: Waiting, messages: Messages) -> None:
        """Add messages to those that wait for a task that takes batches, as far as the lane goes."""
        count = len(messages)
        if lane.end is not None and count and not self._before(lane, messages.offset(count - 1)):
            lane.finished = True
            count = bisect_left(range(count), True, key=lambda at: not self._before(lane, messages.offset(at)))
            messages = messages.part(0, count)
        waiting.add(messages)
        lane.delivered += count

    def _decode_one_by_one(self, lane: Lane, chunk: Chunk) -> None:
        """The messages of a chunk that holds one that cannot be decoded."""
        for raw in chunk.envelopes():
            found = decoded(raw, lane.key_serde, lane.message_serde)
            if isinstance(found, SerdeError):
                found = Undecodable(raw.ssp, raw.offset, raw.key, raw.message, raw.timestamp, raw.headers, error=found)
                lane.undecodable += 1
            lane.buffer.append(found)
        lane.find_single()

    def _until_end(self, lane: Lane, chunk: Chunk) -> Chunk:
        assert lane.end is not None
        if not chunk.offsets or self._before(lane, chunk.offsets[-1]):
            return chunk
        lane.finished = True
        count = next(at for at, offset in enumerate(chunk.offsets) if not self._before(lane, offset))
        return chunk.part(0, count)

    def _before(self, lane: Lane, offset: str) -> bool:
        order = self._compare(lane.ssp.system, offset, lane.end or "")
        return order is not None and order < 0


def _decoded(serde: Serde, values: list[Any]) -> list[Any]:
    decode = serde.from_bytes
    if None in values:
        return [None if value is None else decode(value) for value in values]
    return list(map(decode, values))
