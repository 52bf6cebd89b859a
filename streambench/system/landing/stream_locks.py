"""One receiver at a time for each stream, by locks beside the log.

They end with the process that has them, and are taken over from one that is frozen. A thread of each receiver
shows signs of life.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from streambench.errors import StreamSystemError
from streambench.locks import LeasedLock, beating


class StreamLocks:
    """The wish to receive some streams of one system. ``held``: those that are granted, until ``release`` or
    the end of the process."""

    def __init__(
        self, directory: Path, system: str, streams: Iterable[str], who: str, *, lease_s: float = 30.0
    ) -> None:
        """``directory``: of the log. ``who``: what is shown to others that wait for the same streams.
        ``lease_s``: a receiver that shows no sign of life for so long is replaced."""
        self._directory = directory / ".landing"
        self._system = system
        self._wanted = sorted(streams)
        # Which of two gets what is decided in an instant; no receiver stays in it.
        self._gate = LeasedLock(self._directory / f"{system}.lock", f"landing {system}", lease_s)
        self._locks = {
            stream: LeasedLock(
                self._directory / f"{system}.{stream}.lock", f"landing {system}.{stream}", lease_s, note=who
            )
            for stream in self._wanted
        }
        self._lease_s = lease_s
        self._beating: ExitStack | None = None
        self.taken_over = False
        """A stream that is held was taken from a frozen receiver."""

    @property
    def held(self) -> frozenset[str]:
        return frozenset(stream for stream, lock in self._locks.items() if lock.is_held)

    @property
    def is_complete(self) -> bool:
        """True if all of them are held."""
        return len(self.held) == len(self._wanted)

    def take(self) -> bool:
        """Take what is free; whether that was anything. All at once: of two that want the same streams, one
        gets all of them. So two of them never listen at one address."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with self._gate:
                taken = [lock for lock in self._locks.values() if not lock.is_held and lock.try_acquire()]
        except OSError as error:
            raise StreamSystemError(
                f"{self._directory}: it is not known who receives '{self._system}': {error.strerror}"
            ) from error
        if taken and self._beating is None:
            self._beating = ExitStack()
            self._beating.enter_context(beating(self._beat, self._lease_s))
        self.taken_over = self.taken_over or any(lock.taken_over for lock in taken)
        return bool(taken)

    def check(self) -> None:
        """Raise LockLostError where another receiver has taken over one of the streams."""
        for lock in self._locks.values():
            if lock.is_held:
                lock.check()

    def holder(self, stream: str) -> str:
        """The receiver of a stream at present; empty where there has never been one."""
        return self._locks[stream].note()

    def release(self) -> None:
        """Release the streams to others."""
        shown, self._beating = self._beating, None
        if shown is not None:
            shown.close()
        for lock in self._locks.values():
            lock.release()
        self.taken_over = False

    def _beat(self) -> None:
        for lock in self._locks.values():
            lock.beat()
