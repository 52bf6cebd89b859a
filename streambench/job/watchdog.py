"""A container that is to stop and does not finish a message: at which one it hangs, and where in
the user's code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

from streambench.batch import MessageBatch, place_of
from streambench.container.container import Container
from streambench.errors import StreambenchError, located, shortened
from streambench.model import IncomingMessageEnvelope
from streambench.user_code import is_users


def stuck_error(container: Container, thread: int) -> StreambenchError:
    """The report on a container that did not stop in time. ``thread``: the identity of the one that drives
    it."""
    timeout_ms = container.config.integer("task.shutdown.ms")
    if container.is_stopping:
        where = "its last commit waits for a system that does not answer"
    else:
        where = "it hangs" + stuck_at(sys._current_frames().get(thread))
    return StreambenchError(
        f"{container.name}: container {container.number} did not stop within {timeout_ms} ms "
        f"(task.shutdown.ms): {where}; nothing since the last checkpoint is committed"
    )


def stuck_at(innermost: FrameType | None) -> str:
    """The message that the user's code was given last on this stack, and the line it is at; empty where
    that is not known."""
    users = list(_users_frames(innermost))
    if not users:
        return ""
    code = users[0].f_code
    line = located(code.co_filename, users[0].f_lineno)
    given = next((said for frame in reversed(users) for said in _given(frame)), None)
    return f" at {given}, in {code.co_name} ({line})" if given else f" in {code.co_name} ({line})"


def _users_frames(innermost: FrameType | None) -> Iterator[FrameType]:
    """The frames of the user's code that the container called, the innermost first; not those that lead to
    the container."""
    frame = innermost
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("streambench.job."):
        if is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _given(frame: FrameType) -> Iterator[str]:
    """The messages among the arguments of a call."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]
    for name in names:
        value = frame.f_locals.get(name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, MessageBatch):
                yield place_of(each)
            elif isinstance(each, IncomingMessageEnvelope):
                key = "" if each.key is None else f", key {shortened(each.key)}"
                yield f"{each.ssp}@{each.offset}{key}"
