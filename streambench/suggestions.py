"""Suggestions for misspelled names, at the end of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_NAMED = 3


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name most like ``name``; None where none is similar enough (``cutoff``: 0 to 1)."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def suggest(name: str, known: Iterable[str], otherwise: str = "", *, prefix: str = "") -> str:
    """Return "did you mean X?", with ``prefix`` before X; ``otherwise`` where no known name is similar.
    Names that are equally similar are all named."""
    near = difflib.get_close_matches(name, sorted(known), n=_MOST_NAMED)
    likeness = [difflib.SequenceMatcher(None, each, name).ratio() for each in near]
    nearest = sorted(each for each, like in zip(near, likeness, strict=True) if like == likeness[0])
    return f"did you mean {' or '.join(prefix + each for each in nearest)}?" if nearest else otherwise


def suggest_or_list(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?", else all known names."""
    names = sorted(known)
    return suggest(name, names, f"there are {', '.join(names)}")
