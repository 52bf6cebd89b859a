"""Errors of streams by hand."""

from __future__ import annotations

from streambench.errors import StreambenchError


class ByHandError(StreambenchError):
    """A stream was to be read or written in a way that it does not allow. The text says what is right."""
