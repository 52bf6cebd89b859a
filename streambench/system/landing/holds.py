"""Who receives which streams: one receiver at a time for each, by locks beside the log that go with the process that has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from streambench.errors import StreamSystemError
from streambench.held import Held
from streambench.system.log.handles import locked


class Holds:
    """The wish to receive some streams of one system. ``held``: those that are granted, until ``release`` or the end of the process."""

    def __init__(self, directory: Path, system: str, streams: Iterable[str], who: str) -> None:
        """``directory``: of the log; ``who``: what to tell others that wait for the same streams."""
        self._directory = directory / ".landing"
        self._system = system
        self._wanted = sorted(streams)
        self._who = who
        self._handles: dict[str, Held] = {}

    @property
    def held(self) -> frozenset[str]:
        return frozenset(self._handles)

    @property
    def is_complete(self) -> bool:
        """Whether all of them are held."""
        return len(self._handles) == len(self._wanted)

    def take(self) -> bool:
        """Take what nobody has; whether that was anything. All in one go: of two that want the same streams, one gets all of them, so that
        never two of them listen in one place."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with locked(self._directory / f"{self._system}.lock"):
                return any([self._taken(stream) for stream in self._wanted if stream not in self._handles])
        except OSError as error:
            raise StreamSystemError(f"{self._directory}: nobody can tell who receives '{self._system}': {error.strerror}") from error

    def holder(self, stream: str) -> str:
        """Who says to receive a stream at present; empty where nobody has ever done so."""
        with contextlib.suppress(OSError):
            return self._path(stream).read_text(errors="replace").strip()
        return ""

    def release(self) -> None:
        """Leave them to others."""
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.release()

    def _taken(self, stream: str) -> bool:
        try:
            handle = Held.locked(self._path(stream))
        except BlockingIOError:
            return False
        handle.write(self._who.encode())
        self._handles[stream] = handle
        return True

    def _path(self, stream: str) -> Path:
        return self._directory / f"{self._system}.{stream}.lock"
