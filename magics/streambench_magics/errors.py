"""What the magics raise, and how it looks in a notebook.

Never IPython's UsageError: tools that run notebooks as tests take that for a success.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from IPython.core.interactiveshell import InteractiveShell

import streambench
from streambench.errors import StreambenchError, TaskError

_NOT_THE_USERS = (str(Path(streambench.__file__).parent), str(Path(__file__).parent))

_IMPORTS = {"sb": "import streambench as sb", "streambench": "import streambench"}


class MagicError(StreambenchError):
    """A magic was used wrongly. The text says what is right."""


class TaskCellError(StreambenchError):
    """The cell of a ``%%streamtask`` cannot be run; ``__cause__`` is what it raised. Shown as IPython shows an error of a plain cell."""

    def __init__(self, message: str, shown: list[str]) -> None:
        super().__init__(message)
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


class TaskFailed(TaskError):
    """A TaskError that shows where in the user's own code it came from."""

    def __init__(self, error: TaskError, shown: list[str]) -> None:
        super().__init__(str(error), task=error.task, ssp=error.ssp, offset=error.offset, key=error.key)
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


class Interrupted(KeyboardInterrupt):
    """A KeyboardInterrupt that says what it means for a job, and shows where the task was, instead of where the magics were."""

    def __init__(self, shown: list[str]) -> None:
        super().__init__(shown[-1])
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


def cell_error(shell: InteractiveShell, error: Exception) -> TaskCellError:
    """The error to raise, from ``error``, where a cell cannot be compiled or run."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return TaskCellError(text, shell.SyntaxTB.structured_traceback(type(error), error, None))
    lines = shown(shell, error)
    if isinstance(error, NameError) and error.name in _IMPORTS:
        lines = [*lines, f"write '{_IMPORTS[error.name]}' at the top of this cell, or run it in a cell before"]
    return TaskCellError(text, lines)


def task_failed(shell: InteractiveShell, error: TaskError, job: str) -> TaskFailed:
    """The error to raise, from the cause of ``error``, where a task failed."""
    lines = shown(shell, error.__cause__) if error.__cause__ is not None else []
    remedy = f"{job} has failed; nothing since its last checkpoint is committed. Mend the task, run its cell, and %stream step {job}."
    return TaskFailed(error, [*lines, f"TaskError: {error}", remedy])


def interrupted(shell: InteractiveShell, error: KeyboardInterrupt, job: str, state: str) -> Interrupted:
    """The error to raise where somebody lost patience. ``state``: that of the job, afterwards."""
    if state == "failed":
        lines = shown(shell, error) if users_frames(error.__traceback__) is not None else []
        said = f"interrupted: {job} has failed; nothing since its last checkpoint is committed, and %stream step {job} goes on from there."
        return Interrupted([*lines, said])
    busy = f" Its task may still be busy with one message, which %stream stop --now {job} gives up." if state == "running" else ""
    return Interrupted([f"interrupted: {job} is {state}.{busy}"])


def shown(shell: InteractiveShell, error: BaseException) -> list[str]:
    """The traceback of an error as IPython shows it, with the user's frames alone."""
    frames = users_frames(error.__traceback__)
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, frames, tb_offset=0)
    return lines


def users_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of streambench; None where nothing is left."""
    frames = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for each in reversed(frames):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept
