"""Input: the buffer of one input partition, between its consumer and the chooser."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from streambench.chunk import Chunk, Messages
from streambench.container.inputs.raw_buffer import RawBuffer
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.serde.streams import StreamSerdes

if TYPE_CHECKING:
    from streambench.container.tasks.task_instance import TaskPartition

_IN_WORK = 2  # the candidate inside the chooser, and the message that is processed


class MessageQueue(Protocol):
    """The part of a deque that the event loop uses."""

    def __len__(self) -> int: ...

    def popleft(self) -> IncomingMessageEnvelope: ...


class BufferState(Enum):
    """The progress of reading a partition, as its buffer knows it.

    ``AT_HEAD`` and ``AT_END`` are what a reader thread reported last. A consumer that the loop polls is asked
    instead, when that is needed. All this is read by the chunk and by the poll, never with a message."""

    READING = "more may follow"
    AT_HEAD = "everything that was there has been read"
    AT_END = "at its head, and nothing will ever follow"
    FINISHED = "the end that was set is reached: what still comes is left out"


class PartitionBuffer:
    """One input partition on its way to the chooser.

    ``subscriptions``: the tasks that get its messages (several for a broadcast input). ``sole_subscription``
    is the only one. It is None where there are several, where one begins later than the buffer, and while a
    message that cannot be decoded waits. ``end``: the first offset that is no longer read, None for no end.
    ``is_bounded``: the partition ends there, and what follows is not just left for the next time.
    ``is_polled``: its consumer is polled by the event loop. ``at_head`` is that consumer's own, else None.
    ``fetch_limit``: the messages to request at once.

    ``buffer`` holds what follows the candidate: it is ``waiting`` where the tasks take batches, else
    ``decoded``, and ``waiting`` is None. ``kept``: where ``original`` is used, what is in the buffer and in
    work, as it was read; else None.
    """

    __slots__ = (
        "at_head",
        "buffer",
        "chunks",
        "decoded",
        "delivered",
        "end",
        "fetch_limit",
        "is_bounded",
        "is_polled",
        "kept",
        "key_serde",
        "message_serde",
        "serdes",
        "sole_subscription",
        "ssp",
        "start",
        "state",
        "subscriptions",
        "undecodable",
        "unreturned_credit",
        "waiting",
    )

    def __init__(self, ssp: SystemStreamPartition, start: str, room: int) -> None:
        """``room``: how many messages may wait."""
        self.ssp = ssp
        self.start = start
        self.fetch_limit = room
        self.decoded: deque[IncomingMessageEnvelope] = deque()
        self.buffer: MessageQueue = self.decoded
        self.chunks: deque[Messages] = deque()
        self.waiting: RawBuffer | None = None
        self.kept: deque[Chunk] | None = None
        self.subscriptions: tuple[TaskPartition, ...] = ()
        self.sole_subscription: TaskPartition | None = None
        self.key_serde: Serde | None = None
        self.message_serde: Serde | None = None
        self.serdes: tuple[str | None, str | None] = (None, None)
        self.end: str | None = None
        self.is_bounded = False
        self.is_polled = True
        self.at_head: Callable[[SystemStreamPartition], bool] | None = None
        self.state = BufferState.READING
        self.delivered = 0
        self.unreturned_credit = 0
        self.undecodable = 0

    def read_by(self, serdes: StreamSerdes) -> None:
        """Take the serdes of the stream."""
        stream = self.ssp.system_stream
        self.key_serde, self.message_serde = serdes.for_stream(stream)
        self.serdes = serdes.names_for(stream)

    def keep_originals(self) -> None:
        """Keep what is decoded as it was read, too, until it is processed. Raw messages are their own
        originals."""
        if self.key_serde is not None or self.message_serde is not None:
            self.kept = deque()

    def keep(self, chunk: Chunk) -> None:
        """Keep a chunk whose messages go into the buffer now, and drop those of which none waits or is in
        work any more."""
        assert self.kept is not None
        needed = len(self.buffer) + _IN_WORK
        there = sum(map(len, self.kept))
        while self.kept and there - len(self.kept[0]) >= needed:
            there -= len(self.kept.popleft())
        self.kept.append(chunk)

    def original(self, envelope: IncomingMessageEnvelope) -> IncomingMessageEnvelope:
        """A message in work as it was read."""
        for chunk in self.kept or ():
            if envelope.offset in chunk.offsets:
                at = chunk.offsets.index(envelope.offset)
                return chunk.part(at, at + 1).envelopes()[0]
        return envelope

    def find_sole_subscription(self) -> None:
        """Set ``sole_subscription`` to what it should be now."""
        alone = (
            len(self.subscriptions) == 1
            and self.subscriptions[0].skip_before is None
            and not self.undecodable
        )
        self.sole_subscription = self.subscriptions[0] if alone and self.waiting is None else None

    def take_batches(self, longest: int, room: int) -> None:
        """Keep messages as they are read, for tasks that take batches of at most ``longest`` of them."""
        self.buffer = self.waiting = RawBuffer(self.key_serde, self.message_serde, self.serdes)
        self.fetch_limit = min(longest, room)
        self.find_sole_subscription()
