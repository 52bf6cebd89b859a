"""Errors that the magics raise, and how it looks in a notebook.

Never IPython's UsageError: tools that run notebooks as tests take that for a success.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from traceback import format_exception
from types import TracebackType

from IPython.core.interactiveshell import InteractiveShell

import streambench
from streambench.debug.view.step_lines import value_line
from streambench.errors import StreambenchError, TaskError, in_own_lines, text_of
from streambench.model import IncomingMessageEnvelope
from streambench.redaction import redacted
from streambench.user_code import frames_left, is_users, linked

_NOT_THE_USERS = (str(Path(streambench.__file__).parent), str(Path(__file__).parent))

_STUCK = (
    ". The interrupt has not ended its task, which may still change its state: so the job goes back to its "
    "checkpoint"
)

_LONGEST_CHAIN = 100
"""The exceptions that are shown of one that others led to."""

_IMPORTS = {"sb": "import streambench as sb", "streambench": "import streambench"}


class MagicError(StreambenchError):
    """A magic was used wrongly. The text says what is right."""


class TaskCellError(StreambenchError):
    """The cell of a ``%%streamtask`` cannot be run; ``__cause__`` is what it raised. Shown as IPython shows
    an error of a plain cell."""

    def __init__(self, message: str, shown: list[str]) -> None:
        super().__init__(message)
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


class TaskFailed(TaskError):
    """A TaskError that shows where in the user's own code it came from."""

    # With a group of exceptions in the context, IPython shows every frame instead of what is rendered here.
    __context__ = None

    def __init__(self, error: TaskError, shown: list[str]) -> None:
        super().__init__(str(error), task=error.task, ssp=error.ssp, offset=error.offset, key=error.key)
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


class Interrupted(KeyboardInterrupt):
    """A KeyboardInterrupt that says what it means for a job, and shows where the task was, instead of where
    the magics were."""

    def __init__(self, shown: list[str]) -> None:
        super().__init__(shown[-1])
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


def cell_error(shell: InteractiveShell, error: Exception) -> TaskCellError:
    """The error to raise, from ``error``, where a cell cannot be compiled or run."""
    text = f"{type(error).__name__}: {text_of(error)}"
    if isinstance(error, SyntaxError):
        return TaskCellError(text, shell.SyntaxTB.structured_traceback(type(error), error, None))
    lines = shown(shell, error)
    if isinstance(error, NameError) and error.name in _IMPORTS:
        lines = [
            *lines,
            f"write '{_IMPORTS[error.name]}' at the top of this cell, or run it in a cell before",
        ]
    return TaskCellError(text, lines)


def task_failed(
    shell: InteractiveShell, error: TaskError, job: str, *, state: str = "failed", goes_on: bool = False,
    file: Path | None = None, message: IncomingMessageEnvelope | None = None,
    more: Sequence[str] = (),
) -> TaskFailed:  # fmt: skip
    """The error to raise, from the cause of ``error``, where a task failed. ``state``: that of the job, or
    "in a branch"; it is alive where a copy of it failed, or code that it has not taken. ``goes_on``: the job
    can go on at the message. ``file``: where the task is; None for a cell. ``message``: the one at which it
    failed, where that is known. ``more``: further lines."""
    mend = "Mend the task and run its cell" if file is None else f"Mend {file.name}"
    lines = shown(shell, error.__cause__) if error.__cause__ is not None else []
    back = "; %stream swap --undo and %stream live go back to what was before"
    in_branch = back if state == "in a branch" else ""
    remedy = (
        f"{job} itself is as it was. {mend}{in_branch}."
        if state not in ("new", "failed", "stopped")
        else f"{job} has {'not started' if state == 'new' else 'failed'}; nothing since its last checkpoint "
        f"is committed. {mend}, and %stream step {job}"
        + (": it goes on at this message, with the state before it." if goes_on else ".")
    )
    skip = (
        f"To skip such messages instead: task.ignored.exceptions={type(error.__cause__).__name__} in its "
        "configuration, and %stream create again."
    )
    remedies = [remedy, *([skip] if goes_on and message is not None else []), *filter(None, more)]
    failed = TaskFailed(error, [*lines, f"TaskError: {error}", *value_line(message), *remedies])
    # A debugger opens at the innermost frame: that of the user's code, with its envelope.
    cause = error.__cause__
    return failed if cause is None else failed.with_traceback(innermost_users_frame(cause.__traceback__))


