"""A task that is busy with one message: which one, since when, and where in the code."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from streambench.debug.names import end_cut
from streambench.errors import escaped, represented
from streambench.model import SystemStreamPartition
from streambench.redaction import redacted
from streambench.user_code import is_users

if TYPE_CHECKING:
    from streambench.container.container import Container

_CODE = 60


class Busy(Struct, frozen=True):
    """The message, and the line of the user's code that runs now.

    ``ssp``, ``offset`` and ``key`` are None where it is no message, but a window or a commit. ``file`` is
    empty where no callback of a task runs."""

    seconds: float
    ssp: SystemStreamPartition | None = None
    offset: str | None = None
    key: Any = None
    file: str = ""
    line: int = 0
    code: str = ""

    def described(self, named: Callable[[str], str] = lambda file: Path(file).name) -> str:
        """In a line: "14 s at inp.0@8 key k2, tasks.py line 6: time.sleep(60)". ``named``: the name to show
        for a file."""
        return f"{self.seconds:,.0f} s{self.place(named)}"

    def place(self, named: Callable[[str], str] = lambda file: Path(file).name) -> str:
        """Message and line as they follow a word: " at inp.0@8 key k2, tasks.py line 6: time.sleep(60)"."""
        at = "" if self.ssp is None else f" at {self.ssp}@{self.offset}"
        key = "" if self.key is None else f" key {end_cut(escaped(_key(self.key)), _CODE)}"
        where = f", {named(self.file)} line {self.line}" if self.file else ""
        code = f": {end_cut(escaped(redacted(self.code)), _CODE)}" if self.code else ""
        return f"{at}{key}{where}{code}"

    def __str__(self) -> str:
        return f"busy {self.described()}"


def busy_with(container: Container, driver: int | None) -> Busy | None:
    """The message that a container is busy with; None where nothing moves. ``driver``: the identity of the
    thread that drives it. May be called on any thread: what it says may be over by then."""
    seconds = container.busy_s
    if driver is None or seconds <= 0:
        return None
    envelope = container.current_input
    file, line, code = _place(driver, container.callbacks)
    if envelope is None:
        return Busy(seconds, file=file, line=line, code=code)
    return Busy(seconds, envelope.ssp, envelope.offset, envelope.key, file, line, code)


def _place(ident: int, callbacks: Collection[CodeType]) -> tuple[str, int, str]:
    """The innermost line of the user's code that a thread is at, inside a callback."""
    frame = sys._current_frames().get(ident)
    found: tuple[str, int, str] = ("", 0, "")
    while frame is not None:
        file = frame.f_code.co_filename
        if not found[0] and (frame.f_code in callbacks or is_users(file)):
            line = frame.f_lineno or frame.f_code.co_firstlineno
            found = (file, line, linecache.getline(file, line).strip())
        if frame.f_code in callbacks:
            return found
        frame = frame.f_back
    return "", 0, ""


def _key(key: Any) -> str:
    return redacted(key if isinstance(key, str) else represented(key))
