"""Completion in the lines of a ``%%streamconfig`` cell.

It completes keys, with the systems and stores that the cell names so far, and values of those keys that have
only a few."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streambench import config_keys
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import ConfigError
from streambench.serde.registry import BUILTIN as SERDES
from streambench.system.systems import BUILTIN, known_key, settings_of

_NAMES = {"<s>": r"^\s*systems\.([\w-]+)\.", "<n>": r"^\s*stores\.([\w-]+)\."}
"""Of placeholders of keys, the expression that finds in a cell what may stand in their place."""

_BOOLEANS = ("true", "false")


def config_completions(cell: str, line: str) -> tuple[str, list[str]]:
    """The completions of a line of a configuration up to the cursor: the text to complete, and the keys or
    values that it may become. ``cell``: all the lines."""
    key, equals, value = line.lstrip().partition("=")
    others = "\n".join(each for each in cell.splitlines() if each != line)
    if equals:
        return value, sorted({each for each in _values(others, key.strip()) if each.startswith(value)})
    found = {filled for known in _known(others) for filled in _filled(known.pattern, key, others)}
    given = {each.partition("=")[0].strip() for each in others.splitlines()}
    return key, sorted(each for each in found - {f"{name}=" for name in given} if each.startswith(key))


def _known(cell: str) -> list[Key]:
    """The keys of streambench, and of the systems that the cell defines."""
    try:
        config = Config.from_text(cell)
        of_systems = [key for each in config.names_below("systems.") for key in settings_of(config, each)]
    except ConfigError:
        of_systems = []
    return [*config_keys.KEYS, *of_systems]


def _filled(pattern: str, typed: str, cell: str) -> Iterable[str]:
    """The keys of a pattern to which the typed text may be completed.

    They have its own names where they are typed already, and those of the cell at the position that is typed
    now."""
    names, parts = typed.split("."), pattern.split(".")
    for at, part in enumerate(parts):
        if not part.startswith("<"):
            continue
        if at < len(names) - 1:
            parts[at] = names[at]
        else:
            known = re.findall(_NAMES.get(part, r"$^"), cell, re.MULTILINE)
            rest = ".".join(parts[at + 1 :])
            before = ".".join(parts[:at])
            if "<" in rest:
                return [f"{before}.{name}." for name in known] or [f"{before}."]
            return [f"{before}.{name}.{rest}=" for name in known] or [f"{before}."]
    return [f"{'.'.join(parts)}="]


def _values(cell: str, key: str) -> Iterable[str]:
    if key.endswith(".samza.factory"):
        return BUILTIN
    if key.endswith(".serde"):
        return SERDES
    try:
        known = known_key(Config.from_text(cell), key)
    except ConfigError:
        return ()
    if known is None:
        return ()
    return known.values or (_BOOLEANS if known.kind == "boolean" else ())
