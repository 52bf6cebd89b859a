"""From many partitions to one candidate each: the multiplexer keeps the chooser supplied.

Every input partition has a *lane*. Messages wait in it by the chunk as they were read, then, decoded, one by one; the first of them
is inside the chooser. Work is done per chunk wherever possible: a message that goes through costs one ``popleft`` here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streambench.chooser.api import MessageChooser
from streambench.container.intake import Arrival, Intake
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.system.api import Chunk

if TYPE_CHECKING:
    from streambench.container.task_instance import Subscription

_CHUNK = 1000
_REFILLS_PER_LOOK = 16

Undecodable = Callable[[SystemStreamPartition, str, Any, Any, SerdeError], None]
"""Called with partition, offset, key and message as they were read, and the error; raises it, or returns to pass the message over."""


class Lane:
    """One input partition on its way to the chooser.

    ``subscriptions``: the tasks that get its messages (several for a broadcast input); ``single`` is the only one, None where they are
    several
    or one of them begins later than the lane does. ``end``: the first offset that is no longer read, None for no end.
    """

    __slots__ = (
        "at_head", "buffer", "chunks", "delivered", "end", "finished", "key_serde", "message_serde", "polled", "single", "ssp", "start",
        "subscriptions",
    )  # fmt: skip

    def __init__(self, ssp: SystemStreamPartition, start: str) -> None:
        self.ssp = ssp
        self.start = start
        self.buffer: deque[IncomingMessageEnvelope] = deque()
        self.chunks: deque[Chunk] = deque()
        self.subscriptions: tuple[Subscription, ...] = ()
        self.single: Subscription | None = None
        self.key_serde: Serde | None = None
        self.message_serde: Serde | None = None
        self.end: str | None = None
        self.finished = False
        self.polled = True
        self.at_head = False
        self.delivered = 0


class Multiplexer:
    """Feeds a chooser from the lanes, one candidate per lane at a time."""

    def __init__(
        self,
        intake: Intake,
        chooser: MessageChooser,
        lanes: Mapping[SystemStreamPartition, Lane],
        *,
        room: int,
        compare: Callable[[str, str, str], int | None],
        undecodable: Undecodable,
    ) -> None:
        """``compare(system, a, b)`` compares two offsets of a system; ``room`` is how many messages of a lane may wait."""
        self.chooser = chooser
        self.lanes = dict(sorted(lanes.items()))
        self._intake = intake
        self._at_most = min(_CHUNK, room)
        self._compare = compare
        self._undecodable = undecodable
        self._dry: dict[Lane, None] = {}
        self._refills = 0

    def start(self) -> None:
        """Register the lanes with the chooser and offer what is there, in the order of system, stream and partition."""
        for ssp, lane in self.lanes.items():
            lane.polled = self._intake.is_polled(ssp.system)
            self.chooser.register(ssp, lane.start)
            if lane.end is not None and (self._compare(ssp.system, lane.start, lane.end) or 0) >= 0:
                lane.finished = True
        self.chooser.start()
        for lane in self.lanes.values():
            self._dry[lane] = None
        self.look()

    @property
    def has_dry(self) -> bool:
        """Whether a lane waits for messages: ``look`` is due from time to time."""
        return bool(self._dry)

    def offer(self, lane: Lane) -> None:
        """Give the chooser the next message of a lane whose candidate has been chosen; where there is none the lane runs dry."""
        if lane.buffer:
            self.chooser.update(lane.buffer.popleft())
            return
        self._dry[lane] = None
        while lane.chunks:
            self._decode(lane, lane.chunks.popleft())
            if self._moisten(lane):
                return
        if lane.polled and not lane.finished:
            self._refills += 1
            if self._refills % _REFILLS_PER_LOOK == 0:
                self.look()
            else:
                self._poll(lane.ssp.system, [lane])

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
            if self._is_at_head(lane):
                self.chooser.at_head(lane.ssp)
        return len(self._dry) < before

    def accept(self, arrival: Arrival) -> None:
        """Take what a reader thread brought."""
        for chunk in arrival.chunks:
            lane = self.lanes[chunk.ssp]
            lane.chunks.append(chunk)
            if lane in self._dry:
                self.offer(lane)
        for ssp, lane in self.lanes.items():
            if ssp.system == arrival.system:
                lane.at_head = ssp in arrival.at_head

    def caught_up(self) -> bool:
        """Whether nothing waits anywhere, and every partition had nothing more to give when it was last asked."""
        return len(self._dry) == len(self.lanes) and all(self._is_at_head(lane) for lane in self._dry)

    def waiting(self, lane: Lane) -> int:
        """How many messages of a lane are in memory and not chosen yet."""
        return len(lane.buffer) + sum(map(len, lane.chunks)) + (lane not in self._dry)

    def _is_at_head(self, lane: Lane) -> bool:
        if lane.finished:
            return True
        return self._intake.at_head(lane.ssp) if lane.polled else lane.at_head and not lane.chunks

    def _poll(self, system: str, lanes: Iterable[Lane]) -> None:
        at_most = self._at_most
        for chunk in self._intake.poll(system, {lane.ssp: at_most for lane in lanes}):
            lane = self.lanes[chunk.ssp]
            self._decode(lane, chunk)
            self._moisten(lane)

    def _moisten(self, lane: Lane) -> bool:
        if not lane.buffer:
            return False
        del self._dry[lane]
        self.chooser.update(lane.buffer.popleft())
        return True

    def _decode(self, lane: Lane, chunk: Chunk) -> None:
        """Append the messages of a chunk to the lane's buffer, decoded, as far as the lane goes."""
        if not lane.polled:
            self._intake.consumed(lane.ssp, len(chunk))
        if lane.end is not None:
            chunk = self._until_end(lane, chunk)
        lane.delivered += len(chunk)
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

    def _decode_one_by_one(self, lane: Lane, chunk: Chunk) -> None:
        """The good messages of a chunk that holds a bad one. A bad one that must not be passed over fails only when its turn comes: what
        stands before it is processed first, and the rest of the chunk waits behind it."""
        for at, envelope in enumerate(chunk.envelopes()):
            try:
                key = envelope.key if lane.key_serde is None or envelope.key is None else lane.key_serde.from_bytes(envelope.key)
                message = envelope.message
                if lane.message_serde is not None and message is not None:
                    message = lane.message_serde.from_bytes(message)
            except Exception as cause:
                if lane.buffer:
                    self._put_back(lane, _rest(chunk, at))
                    return
                error = SerdeError(f"{envelope.ssp}@{envelope.offset}: cannot decode this message: {type(cause).__name__}: {cause}")
                error.__cause__ = cause
                self._undecodable(envelope.ssp, envelope.offset, envelope.key, envelope.message, error)
            else:
                lane.buffer.append(
                    IncomingMessageEnvelope(envelope.ssp, envelope.offset, key, message, envelope.timestamp, envelope.headers)
                )

    def _put_back(self, lane: Lane, chunk: Chunk) -> None:
        lane.chunks.appendleft(chunk)
        lane.delivered -= len(chunk)
        if not lane.polled:
            self._intake.consumed(lane.ssp, -len(chunk))

    def _until_end(self, lane: Lane, chunk: Chunk) -> Chunk:
        assert lane.end is not None
        if not chunk.offsets or self._before(lane, chunk.offsets[-1]):
            return chunk
        lane.finished = True
        count = next(at for at, offset in enumerate(chunk.offsets) if not self._before(lane, offset))
        return Chunk.of(chunk.ssp, chunk.envelopes()[:count])

    def _before(self, lane: Lane, offset: str) -> bool:
        order = self._compare(lane.ssp.system, offset, lane.end or "")
        return order is not None and order < 0


def _decoded(serde: Serde, values: list[Any]) -> list[Any]:
    decode = serde.from_bytes
    if None in values:
        return [None if value is None else decode(value) for value in values]
    return list(map(decode, values))


def _rest(chunk: Chunk, at: int) -> Chunk:
    return Chunk.of(chunk.ssp, chunk.envelopes()[at:])