def interrupted(
    shell: InteractiveShell, error: KeyboardInterrupt, job: str, state: str,
    message: IncomingMessageEnvelope | None = None, *, is_stuck: bool = False,
) -> Interrupted:  # fmt: skip
    """The error to raise where the user interrupted. ``state``: that of the job, afterwards. ``message``: the
    one at which it can go on. ``is_stuck``: the interrupt has not ended its task."""
    if state == "failed":
        lines = shown(shell, error) if users_frames(error.__traceback__) is not None else []
        said = (
            f"interrupted: {job} stands before {message.ssp}@{message.offset} again, with the state before "
            f"it. {job} has failed, and %stream step {job} runs this message again."
            if message is not None
            else f"interrupted: {job} has failed{_STUCK * is_stuck}; nothing since its last checkpoint is "
            f"committed, and %stream step {job} goes on from there."
        )
        return Interrupted([*lines, said])
    busy = (
        f" Its task may still be busy with one message, which %stream stop --now {job} gives up."
        if state == "running"
        else ""
    )
    return Interrupted([f"interrupted: {job} is {state}.{busy}"])


def shown(shell: InteractiveShell, error: BaseException) -> list[str]:
    """The traceback of an error as IPython shows it, with the user's frames alone."""
    stand_in = _shown_as(error, {})
    trace = stand_in.__traceback__
    if any(isinstance(each, BaseExceptionGroup) for each in _chain(stand_in)):
        # IPython shows no part of a group.
        return "".join(format_exception(stand_in)).rstrip().split("\n")
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(stand_in), stand_in, trace, tb_offset=0)
    return lines


def _shown_as(error: BaseException, known: dict[int, BaseException | None]) -> BaseException:
    """An exception to be shown instead of another one. It has a class of the same name, the user's frames,
    and a text that moves no cursor and forges no line. ``known``: those that are made, by the identity of
    what they stand for; None for a group whose parts are being made."""
    text = in_own_lines(redacted(text_of(error)))
    parts = []
    if isinstance(error, BaseExceptionGroup):
        # A part may have its group as its context: a task that unwraps a group raises such a part.
        known[id(error)] = None
        for each in error.exceptions:
            part = known[id(each)] if id(each) in known else _shown_as(each, known)
            if part is not None:
                parts.append(part)
    base: type = ExceptionGroup if parts else Exception
    kind = type(
        type(error).__name__, (base,), {"__str__": lambda _: text, "__module__": type(error).__module__}
    )
    found: BaseException = kind(*([text, parts] if parts else []))
    known[id(error)] = found
    found.__traceback__ = users_frames(error.__traceback__)
    for name in ("__cause__", "__context__"):
        chained = getattr(error, name)
        if id(chained) in known:
            setattr(found, name, known[id(chained)])
        elif chained is not None and len(known) < _LONGEST_CHAIN:
            setattr(found, name, _shown_as(chained, known))
    found.__suppress_context__ = error.__suppress_context__
    for note in getattr(error, "__notes__", []):
        found.add_note(in_own_lines(redacted(str(note))))
    return found


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that led to it, each once; one that was suppressed ends the chain."""
    seen = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def innermost_users_frame(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback that ends in the user's own code, without streambench and what the user's code calls; all
    of it where there is none."""
    frames = []
    each = users_frames(traceback)
    while each is not None:
        frames.append(each)
        each = each.tb_next
    last = max((at for at, tb in enumerate(frames) if is_users(tb.tb_frame.f_code.co_filename)), default=-1)
    return linked(frames[: last + 1]) or traceback


def not_the_users(file: str) -> bool:
    """True for a file of streambench or its magics."""
    return file.startswith(_NOT_THE_USERS)


def users_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of streambench; None where nothing is left."""
    return frames_left(traceback, not_the_users)
