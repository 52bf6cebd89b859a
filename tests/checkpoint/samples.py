"""Checkpoints to write in tests."""

from __future__ import annotations

from streambench.checkpoint.api import Checkpoint
from streambench.model import SystemStreamPartition

CLICKS = SystemStreamPartition("log", "clicks.eu", 0)
VIEWS = SystemStreamPartition("log", "views", 3)


def at(offset: int, *, time_ms: int = 0) -> Checkpoint:
    """A checkpoint of a task that has processed one partition up to this offset."""
    return Checkpoint({CLICKS: str(offset)}, time_ms=time_ms)
