"""Lifecycle listeners: from the configuration to one object per name."""

from __future__ import annotations

from typing import Any

from streambench import imports as load
from streambench.config import Config
from streambench.task import TaskLifecycleListener

_HOOKS = [name for name in vars(TaskLifecycleListener) if name.startswith(("before_", "after_"))]


def lifecycle_listeners(config: Config) -> list[TaskLifecycleListener]:
    """The listeners of ``task.lifecycle.listeners``, in the listed order.

    ``task.lifecycle.listener.<name>.class`` names a listener class, a factory or a function. A factory is a
    class with ``get_lifecycle_listener(name, config)`` as in Samza. A function takes name and config, and
    returns a listener. Raises ConfigError.
    """
    return [_made(config, name) for name in config.names("task.lifecycle.listeners")]


def _made(config: Config, name: str) -> Any:
    key = f"task.lifecycle.listener.{name}.class"
    made = load.resolve(config, key, group="streambench.listeners")
    if isinstance(made, type):
        made = load.instantiate(config, key, made)
        if hasattr(made, "get_lifecycle_listener"):
            made = load.instantiate(config, key, made.get_lifecycle_listener, name, config, least=0)
    else:
        made = load.instantiate(config, key, made, name, config, least=0)
    missing = [hook for hook in _HOOKS if not callable(getattr(made, hook, None))]
    if missing:
        raise config.error(
            key, f"{type(made).__name__} is not a TaskLifecycleListener: it has no {', '.join(missing)}"
        )
    return made
