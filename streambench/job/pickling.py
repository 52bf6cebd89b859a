"""Transfer of tasks, choosers and the like that are defined in this process (in a notebook, for example)
to another one."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from streambench import imports as load
from streambench.config import Config
from streambench.container.tasks.functions import unsendable
from streambench.errors import ConfigError


def shipped_names(config: Config) -> dict[str, bytes]:
    """Objects that the configuration names in this process's ``__main__`` (a chooser of the notebook, say),
    as bytes for ``bring_names``."""
    return {name: shipped(what, key) for name, (key, what) in load.own_names(config).items()}


def bring_names(names: Mapping[str, bytes]) -> None:
    """Define the names in this process as they were defined where they come from."""
    load.install_main_names({name: pickle.loads(data) for name, data in names.items()})


def shipped(task: Any, key: str = "task.class") -> bytes:
    """A task, or what else ``key`` names, as bytes for ``pickle.loads`` in another process of this machine.
    Raises ConfigError where that cannot be done."""
    name = getattr(task, "__qualname__", type(task).__name__)
    pickler = _cloudpickle()
    if pickler is None:
        if getattr(task, "__module__", "__main__") == "__main__" or "<" in name:
            raise ConfigError(
                f"{name} was defined here, not in a module, and several containers are processes of their "
                "own: to hand it to them takes the package cloudpickle (pip install cloudpickle). Or put the "
                f"class in a file and set {key}=file.py:Class; or set job.container.count=1",
                key=key,
            )
        pickler = pickle
    try:
        return bytes(pickler.dumps(task))
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be handed to another process ({type(error).__name__}: {error}): it refers to "
            f"something that exists only in this one; {unsendable(task)}; or set job.container.count=1",
            key=key,
        ) from error


def _cloudpickle() -> Any:
    for name in ("cloudpickle", "pyspark.cloudpickle"):
        try:
            module: ModuleType = importlib.import_module(name)
        except ImportError:
            continue
        return module
    return None
