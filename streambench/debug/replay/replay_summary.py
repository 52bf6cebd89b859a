"""A recording in a few lines: what it holds, how it ended, and what it lacks."""

from __future__ import annotations

from typing import Any

from streambench.counts import counted
from streambench.debug.replay.replay import code_note
from streambench.errors import ConfigError
from streambench.recording.recording import Recording


def summary_lines(
    recording: Recording, task: Any = None, *, recorded_source: bool = False
) -> list[str]:
    """The job and the number of messages, the failure, and the notes.

    Where the code was swapped, the lines also have the code that they run with, as for ``open``."""
    failure = recording.failure
    begin = f"{counted(len(recording), 'message')} of {recording.job}"
    if failure is None:
        lines = [f"{begin}, recorded without a failure"]
    elif failure.ssp is None:
        lines = [f"{begin}; behind the last one it failed", f"  {_plain(failure.text)}"]
    else:
        lines = [
            f"{begin}; at the last one, {failure.ssp}@{failure.offset}, it failed",
            f"  {_plain(failure.text)}",
        ]
    try:
        code = code_note(recording, task, recorded_source=recorded_source)
    except ConfigError:
        code = ""  # to open it says what is wrong
    return [*lines, *(f"  note: {note}" for note in [*recording.notes, *([code] if code else [])])]


def _plain(text: str) -> str:
    """The text of a failure without the name of its capture."""
    return text.partition("; captured: ")[0]
