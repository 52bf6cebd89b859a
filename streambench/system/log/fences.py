"""Fences: which producers of a partition are out of date.

A producer that writes under a name (a task, to its changelog) carries the generation and the epoch it was started in. Whoever takes
over first raises the fence; what an older one appends after that is refused.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from streambench.errors import CorruptDataError, FencedError
from streambench.system.log.handles import write_durably


class Fences:
    """The fences of one partition, in ``fence.json`` of its directory. Used with the partition's lock held."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / "fence.json"
        self._name = name
        self._stamp: tuple[int, int, int] | None = None
        self._values: dict[str, tuple[int, int]] = {}

    def check(self, producer: str, generation: int, epoch: int) -> None:
        """Raises FencedError where a newer (generation, epoch) of this producer has taken over."""
        least = self._read().get(producer)
        if least is not None and (generation, epoch) < least:
            raise FencedError(
                f"{self._name}: {producer} (generation {generation}, epoch {epoch}) may no longer write here: generation {least[0]}, "
                f"epoch {least[1]} has taken over; nothing was written, and this one must stop"
            )

    def set(self, producer: str, generation: int, epoch: int) -> None:
        """From now on refuse what is older. Raises FencedError where the caller itself is."""
        self.check(producer, generation, epoch)
        values = self._read()
        if values.get(producer) != (generation, epoch):
            write_durably(self._path, msgspec.json.encode({**values, producer: (generation, epoch)}))

    def _read(self) -> dict[str, tuple[int, int]]:
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return {}
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if stamp != self._stamp:
            try:
                self._values = msgspec.json.decode(self._path.read_bytes(), type=dict[str, tuple[int, int]])
            except msgspec.DecodeError as error:
                raise CorruptDataError(f"{self._path}: the fences of {self._name} cannot be read ({error})") from None
            self._stamp = stamp
        return self._values
