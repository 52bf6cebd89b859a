"""Errors of a plug-in's methods, as errors of streambench that name the place."""

from __future__ import annotations

from streambench.errors import (
    CorruptDataError,
    MessageTooLargeError,
    OffsetError,
    StreambenchError,
    StreamSystemError,
    UnknownStreamError,
    described,
)
from streambench.model import SystemStream, SystemStreamPartition

_KINDS: tuple[type[StreamSystemError], ...] = (
    CorruptDataError,
    MessageTooLargeError,
    OffsetError,
    UnknownStreamError,
)


def named(place: SystemStream | SystemStreamPartition, what: str, error: BaseException) -> StreambenchError:
    """``error`` itself if it is one of ours that names the place; else one of its kind that does, caused by
    it."""
    if isinstance(error, StreambenchError) and str(place) in str(error):
        return error
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), StreamSystemError)
    failure = kind(f"{place} {what}: {described(error)}")
    failure.__cause__ = error
    return failure
