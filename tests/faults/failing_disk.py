"""A disk that fails: within a ``with`` block, one call that reaches the files below a directory raises an
error of the operating system."""

from __future__ import annotations

import builtins
import errno
import io
import os
from pathlib import Path
from types import TracebackType
from typing import Any

_BY_PATH = ("open", "stat", "listdir", "link", "rename", "replace", "unlink", "mkdir", "truncate")
_BY_DESCRIPTOR = ("pread", "pwrite", "read", "write", "fsync", "ftruncate", "fstat")


class FailingDisk:
    """``at``: the number of the call that fails, counted from 1; None: none does. ``calls``: the names of all
    calls so far."""

    def __init__(self, directory: Path, at: int | None = None, code: int = errno.EIO) -> None:
        self.calls: list[str] = []
        self._directory = str(directory)
        self._at = at
        self._code = code
        self._real: dict[tuple[Any, str], Any] = {}

    @property
    def has_failed(self) -> bool:
        return self._at is not None and len(self.calls) >= self._at

    def __enter__(self) -> FailingDisk:
        for name in (*_BY_PATH, *_BY_DESCRIPTOR):
            self._patch(os, name)
        self._patch(builtins, "open")
        self._patch(io, "open")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for (module, name), real in self._real.items():
            setattr(module, name, real)

    def _patch(self, module: Any, name: str) -> None:
        real = self._real[module, name] = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            path = self._path_of(arguments[0]) if arguments else None
            if path is not None:
                self.calls.append(f"{name} {Path(path).relative_to(self._directory)}")
                if len(self.calls) == self._at:
                    named = (path,) if name in _BY_PATH else ()
                    raise OSError(self._code, os.strerror(self._code), *named)
            return None if name == "fsync" else real(*arguments, **options)

        setattr(module, name, call)

    def _path_of(self, target: Any) -> str | None:
        """The file below the directory that a call is about."""
        try:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
        except (OSError, TypeError):
            return None
        return path if isinstance(path, str) and path.startswith(self._directory + "/") else None
