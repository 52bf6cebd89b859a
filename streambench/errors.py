"""Every error that streambench raises on purpose.

Each class says when it is raised and carries the place (config key, SSP, offset) as attributes, so that
callers need not parse texts. The text itself is written for the person at the keyboard: what was wrong,
where, and what to do about it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from streambench.redaction import redacted

# What moves the cursor, begins another line, turns the direction of the text, takes no room, or is no
# character at all.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")


def escaped(text: str, *, keep: str = "") -> str:
    """A text as one line of visible characters: control characters, line ends and marks of direction are
    written as Python escapes them (``\\n``, ``\\x1b``, ``\\u202e``). ``keep``: characters that stay as they
    are."""
    return _UNSEEN.sub(
        lambda found: found[0] if found[0] in keep else found[0].encode("unicode_escape").decode(), text
    )


def isolated(text: str) -> str:
    """A text among others in a line: one that is read from right to left does not turn them around."""
    if any(unicodedata.bidirectional(each) in ("R", "AL") for each in text):
        return f"\u2068{text}\u2069"
    return text


def in_own_lines(text: str) -> str:
    """A text of visible characters that keeps its lines. Each but the first begins with a bar: none looks
    like a line of what is around it."""
    return escaped(text, keep="\n\t").replace("\n", "\n  | ")


class StreambenchError(Exception):
    """The base of all errors of streambench: catch this to catch them all.

    Its text is one line, whatever names and values are in it, and secrets of the configuration are masked."""

    has_lines: ClassVar[bool] = False
    """True of errors whose text is several lines on purpose."""

    def __init__(self, *arguments: object) -> None:
        keep = "\n" if self.has_lines else ""
        shown = (escaped(redacted(each), keep=keep) if type(each) is str else each for each in arguments)
        super().__init__(*shown)

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the message and its notes, without the frames of streambench, which say
        nothing to a user."""
        notes = [escaped(note, keep="\n\t") for note in getattr(self, "__notes__", [])]
        return [f"{type(self).__name__}: {self}", *notes]


class ConfigError(StreambenchError):
    """A configuration is wrong. The text names the key; ``key`` holds it (None where no single key is to
    blame)."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class MissingExtraError(StreambenchError):
    """An optional dependency is not installed. The text names the extra that brings it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'streambench[{extra}]'")
        self.extra = extra


class StreamSystemError(StreambenchError):
    """Base of what goes wrong between the runtime and a system of streams."""


class UnknownStreamError(StreamSystemError):
    """A stream (or a partition of it) was asked for that its system does not have."""


def no_partition(stream: object, partition: int, partitions: int) -> UnknownStreamError:
    """The error for a partition that a stream does not have."""
    return UnknownStreamError(f"{stream} has no partition {partition}; it has {partitions}, numbered from 0")


def no_tombstone(place: str, what: str) -> str:
    """The text of the error for a message of None where a system cannot hold one; ``what``: the thing that
    cannot."""
    null = f"{place}: this message is None (a tombstone)"
    return f"{null}, and {what} has no place for one: send bytes, or leave it out"


class StreamExistsError(StreamSystemError):
    """A stream was to be created that is there already, with another number of partitions."""


class OffsetError(StreamSystemError):
    """An offset is not one of its system (malformed), or lies outside what the partition holds."""


class CorruptDataError(StreamSystemError):
    """Stored data does not match its checksum or cannot be read. The text names the file and position."""


class MessageTooLargeError(StreamSystemError):
    """A message is larger than the limit of its system. Nothing of it was written."""


class LockLostError(StreamSystemError):
    """This process was frozen while it held a lock, and another one has taken the lock over; what it was just
    writing does not count.

    The text names the file of the lock and the process that has it now. Start again from the last commit.
    """


class FileLimitError(StreambenchError):
    """This process has as many files and sockets open as it may have. The text says the limit, and how to
    raise it."""


class FencedError(StreambenchError):
    """A newer start of the same job (or a newer holder of the same container) has taken over; this one must
    stop.

    Raised by commits and by changelog writes of the older one. Nothing that the failed call was to write has
    been written.
    """


class SupersededError(FencedError):
    """A newer start of the job has taken over, or is about to: nothing of this one goes on."""


class ReplacedError(FencedError):
    """The very same container was started again elsewhere, and goes on there."""


class CheckpointError(StreambenchError):
    """A checkpoint cannot be read or written. The text names the file or stream and what to do."""


class SerdeError(StreambenchError):
    """A message cannot become bytes, or bytes no message; ``__cause__`` is the error of the serde."""


class StoreError(StreambenchError):
    """A store was used wrongly (a None key, a closed store, an undefined name) or cannot be restored."""


class WrongThreadError(StreambenchError):
    """The collector, the coordinator or a store was used from a thread that is not the event loop's."""


class ContainerStateError(StreambenchError):
    """A container was asked for something its state does not allow: stepping a stopped one, starting it
    twice."""


class ChooserError(StreambenchError):
    """A message chooser raised, or returned what does not wait in it; the container has stopped without a
    commit. What it raised is ``__cause__``."""


class TaskError(StreambenchError):
    """A task (or one of its lifecycle listeners) raised; the container has stopped without a commit.

    ``task``: the task's name. ``ssp``, ``offset``, ``key``: the message it was given, None outside
    ``process``. ``last_offset``: the last one of a run that ``process_batch`` was given, nothing of which
    counts as processed. The original exception is ``__cause__`` and stands in the text.
    """

    def __init__(
        self,
        message: str,
        *,
        task: str,
        ssp: Any = None,
        offset: str | None = None,
        key: Any = None,
        last_offset: str | None = None,
    ) -> None:
        super().__init__(message)
        self.task = task
        self.ssp = ssp
        self.offset = offset
        self.key = key
        self.last_offset = last_offset


def described(error: BaseException) -> str:
    """An exception in a few words, which can always be encoded as UTF-8.

    It is its text if it is one of ours, else its class and text."""
    text = text_of(error)
    if not isinstance(error, StreambenchError):
        text = escaped(redacted(f"{type(error).__name__}: {text}" if text else type(error).__name__))
    return text


def text_of(error: BaseException) -> str:
    """The text of an exception as it is."""
    try:
        return str(error)
    except Exception as problem:  # an error about it must not fail by it
        return f"<its text raises {type(problem).__name__}>"


def class_name(kind: type) -> str:
    """A class as an error names it: with its module, without it where Python itself has it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def located(file: str, line: int) -> str:
    """A position in a user's code: a notebook's cell is in no file, and has a generated name."""
    path = Path(file)
    return f"{path.name}:{line}" if path.is_file() else f"line {line}"


def represented(value: object) -> str:
    """Return the repr of a value; where that raises, its type: an error about it must not fail by it."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__qualname__} whose repr raises {type(error).__name__}>"


def shortened(value: object) -> str:
    """The repr of a value without secrets, cut where it is too long for a message."""
    text = escaped(redacted(represented(value)))
    return text if len(text) <= 80 else text[:77] + "..."


def do_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step of letting go, even if one before it fails; the first failure is raised at the end."""
    failures = []
    for step in steps:
        try:
            step()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]
