"""Getting a task that was written in this process (in a notebook, say) to another one."""

from __future__ import annotations

import importlib
import pickle
from types import ModuleType
from typing import Any

from streambench.errors import ConfigError


def shipped(task: Any) -> bytes:
    """The task as bytes for ``unshipped`` in another process of this machine. Raises ConfigError where that cannot be done."""
    name = getattr(task, "__qualname__", type(task).__name__)
    pickler = _cloudpickle()
    if pickler is None:
        if getattr(task, "__module__", "__main__") == "__main__" or "<" in name:
            raise ConfigError(
                f"{name} was defined here, not in a module, and several containers are processes of their own: to hand it to them takes "
                "the package cloudpickle (pip install cloudpickle). Or put the class in a file and set task.class=file.py:Class; or set "
                "job.container.count=1",
                key="task.class",
            )
        pickler = pickle
    try:
        return bytes(pickler.dumps(task))
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be handed to another process ({type(error).__name__}: {error}). Make what it refers to in init(), or set "
            "job.container.count=1",
            key="task.class",
        ) from error


def unshipped(data: bytes) -> Any:
    """The task that ``shipped`` packed."""
    return pickle.loads(data)


def _cloudpickle() -> Any:
    for name in ("cloudpickle", "pyspark.cloudpickle"):
        try:
            module: ModuleType = importlib.import_module(name)
        except ImportError:
            continue
        return module
    return None
