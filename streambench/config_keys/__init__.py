"""Every configuration key that streambench itself knows: its type, its default and its meaning, once.

Config reads defaults from here, wrong keys are found by comparing with it, and the reference in the docs is
printed from it. ``<s>`` stands for a system, ``<t>`` for a stream (which may contain dots), ``<n>`` for a
name that the configuration chooses.
"""

from __future__ import annotations

import re
from functools import cache

from streambench.config_keys.table import KEYS, Key, Kind
from streambench.suggestions import closest

__all__ = [
    "KEYS",
    "Key",
    "Kind",
    "closest_key",
    "find",
    "input_named",
    "is_open",
    "is_without_meaning",
    "respelled_prefix",
]

# A plug-in's keys below systems.<s>., serializers.registry.<n>., stores.<n>.engine. and metrics.reporter.<n>.
# are its own; it checks them.
_OPEN = re.compile(
    r"(systems\.[^.]+\.(?!samza\.|streams\..+\.samza\.).+"
    r"|serializers\.registry\.[^.]+\.(?!class$).+"
    r"|stores\.[^.]+\.engine\..+"
    r"|spark\..+"
    r"|metrics\.reporter\.[^.]+\..+)"
)

_KNOWN_PREFIXES = ("job.", "task.", "systems.", "stores.", "serializers.", "metrics.", "cluster-manager.")

# Samza's keys that have no meaning in this runtime: a configuration that comes from Samza should not fail on
# them.
_WITHOUT_MEANING = re.compile(
    r"yarn\..*|cluster-manager\.(?!container\.retry\.).*|app\..*"
    r"|job\.(factory\.class|coordinator\..*|host-affinity\..*|jmx\..*|standbytasks\..*|elasticity\..*"
    r"|container\.thread\.pool\.size|checkpoint\.validation\.enabled|startpoint\.enabled|config\..*"
    r"|container\.(commit|restore)\..*|drain-monitor\..*|systemstreampartition\.(input|matcher)\..*)"
    r"|task\.(opts|execute|command\.class|max\.concurrency|async\.commit|callback\..*|transactional\..*"
    r"|checkpoint\.(factory|replication\.factor|segment\.bytes|write\.versions|read\.versions)|live\..*"
    r"|watermark\..*|name\.grouper\..*|commit\..*|drop\.producer\.errors)"
    r"|systems\.[^.]+\.samza\.fetch\.threshold\.bytes"
    r"|stores\.[^.]+\.(rocksdb|leveldb|accesslog|backup|restore|compaction|side)\..*"
    r"|stores\.[^.]+\.changelog\.replication\..*|metrics\.timer\.debug\.enabled"
)


# What is only read of inputs: of any other stream, these settings do nothing.
_OF_INPUT = re.compile(
    r"systems\.([^.]+)\.streams\.(.+)\.samza\.(offset\.default|reset\.offset|bounded|priority|bootstrap)"
)


@cache
def find(key: str) -> Key | None:
    """The table's entry for a key as it stands in a configuration, None where it has none."""
    return next((known for known in KEYS if _matcher(known.pattern).fullmatch(key)), None)


def is_open(key: str) -> bool:
    """Return True where the key belongs to a plug-in, or to the user: it begins unlike any key of
    streambench."""
    if key.startswith(_KNOWN_PREFIXES):
        return bool(_OPEN.fullmatch(key))
    heads = [prefix.rstrip(".") for prefix in _KNOWN_PREFIXES]
    is_mistyped = closest(key.split(".")[0], heads, cutoff=0.7) and closest_key(key)
    return not is_mistyped


def respelled_prefix(key: str) -> str | None:
    """Return the prefix that a key almost begins with, where its keys are a plug-in's (``systems.log.`` of
    ``system.log.path``). Only the plug-in knows whether it has this one. None for any other key."""
    first, dot, rest = key.partition(".")
    heads = [prefix.rstrip(".") for prefix in _KNOWN_PREFIXES]
    near = closest(first, heads, cutoff=0.7)
    meant = f"{near}{dot}{rest}" if near else ""
    return ".".join(meant.split(".")[:2]) + "." if meant != key and _OPEN.fullmatch(meant) else None


def input_named(key: str) -> tuple[str, str] | None:
    """The system and the stream of a key that only means something for an input; None for any other key."""
    found = _OF_INPUT.fullmatch(key)
    return (found[1], found[2]) if found else None


def is_without_meaning(key: str) -> bool:
    """Return True for a key of Samza that does nothing here."""
    return bool(_WITHOUT_MEANING.fullmatch(key))


def closest_key(key: str) -> str | None:
    """The known key most like an unknown one, with the names that the unknown one gives in place of the
    placeholders."""
    return closest(key, [_fill(known.pattern, key) for known in KEYS], cutoff=0.75)


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    escaped = re.escape(pattern)
    return re.compile(escaped.replace("<s>", r"[^.]+").replace("<n>", r"[^.]+").replace("<t>", r".+"))


def _fill(pattern: str, key: str) -> str:
    """The pattern with the key's own names where it has placeholders: systems.<s>.x and systems.log.y give
    systems.log.x."""
    names = key.split(".")
    parts = pattern.split(".")
    for at, part in enumerate(parts):
        if part.startswith("<") and at < len(names):
            parts[at] = names[at]
    return ".".join(parts)
