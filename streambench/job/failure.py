"""A failure as it travels from one process to another, and as it is shown to a user.

It has the message, and the line of their code where it happened."""

from __future__ import annotations

import os
import traceback
from types import TracebackType

from msgspec import Struct

from streambench import errors
from streambench.errors import ConfigError, StreambenchError, TaskError, described, escaped, represented
from streambench.model import SystemStreamPartition
from streambench.redaction import redacted
from streambench.user_code import INSTALLED, is_ours, is_users


class Failure(Struct, frozen=True):
    """The error that a container failed with. ``frames``: the lines of the user's own code that led there, as
    text; empty where none did."""

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
        text = redacted(described(error))
        if not isinstance(error, TaskError):
            return cls(container, kind, text, user_frames(error))
        key = error.key
        if isinstance(key, str):
            key = str.__str__(key)  # a class of its own, such as NumPy's, is not known everywhere
        elif key is not None:
            key = represented(key)
        frames = user_frames(error)
        return cls(container, kind, text, frames, error.task, error.ssp, error.offset, key, error.last_offset)

    def error(self) -> StreambenchError:
        """An exception of the same kind that names the container, with the frames as its note."""
        text = f"container {self.container}: {self.text}"
        raised: StreambenchError
        if self.task is not None:
            raised = TaskError(
                text,
                task=self.task,
                ssp=self.ssp,
                offset=self.offset,
                key=self.key,
                last_offset=self.last_offset,
            )
        else:
            kind = getattr(errors, self.kind, None)
            if not (isinstance(kind, type) and issubclass(kind, StreambenchError)):
                kind = StreambenchError
            # The others need more than a text.
            is_plain = kind in (StreambenchError, ConfigError) or "__init__" not in vars(kind)
            raised = kind(text) if is_plain else StreambenchError(text)
        if self.frames:
            raised.add_note(self.frames)
        return raised


def user_frames(error: BaseException) -> str:
    """Frames of the user's own code in which an exception arose: file, line, code, none of ours. Empty
    where it arose elsewhere. An exception with notes shows these. They hold no secret, and can be encoded."""
    notes = getattr(error, "__notes__", None)
    frames = "\n".join(map(str, notes)) if notes else _frames(error)
    return escaped(redacted(frames), keep="\n\t")


def _frames(error: BaseException) -> str:
    if isinstance(error, TaskError) and error.__cause__ is not None:
        return _formatted(error.__cause__.__traceback__)
    culprit: BaseException | None = error
    while isinstance(culprit, StreambenchError):
        culprit = culprit.__cause__
    return "" if culprit is None else _formatted(culprit.__traceback__, after_ours=True)


def interrupted_at(interrupt: KeyboardInterrupt) -> str:
    """Frames of the user's own code in which an interrupt came, as ``user_frames`` shows it; empty where it
    came elsewhere."""
    frames = [frame.filename for frame in traceback.extract_tb(interrupt.__traceback__)]
    last = max((at for at, file in enumerate(frames) if is_users(file)), default=-1)
    if not any(is_ours(file) for file in frames[: last + 1]):
        return ""
    return _formatted(interrupt.__traceback__, after_ours=True, frames=last + 1)


def _formatted(trace: TracebackType | None, *, after_ours: bool = False, frames: int | None = None) -> str:
    """``after_ours``: only what was called by streambench last, and only where that is neither Python's nor a
    package's. ``frames``: only of so many, from the outermost on."""
    shown = [
        frame for frame in traceback.extract_tb(trace)[:frames] if not frame.filename.startswith("<frozen")
    ]
    if after_ours:
        last = max((at for at, frame in enumerate(shown) if is_ours(frame.filename)), default=-1)
        shown = shown[last + 1 :]
        first = shown[0].filename if shown else ""
        # What was compiled (Cython) gives names of files that stand nowhere.
        if first.startswith(INSTALLED) or not first.startswith(("<", os.sep)):
            return ""
    return "".join(traceback.format_list([frame for frame in shown if not is_ours(frame.filename)])).rstrip()
