"""Input from pipes that a Ctrl-C always ends.

A signal may arrive just before a system call blocks, or be given to another thread. It does not interrupt the
call then: Python's handler runs only when the call returns. So nothing here blocks for longer than a moment.
"""

from __future__ import annotations

import io
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_LOOK_MS = 200
_CAN_POLL = hasattr(select, "poll")


@contextmanager
def opened_pipe(path: Path) -> Iterator[IO[bytes]]:
    """A named pipe, open for reading: reads wait for a writer, and for what it writes."""
    if not _CAN_POLL:
        with path.open("rb") as file:
            yield file
        return
    # Opening it without O_NONBLOCK would block until there is a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield io.BufferedReader(_Pipe(descriptor))
    finally:
        os.close(descriptor)


@contextmanager
def interruptible(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """The same input, where it is a pipe or a terminal, without reads that a signal does not interrupt."""
    try:
        is_file = file.seekable() or not _CAN_POLL
        descriptor = file.fileno()
    except (AttributeError, OSError, ValueError):  # no real file
        yield file
        return
    yield file if is_file else io.BufferedReader(_Pipe(descriptor))


class _Pipe(io.RawIOBase):
    """Reads a descriptor, and waits in short steps."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            # Between two looks, handlers of signals run.
            while not self._poll.poll(_LOOK_MS):
                pass
            try:
                data = os.read(self._descriptor, len(buffer))
            except BlockingIOError:  # another reader was faster
                continue
            buffer[: len(data)] = data
            return len(data)
