"""Time that stands still."""

from __future__ import annotations


class ManualClock:
    """A clock that shows ``start_ms`` until it is advanced: by a test, or by a task while it runs."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass. Time does not go back: a negative number raises ValueError."""
        if ms < 0:
            raise ValueError(f"time does not go back: advance({ms})")
        self._now_ms += ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ns(self) -> int:
        return self._now_ms * 1_000_000
