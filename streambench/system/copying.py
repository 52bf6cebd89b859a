"""Copies of keys and messages that stay objects.

Where a serde is configured, sender and receiver never share an object. Streams in memory pass on copies, so
that a job without serdes behaves alike. To change a message after ``process`` has returned, or one that a
task got, changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from streambench.errors import SerdeError, described

_IMMUTABLE: frozenset[type] = frozenset({
    bytes, str, int, float, bool, complex, type(None), date, datetime, time, timedelta, Decimal, UUID, object,
})  # fmt: skip


def is_immutable(value: object) -> bool:
    """True where a value is known to be immutable: sharing it cannot be noticed."""
    return type(value) in _IMMUTABLE


def are_immutable(values: Iterable[object]) -> bool:
    """True where all of these values are."""
    return _IMMUTABLE.issuperset(map(type, values))


def detached(value: Any) -> Any:
    """A copy that shares nothing that can change with ``value``; the value itself where nothing of it can.

    Raises SerdeError for what cannot be copied: an open file, a lock, a generator."""
    if type(value) in _IMMUTABLE:
        return value
    try:
        return deepcopy(value)
    except Exception as error:
        raise SerdeError(
            f"a {type(value).__name__} cannot be copied: {described(error)}; streams in memory hand on "
            "copies, as a serde would: send what can be copied, or set a serde"
        ) from error
