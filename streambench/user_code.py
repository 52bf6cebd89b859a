"""User code: the files of a traceback that are neither ours nor of an installed package."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

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


def user_line(error: BaseException) -> str:
    """The line of the user's own code at which an exception arose, as ``file.py:12``; empty where that is not
    known."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    return located(lines[-1].filename, lines[-1].lineno or 0) if lines else ""
