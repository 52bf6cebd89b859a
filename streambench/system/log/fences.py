"""Fences: which producers of a partition are out of date.

A producer that writes under a name (a task, to its changelog) carries the generation and the epoch it was
started in. The process that takes over first raises the fence; what an older one appends after that is
refused."""

from __future__ import annotations

import os
from pathlib import Path

from streambench.errors import FencedError
from streambench.locks import LeasedLock
from streambench.system.log.notes import read_note, write_note

_REMEDY = "stop all jobs that write there, and delete it: they fence each other again when they start"


class Fences:
    """The fences of one partition, in ``fence.json`` of its directory. Used with the partition's lock
    held."""

    def __init__(self, directory: Path, name: str, lock: LeasedLock) -> None:
        self._path = directory / "fence.json"
        self._name = name
        self._lock = lock
        self._stamp: tuple[int, int, int] | None = None
        self._values: dict[str, tuple[int, int]] = {}

    def check(self, producer: str, generation: int, epoch: int) -> None:
        """Raises FencedError where a newer (generation, epoch) of this producer has taken over."""
        least = self._read().get(producer)
        if least is not None and (generation, epoch) < least:
            raise FencedError(
                f"{self._name}: {producer} (generation {generation}, epoch {epoch}) may no longer write "
                f"here: generation {least[0]}, "
                f"epoch {least[1]} has taken over; nothing was written, and this one must stop"
            )

    def set(self, producer: str, generation: int, epoch: int) -> None:
        """From now on refuse what is older. Raises FencedError where the caller itself is."""
        self.check(producer, generation, epoch)
        values = self._read()
        if values.get(producer) != (generation, epoch):
            write_note(self._path, {**values, producer: (generation, epoch)}, self._lock.check)

    def _read(self) -> dict[str, tuple[int, int]]:
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return {}
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if stamp != self._stamp:
            self._values = read_note(self._path, dict[str, tuple[int, int]], _REMEDY) or {}
            self._stamp = stamp
        return self._values
