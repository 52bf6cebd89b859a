"""The code of a job as it is now: of a cell, or of a file, which is read again when it has changed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from streambench import imports
from streambench.config import Config

Stamp = tuple[int, int]
"""The time of the last change of a file, in nanoseconds, and its size."""


def task_file_path(task: Any) -> Path | None:
    """The file that a task was loaded from; None for a task of a cell."""
    name = getattr(task, "__module__", None)
    file = None if name in (None, "__main__") else getattr(sys.modules.get(name), "__file__", None)
    return None if file is None else Path(file)


def name_of(task: Any) -> str | None:
    """The name of a task for ``task.class``, of a file or a module; None for a task of a cell. ``task``: it,
    or ``file.py:Class`` relative to the working directory."""
    if isinstance(task, str):
        file, _, name = task.rpartition(":")
        return f"{Path(file).absolute()}:{name}"
    path = task_file_path(task)
    name = getattr(task, "__qualname__", "<locals>")
    if path is None or "<locals>" in name:
        return None
    module = sys.modules[task.__module__]
    return f"{module.__name__}.{name}" if module.__spec__ else f"{path}:{name}"


def file_stamp(task: Any) -> Stamp | None:
    """The state of the file of a task; None for a task of a cell, and where the file cannot be read."""
    path = task_file_path(task)
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)


def code_now(config: Config, named: Any, running: Any) -> Any:
    """The code that a job takes next. ``named``: the task of a cell or variable, or ``file.py:Class``, or
    None for that of ``task.class``. ``running``: the current code. Code of a file is read again. Raises
    ConfigError."""
    if isinstance(named, str):
        return imports.by_path(config, "task.class", named)
    path = task_file_path(running)
    if path is None or (named is not None and _name(named) != _name(running)):
        return running if named is None else named
    module = sys.modules[running.__module__]
    if module.__spec__ is None:  # a file that the configuration names, and not an imported module
        return imports.by_path(config, "task.class", f"{path}:{running.__qualname__}")
    found: Any = importlib.reload(module)
    for part in running.__qualname__.split("."):
        found = getattr(found, part)
    return found


def _name(task: Any) -> tuple[Any, Any]:
    return getattr(task, "__module__", None), getattr(task, "__qualname__", None)
