"""Effects: what a commit writes to streams, and how it gets there once, however often it is applied.

A record of the commit journal holds the effects of its commit. Its writer applies them, and so does a process
that finds it later. Each partition remembers the last record of a producer that was applied to it, and passes
over what it has already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from streambench.errors import CorruptDataError
from streambench.rows import Rows


class PendingWrites(Struct):
    """The writes of one commit to partitions: each of them once. ``generation`` and ``sequence`` grow from
    commit to commit."""

    producer: str
    generation: int
    sequence: int
    rows: Sequence[Rows]

    def to_bytes(self) -> bytes:
        """For the journal: messages of bytes."""
        return _encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> PendingWrites:
        """The inverse of ``to_bytes``. Raises CorruptDataError."""
        try:
            return _decode(data)
        except msgspec.MsgspecError as error:
            raise CorruptDataError(f"the outputs of a commit cannot be read: {error}") from None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PendingWrites).decode


class PendingWritesApplier(Protocol):
    """Brings the writes of commits to their partitions: ``ProducersApplier`` does."""

    def check(
        self, effects: PendingWrites, missing_record: Callable[[int, int], Path | None] = ...
    ) -> None:
        """Before a commit is made: can it be applied? Raises CheckpointError where a partition holds later
        commits of this producer: these effects would be taken for written already. Also where it holds one of
        this generation and sequence whose record is missing: its outputs would be written twice. Raises
        MessageTooLargeError where there is too much for one partition."""

    def apply(self, effects: PendingWrites) -> None:
        """Append what is not there yet, and return when all of it is durable."""
