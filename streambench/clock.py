"""Time, as the runtime reads it: injected, so that a test or a replay can control it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


def as_text(time_ms: float, timespec: str = "milliseconds") -> str:
    """A time in milliseconds since 1970 as ISO 8601 in UTC; the number itself where it is outside of the
    calendar."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec=timespec)
    except (ArithmeticError, ValueError, OSError):
        return f"{time_ms} ms since 1970"


class Clock(Protocol):
    """The time source of a container. The event loop reads it once per iteration and nowhere else."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 (UTC): what timestamps are made of."""

    def monotonic_ns(self) -> int:
        """Nanoseconds from an arbitrary start, never going back: what windows, commits and rates are timed
        by."""


class SystemClock:
    """The clock of the machine."""

    # The builtin itself, not a method that calls it: the loop pays for this call with every message.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
