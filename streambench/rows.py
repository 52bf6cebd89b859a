"""Rows: messages that wait to be written to one partition, all at once or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from numbers import Integral
from typing import Any

from msgspec import Struct

from streambench.errors import SerdeError, shortened
from streambench.model import SystemStream, SystemStreamPartition

_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1


class Rows(Struct):
    """Encoded messages for one partition, as columns of one length; ``timestamps`` and ``headers`` are None
    where none has any.

    ``base``: where the partition ended when that was last known, if no other process writes to it and offsets
    are derived from it; None: any. Where every message takes one offset, it is the one that the first of them
    must get."""

    ssp: SystemStreamPartition
    keys: list[Any]
    messages: list[Any]
    timestamps: list[int | None] | None = None
    headers: list[Mapping[str, bytes] | None] | None = None
    base: int | None = None

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, key: Any, message: Any, timestamp: int | None, headers: Mapping[str, bytes] | None) -> None:
        """Append one message."""
        count = len(self)
        if timestamp is not None or self.timestamps is not None:
            self.timestamps = _padded(self.timestamps, count)
            self.timestamps.append(timestamp)
        if headers or self.headers is not None:
            self.headers = _padded(self.headers, count)
            self.headers.append(headers)
        self.keys.append(key)
        self.messages.append(message)

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


def ends_of(rows: Iterable[Rows]) -> dict[SystemStreamPartition, str]:
    """The offsets behind the rows that have a base, where every message takes one offset."""
    return {each.ssp: str(each.base + len(each)) for each in rows if each.base is not None}


def check_headers(where: SystemStream | SystemStreamPartition, headers: Mapping[str, bytes] | None) -> int:
    """The number of bytes that the names and values of headers take. Raises SerdeError where these are not
    text and bytes."""
    if not headers:
        return 0
    size = 0
    try:
        for name, value in headers.items():
            if type(name) is not str:
                raise SerdeError(
                    f"{where}: the name of a header must be str: {shortened(name)} is {type(name).__name__}"
                )
            if type(value) is not bytes:
                raise SerdeError(
                    f"{where}: the header {shortened(name)} must map a name (str) to bytes, not to "
                    f"{type(value).__name__}"
                )
            size += len(name.encode()) + len(value)
    except AttributeError:
        raise SerdeError(
            f"{where}: headers must map names (str) to bytes, and are {shortened(headers)}"
        ) from None
    except UnicodeEncodeError as error:
        raise SerdeError(f"{where}: headers must map names (str) to bytes: {error}") from error
    return size


def check_timestamp(where: SystemStream | SystemStreamPartition, timestamp: Any) -> None:
    """Raise SerdeError for what is neither None nor an integer of 64 bits: a float, text, a datetime."""
    if timestamp is None or (type(timestamp) is int and _EARLIEST <= timestamp <= _LATEST):
        return
    # Slower: the integers of numpy.
    is_whole = isinstance(timestamp, Integral) and not isinstance(timestamp, bool)
    if not is_whole or not _EARLIEST <= int(timestamp) <= _LATEST:
        remedy = "; give int(time.timestamp() * 1000)" if isinstance(timestamp, datetime) else ""
        raise SerdeError(
            f"{where}: the timestamp must be a whole number of milliseconds since 1970 (an int of 64 bits), "
            f"not {shortened(timestamp)} ({type(timestamp).__name__}){remedy}"
        )


def _padded(values: list[Any] | None, length: int) -> list[Any]:
    """The column, brought to this length with None."""
    values = [] if values is None else values
    values.extend([None] * (length - len(values)))
    return values
