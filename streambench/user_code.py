"""User code: the files of a traceback that are neither ours nor of an installed package."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from types import TracebackType

from streambench.errors import located

#: Compiled modules name their files from the checkout on.
_OURS = (str(Path(__file__).parent), "streambench/")
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_ours(file: str) -> bool:
    """True for a file of streambench itself, compiled or not."""
    return file.startswith(_OURS)


def is_users(file: str) -> bool:
    """True for a file of the user's own code: neither ours nor Python's nor a package's."""
    return not file.startswith((*_OURS, "<frozen", *INSTALLED))


def frames_left(
    traceback: TracebackType | None, is_hidden: Callable[[str], bool]
) -> TracebackType | None:
    """A traceback without the frames of files that are hidden; None where nothing is left."""
    frames = []
    while traceback is not None:
        if not is_hidden(traceback.tb_frame.f_code.co_filename):
            frames.append(traceback)
        traceback = traceback.tb_next
    return linked(frames)


def linked(frames: Sequence[TracebackType]) -> TracebackType | None:
    """A traceback of these frames, the outermost first; None where there are none."""
    kept: TracebackType | None = None
    for each in reversed(frames):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def user_line(error: BaseException) -> str:
    """The line of the user's own code at which an exception arose, as ``file.py:12``; empty where that is not
    known."""
    lines = [frame for frame in extract_tb(error.__traceback__) if is_users(frame.filename)]
    return located(lines[-1].filename, lines[-1].lineno or 0) if lines else ""
