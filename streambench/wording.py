"""Remedies in errors, in the words of the caller: calls of a session, magics, commands, or keys of the
terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

Speaker = Literal["python", "magics", "terminal"]
"""``terminal``: the command line, and the keys of its full-screen view."""

_speaker: ContextVar[Speaker] = ContextVar("speaker", default="python")

_WORDS = {
    "start": ("session.start()", "%stream step", "the key s"),
    "step": ("session.step()", "%stream step", "the key s"),
    "run": ("session.run()", "%stream run", "the space key"),
    "go on": ("session.step() or session.run()", "%stream step or %stream run", "the key s"),
    "go back": ("session.back() or session.goto()", "%stream back or %stream goto", "the key b"),
    "goto": ("session.goto()", "%stream goto", "the key b"),
    "commit": ("session.commit()", "%stream commit", "the key c"),
    "record": ("session.record()", "%stream record", "a recording"),
    "stop recording": ("session.stop_recording()", "%stream record --stop", "stop the job"),
    "live": ("session.go_live()", "%stream live", "the key l"),
    "undo": ("session.undo()", "%stream swap --undo", "an undo"),
    "swap": ("session.swap()", "%stream swap", "other code"),
    "break on": ("on='{}'", "--on {}", "on='{}'"),
    "begin again": ("a new container goes on", "%stream step goes on", "the next start goes on"),
    "remove breakpoint": ("session.remove({})", "%stream break --remove {}", "breakpoint {}"),
    "keep more": ("Session(container, history=MB)", "%stream create NAME --history MB", "history=MB"),
    "task": ("task", "--task", "--task"),
    "recorded source": ("recorded_source=True", "--recorded-source", "--recorded-source"),
}
"""Per remedy, how each of the three writes it."""


def words(remedy: str, *values: object) -> str:
    """A remedy as the caller writes it: ``session.go_live()``, in a notebook ``%stream live``."""
    number = get_args(Speaker).index(_speaker.get())
    return _WORDS[remedy][number].format(*values)


def command(line: str, config: str | None = None) -> str:
    """A command as the caller writes it: ``streambench replay FILE``, in a notebook ``%stream replay FILE``.

    ``config``: the file of the job's configuration, where the command needs one; a magic knows its job."""
    if _speaker.get() == "magics":
        return f"%stream {line.replace('checkpoints --rewind', 'rewind')}"
    return f"streambench {line}" if config is None else f"streambench {line} -c {shlex.quote(config)}"


@contextmanager
def speaking(speaker: Speaker) -> Iterator[None]:
    """Word remedies for this speaker, on this thread and those that it starts with its context."""
    before = _speaker.set(speaker)
    try:
        yield
    finally:
        _speaker.reset(before)
