"""A notice to the commands that wait for a session that is busy with one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_notice: ContextVar[Callable[[], object]] = ContextVar("waiting notice", default=lambda: None)


@contextmanager
def noticing(notice: Callable[[], object]) -> Iterator[None]:
    """Meanwhile, on this thread, call ``notice`` again and again while a session is waited for,
    however long that takes. Its errors end the waiting."""
    before = _notice.set(notice)
    try:
        yield
    finally:
        _notice.reset(before)


def notice_waiting() -> None:
    """Called by what waits, many times a second."""
    _notice.get()()
