"""A start that takes long says so: how far it is with bringing back the state of its stores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from streambench.container.container import Container
from streambench.debug.view.view import restored

_PATIENCE_S = 2.0
_EVERY_S = 0.25


@contextmanager
def show_restore_progress(container: Container) -> Iterator[None]:
    """Meanwhile, print how far the container's restore is, once that has taken two seconds; on one line,
    which is written over."""
    due = time.monotonic() + _PATIENCE_S
    width = 0

    def show() -> None:
        nonlocal due, width
        progress, now = container.status.restoring, time.monotonic()
        if progress is None or now < due:
            return
        due = now + _EVERY_S
        text = restored([progress])
        print(f"\r{text:{width}}", end="", flush=True)
        width = len(text)

    container.on_start = show
    try:
        yield
    finally:
        container.on_start = None
        if width:
            print()
