"""Rows: messages that wait to be written to one partition, all at once or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from streambench.model import SystemStreamPartition


class Rows(Struct):
    """Encoded messages for one partition, as columns of one length; ``timestamps`` and ``headers`` are None where none has any.

    ``base``: the offset that the first of them must get, because other offsets were derived from it; None: any.
    """

    ssp: SystemStreamPartition
    keys: list[Any]
    messages: list[Any]
    timestamps: list[int | None] | None = None
    headers: list[Mapping[str, bytes] | None] | None = None
    base: int | None = None

    def __len__(self) -> int:
        return len(self.messages)

    def extend(self, more: Rows) -> None:
        """Append the messages of other rows for the same partition."""
        count, added = len(self), len(more)
        if self.timestamps is not None or more.timestamps is not None:
            self.timestamps = _padded(self.timestamps, count)
            self.timestamps += _padded(more.timestamps, added)
        if self.headers is not None or more.headers is not None:
            self.headers = _padded(self.headers, count)
            self.headers += _padded(more.headers, added)
        self.keys += more.keys
        self.messages += more.messages

    def stamp(self, time_ms: int) -> None:
        """Give this timestamp to all messages that have none."""
        self.timestamps = [time_ms if each is None else each for each in _padded(self.timestamps, len(self))]


def _padded(values: list[Any] | None, length: int) -> list[Any]:
    """The column, brought to this length with None."""
    values = [] if values is None else values
    values.extend([None] * (length - len(values)))
    return values
