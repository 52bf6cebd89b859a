"""A known configuration key."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["text", "integer", "boolean", "names", "path", "class"]


class Key(NamedTuple):
    """A known key. ``default`` is text as it would stand in a file; None: there is none. ``values``: all that
    may be written; ``least``: the smallest number that may be."""

    pattern: str
    kind: Kind
    default: str | None
    meaning: str
    values: tuple[str, ...] = ()
    least: int | None = None
