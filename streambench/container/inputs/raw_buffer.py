"""The buffer of undecoded messages, for tasks that take batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from streambench.batch import MessageBatch, offset_in, parts
from streambench.chunk import Messages
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope
from streambench.serde.api import Serde

_PEEKED = 64


class RawBuffer:
    """The buffer of a partition whose tasks take batches. The loop takes messages from it as from a deque.
    But they stay as they were read, and the one inside the chooser stays here, too, since the batch begins
    with it.

    ``taken`` is the last batch, until the next message goes into the chooser.
    """

    def __init__(
        self, key_serde: Serde | None, message_serde: Serde | None, names: tuple[str | None, str | None]
    ) -> None:
        """``names``: those of the serdes in the config."""
        self.taken: MessageBatch | None = None
        self._key_serde = key_serde
        self._message_serde = message_serde
        self._names = names
        self._pieces: deque[Messages] = deque()
        self._count = 0
        self._inside = 0

    def __len__(self) -> int:
        return self._count - self._inside

    def __bool__(self) -> bool:
        return self._count > self._inside

    def add(self, piece: Messages) -> None:
        """Messages as they were read, behind those that wait."""
        if len(piece):
            self._pieces.append(piece)
            self._count += len(piece)

    def popleft(self) -> IncomingMessageEnvelope:
        """The next message, decoded if that is possible: the chooser may look at it."""
        self._inside, self.taken = 1, None
        return MessageBatch([self._pieces[0].part(0, 1)], self._key_serde, self._message_serde).peek()[0]

    def offsets(self, at_most: int) -> LazyOffsets:
        """Those of the message inside the chooser and of what waits behind it."""
        return LazyOffsets(self._pieces, 0, min(at_most, self._count))

    def peek(self, start: int, stop: int) -> Iterator[IncomingMessageEnvelope]:
        """The messages from one place to before another, decoded where that is possible, as they are asked
        for."""
        for at in range(start, stop, _PEEKED):
            pieces = parts(self._pieces, at, min(at + _PEEKED, stop))
            yield from MessageBatch(pieces, self._key_serde, self._message_serde).peek()

    def take(
        self, count: int, undecodable: Callable[[IncomingMessageEnvelope, SerdeError], None]
    ) -> MessageBatch:
        """A batch: the message that was inside the chooser and those behind it, ``count`` in all."""
        taken: list[Messages] = []
        self._count -= count
        self._inside = 0
        while count:
            piece = self._pieces.popleft()
            if len(piece) > count:
                self._pieces.appendleft(piece.part(count, len(piece)))
                piece = piece.part(0, count)
            taken.append(piece)
            count -= len(piece)
        batch = self.taken = MessageBatch(
            taken, self._key_serde, self._message_serde, undecodable, self._names
        )
        return batch

    def put_back(self, pieces: Sequence[Messages]) -> None:
        """Put the batch that was taken back, as it was read: it is chosen again."""
        self._pieces.extendleft(reversed(pieces))
        self._count += sum(map(len, pieces))
        self._inside, self.taken = 1, None


class LazyOffsets(Sequence[str]):
    """Offsets of messages that wait; one is made only when it is looked at."""

    def __init__(self, pieces: Sequence[Messages], start: int, stop: int) -> None:
        self._pieces = pieces
        self._places = range(start, stop)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> LazyOffsets: ...
    def __getitem__(self, at: int | slice) -> str | LazyOffsets:
        if isinstance(at, int):
            return offset_in(self._pieces, self._places[at])
        places = self._places[at]
        if places.step != 1:
            raise IndexError("only slices of offsets one after the other")
        return LazyOffsets(self._pieces, places.start, max(places.start, places.stop))
