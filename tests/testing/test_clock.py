"""Time that stands still."""

from __future__ import annotations

import pytest

from streambench.testing import ManualClock


def test_time_stands_still_unless_it_is_advanced() -> None:
    clock = ManualClock(5)
    assert (clock.now_ms(), clock.now_ms()) == (5, 5)
    clock.advance(10)
    assert (clock.now_ms(), clock.monotonic_ns()) == (15, 15_000_000)


def test_time_begins_at_nought() -> None:
    assert ManualClock().now_ms() == 0


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="time does not go back"):
        ManualClock().advance(-1)
