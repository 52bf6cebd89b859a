"""Temporary directories that outlive no process for long.

A process that is killed leaves its own behind. Each directory is locked while it is in use. The next one of
its kind removes those beside it that are not locked any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from streambench.locks import Held


class TemporaryDirectory:
    """A directory of this process alone, until ``remove``, or the end of a ``with``."""

    def __init__(self, prefix: str, base: str | Path | None = None) -> None:
        """``prefix``: the kind of the directory, with which its name begins. ``base``: the directory that it
        lies in; None: that of the system."""
        place = Path(base or tempfile.gettempdir())
        _sweep(place, prefix)
        self._held: Held | None = None
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            try:
                self._held = _locked(self.path)
            except (BlockingIOError, FileNotFoundError):
                continue  # swept between the two calls
            except OSError:
                break  # a file system without locks: of those none is swept
            if self.path.exists():
                break
            self._held.release()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the directory with all that is in it; may be called more than once."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._held is not None:
            self._held.release()
            self._held = None


def _sweep(place: Path, prefix: str) -> None:
    """Remove the directories of this kind whose processes are gone."""
    for path in place.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.getuid():
                held = _locked(path)
                shutil.rmtree(path, ignore_errors=True)
                held.release()


def _locked(path: Path) -> Held:
    """The lock of a directory. Raises BlockingIOError where another process has it, and other OSErrors."""
    return Held.locked(path, create=False, flags=os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
