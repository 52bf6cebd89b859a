"""A command that runs messages again on a copy says how far it is, once that takes long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streambench.counts import counted
from streambench.debug.control.session import Session
from streambench_magics.commands.status_messages import looking

_PATIENCE_S = 2.0
_EVERY_S = 0.5


@contextmanager
def show_travel_progress(session: Session, *, swapped: int = 0) -> Iterator[None]:
    """Meanwhile, print how far a session is that runs messages again, once that has taken two seconds; on one
    line, which is written over. ``swapped``: the number of last messages that run through new code, too."""
    history = session.history
    if history is None:
        yield
        return
    history.moving = None
    width = 0

    def look() -> None:
        nonlocal width
        if history.moving is None:
            return
        at, to = history.moving()
        what, where = "runs again what led there", f"at {at:,} of {to:,}"
        if swapped and to >= session.position:
            count = min(swapped, to - history.oldest)
            what = f"runs the last {counted(count, 'message')} through the new code"
            where = f"at {max(0, at - to + count):,}"
        text = f"{session.name} {what}: {where} (interrupt the kernel to stop)"
        print(f"\r{text:{width}}", end="", flush=True)
        width = len(text)

    try:
        with looking(look, _PATIENCE_S, _EVERY_S):
            yield
    finally:
        if width:
            print()
