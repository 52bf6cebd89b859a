"""Waits of a start for another process or a broker, each of which is shown once it takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SHOWN_AFTER_S = 2.0

_show: ContextVar[Callable[[str], object]] = ContextVar("shown waits", default=lambda text: None)


@contextmanager
def showing_waits(show: Callable[[str], object]) -> Iterator[None]:
    """Meanwhile, on this thread, call ``show`` with the text of each wait that takes longer than two
    seconds."""
    before = _show.set(show)
    try:
        yield
    finally:
        _show.reset(before)


class Wait:
    """A wait by pauses between looks. ``text``: what is waited for, in words."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._is_shown = False

    def pause(self, seconds: float) -> None:
        """Sleep so long. Once it takes long, say so."""
        if not self._is_shown and time.monotonic() - self._began >= _SHOWN_AFTER_S:
            self._is_shown = True
            _show.get()(self._text)
        time.sleep(seconds)
