"""Lines that sub-commands print about a job and its streams."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.counts import counted
from streambench.debug.control.session import Session
from streambench.debug.message_text import short_text
from streambench.debug.view.step_lines import stop_lines
from streambench.errors import StreambenchError
from streambench.planning.pending_commits import PendingOutputs
from streambench.recording.captures import shown_path
from streambench_magics.jobs.jobs import Job
from streambench_magics.panel.panel import show

_SILENT_S = 2.0
_EVERY_S = 0.25


@contextlib.contextmanager
def status_line(text: str) -> Iterator[Callable[[str], None]]:
    """A line of output, followed by the progress for as long as it lasts, some times a second; at the end
    the line stands alone."""
    handle = show({"text/plain": text}, display_id=True)
    shown, due = text, 0.0

    def update(news: str) -> None:
        nonlocal shown, due
        if f"{text}: {news}" != shown and time.monotonic() >= due:
            shown, due = f"{text}: {news}", time.monotonic() + _EVERY_S
            handle.update({"text/plain": shown}, raw=True)

    try:
        yield update
    finally:
        if shown != text:
            handle.update({"text/plain": text}, raw=True)


@contextlib.contextmanager
def looking(look: Callable[[], None], patience_s: float, every_s: float) -> Iterator[None]:
    """Meanwhile, call ``look`` on another thread, once so many seconds have passed, then again and again."""
    ended = threading.Event()

    def look_on() -> None:
        wait_s = patience_s
        while not ended.wait(wait_s):
            look()
            wait_s = every_s

    # In the context of the caller: what is shown belongs to the cell that is run.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(look_on,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def late_status_line(text: str, noun: str) -> Iterator[Callable[[int, int], None]]:
    """A status line of the progress, "n of m", for what takes longer than two seconds."""
    with late_status(text) as update:
        yield lambda done, total: update(f"{done:,} of {total:,} {noun}")


@contextlib.contextmanager
def late_status(text: str) -> Iterator[Callable[[str], None]]:
    """A status line of any text, for what takes longer than two seconds."""
    news = ""

    def note(text: str) -> None:
        nonlocal news
        news = text

    with contextlib.ExitStack() as shown:
        update: Callable[[str], None] | None = None

        def look() -> None:
            nonlocal update
            if update is None:
                update = shown.enter_context(status_line(text))
            elif news:
                update(news)

        with looking(look, _SILENT_S, _EVERY_S):
            yield note


def say(text: str) -> None:
    print(text, flush=True)


def warn_of_pending(found: Iterable[PendingOutputs]) -> None:
    """Warn of what is committed and may not be in its streams yet."""
    for each in found:
        print(f"warning: {each}")


def print_ignored(counts: ErrorCounts) -> None:
    """Print the failures that were ignored, by class, each with the place of its first."""
    for line in counts.details():
        print(f"  {line}")


def say_if_busy(job: Job) -> None:
    if job.busy_at:
        say(
            f"{job.name} has been busy with one message for {job.busy_at}: this is how it was before. "
            f"%stream stop --now {job.name} gives the message up"
        )


def cut_recording_text(job: Job) -> str:
    """The recording that a failure has ended, and the way to another one; empty for none."""
    cut = None if job.session is None else job.session.cut_recording
    if cut is None:
        return ""
    return (
        f"Its recording {shown_path(cut.path)} ended with the failure, with "
        f"{counted(cut.messages, 'message')}: %stream record {job.name} FILE records what follows."
    )


def print_stop(job: Job, session: Session, *, with_last: bool = True) -> None:
    """Print where and why it stopped, where that was at a breakpoint."""
    if text := stop_text(job, session, with_last=with_last):
        print(text)


def stop_text(job: Job, session: Session, *, with_last: bool = True) -> str:
    """A stop at a breakpoint, with its message; empty where it did not stop at one. ``with_last``: also where
    that is the last message processed."""
    stopped = session.stopped_at
    if stopped is None:
        return ""
    number = f" (breakpoint {stopped.breakpoint.id})" if stopped.breakpoint.id else ""
    state = "has failed" if job.state == "failed" else "is paused"
    lines = stop_lines(session, with_last=with_last)
    return "\n".join([f"{job.name} {state} at {session.position:,}: {stopped}{number}", *lines])


def print_watches(session: Session, *names: str) -> bool:
    """Print the values watched, or those of some names; True where there are some."""
    found = {name: value for name, value in session.watches().items() if not names or name in names}
    for name, value in found.items():
        print(f"        {name} = {watch_text(value)}")
    return bool(found)


def watch_text(value: object) -> str:
    """A value that is watched; the error where it cannot be evaluated."""
    return str(value) if isinstance(value, StreambenchError) else short_text(value)
