"""Crashes at every step of a recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streambench.debug.control.session import Session
from streambench.debug.crash.crash_report import Report
from streambench.debug.replay.replay import replaying
from streambench.recording.recording import Recording

_HISTORY_MB = 2048


def crash_everywhere(
    over: Recording | str | Path | Session,
    *,
    task: Any = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Report:
    """Simulate a crash after each step of a recording, and inside each commit; the verdict of each.

    ``over``: a recording, its path, or a session, for its history. ``task``: the code to run, as for
    ``open``. ``progress(done, total)`` is called now and then, with steps. A KeyboardInterrupt ends it
    with the verdicts so far. Raises StreambenchError."""
    if isinstance(over, Session):
        return over.crash_everywhere(progress)
    with replaying(over, task, history=_HISTORY_MB) as session:
        return session.crash_everywhere(progress)
