"""The clock of the machine."""

from __future__ import annotations

import time

from streambench.clock import SystemClock


def test_it_shows_milliseconds_since_1970() -> None:
    before = time.time()
    shown = SystemClock().now_ms()
    assert int(before * 1000) - 1 <= shown <= time.time() * 1000 + 1


def test_its_other_hand_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ns() for _ in range(100)]
    assert readings == sorted(readings)
