"""Waits for what the garbage collector takes away."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

PATIENCE_S = 60


def await_collected(is_gone: Callable[[], object]) -> None:
    """Collect garbage until something is gone, for a minute at most.

    ``gc.collect()`` returns at once, with nothing done, while another thread of the process collects."""
    deadline = time.monotonic() + PATIENCE_S
    gc.collect()
    while not is_gone():
        assert time.monotonic() < deadline, "something still refers to it"
        time.sleep(0.05)
        gc.collect()
