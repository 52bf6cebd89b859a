"""From the name of a serde in the configuration to the serde."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import Any

from streambench import load
from streambench.config import Config
from streambench.serde.api import Serde
from streambench.serde.builtin import BUILTIN

GROUP = "streambench.serdes"
"""The entry-point group by which a package adds a serde."""


def serde_named(config: Config, name: str, *, key: str) -> Serde:
    """The serde of that name: one of ``serializers.registry.<name>.class``, a builtin one, or one that a package brings.

    ``serializers.registry.<name>.class`` names a Serde class, or a factory class with ``get_serde(name, config)``. Raises ConfigError
    that names
    ``key``, where the name stands.
    """
    setting = f"serializers.registry.{name}.class"
    if config.text(setting) is not None:
        return _made(config, name, setting, load.named(config, setting, group=GROUP))
    if name in BUILTIN:
        return BUILTIN[name]
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name in points:
        return _made(config, name, key, points[name].load())
    known = sorted({*BUILTIN, *points, *config.names_below("serializers.registry.")})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise config.error(
        key, f"there is no serde '{name}'; {hint}There are {', '.join(known)}; define one with {setting}=package.module.Class"
    )


def _made(config: Config, name: str, key: str, named: Any) -> Serde:
    made = named() if isinstance(named, type) else named
    if hasattr(made, "get_serde"):
        made = made.get_serde(name, config)
    if not (callable(getattr(made, "to_bytes", None)) and callable(getattr(made, "from_bytes", None))):
        raise config.error(key, f"{type(made).__name__} is not a Serde: it has no to_bytes and from_bytes")
    serde: Serde = made
    return serde
