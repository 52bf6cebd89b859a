"""A failure as it travels from one process to another, and as it is told to a user: the message, and where in their code it happened."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from streambench import errors
from streambench.errors import ConfigError, StreambenchError, TaskError, described, represented
from streambench.model import SystemStreamPartition

_OURS = str(Path(errors.__file__).parent)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Failure(Struct, frozen=True):
    """What a container failed with. ``frames``: the lines of the user's own code that led there, as text; empty where none did."""

    container: int
    kind: str
    text: str
    frames: str
    task: str | None = None
    ssp: SystemStreamPartition | None = None
    offset: str | None = None
    key: str | None = None
    last_offset: str | None = None

    @classmethod
    def of(cls, error: BaseException, container: int) -> Failure:
        """The failure that an exception is."""
        kind = type(error).__name__
        text = described(error)
        if not isinstance(error, TaskError):
            return cls(container, kind, text, user_frames(error))
        key = error.key if error.key is None or isinstance(error.key, str) else represented(error.key)
        return cls(container, kind, text, user_frames(error), error.task, error.ssp, error.offset, key, error.last_offset)

    def error(self) -> StreambenchError:
        """An exception of the same kind that names the container, with the frames as its note."""
        text = f"container {self.container}: {self.text}"
        raised: StreambenchError
        if self.task is not None:
            raised = TaskError(text, task=self.task, ssp=self.ssp, offset=self.offset, key=self.key, last_offset=self.last_offset)
        else:
            kind = getattr(errors, self.kind, None)
            plain = isinstance(kind, type) and issubclass(kind, StreambenchError) and (kind is ConfigError or "__init__" not in vars(kind))
            raised = kind(text) if plain and kind is not None else StreambenchError(text)
        if self.frames:
            raised.add_note(self.frames)
        return raised


def user_frames(error: BaseException) -> str:
    """Where in the user's own code an exception arose: file, line and code, without our own frames. Empty where it arose elsewhere."""
    notes = getattr(error, "__notes__", None)
    if notes:
        return "\n".join(notes)
    if isinstance(error, TaskError) and error.__cause__ is not None:
        return _formatted(error.__cause__.__traceback__)
    culprit: BaseException | None = error
    while isinstance(culprit, StreambenchError):
        culprit = culprit.__cause__
    return "" if culprit is None else _formatted(culprit.__traceback__, after_ours=True)


def interrupted_at(interrupt: KeyboardInterrupt) -> str:
    """Where in the user's own code an interrupt came, as ``user_frames`` shows it; empty where it came elsewhere."""
    return _formatted(interrupt.__traceback__, after_ours=True, until_ours=True)


def is_users(file: str) -> bool:
    """Whether the code of this file is the user's own: neither ours nor Python's nor a package's."""
    return not file.startswith((_OURS, "<frozen", *_INSTALLED))


def _formatted(trace: TracebackType | None, *, after_ours: bool = False, until_ours: bool = False) -> str:
    """``after_ours``: only what was called by streambench last, and only where that is neither Python's nor a package's. ``until_ours``:
    without what streambench did in the end (its handler of signals, say)."""
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith("<frozen")]
    while until_ours and frames and frames[-1].filename.startswith(_OURS):
        frames.pop()
    if until_ours and not any(frame.filename.startswith(_OURS) for frame in frames):
        return ""
    if after_ours:
        last = max((at for at, frame in enumerate(frames) if frame.filename.startswith(_OURS)), default=-1)
        frames = frames[last + 1 :]
        # What was compiled (Cython) gives names of files that stand nowhere.
        if not frames or frames[0].filename.startswith(_INSTALLED) or not frames[0].filename.startswith(("<", os.sep)):
            return ""
    shown = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    return "".join(traceback.format_list(shown)).rstrip()
