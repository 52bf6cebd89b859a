"""Suggestions for misspelled names, at the end of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name most like ``name``; None where none is similar enough (``cutoff``: 0 to 1)."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def suggest(name: str, known: Iterable[str], otherwise: str = "", *, prefix: str = "") -> str:
    """Return "did you mean X?", with ``prefix`` before X; ``otherwise`` where no known name is similar."""
    found = closest(name, known)
    return otherwise if found is None else f"did you mean {prefix}{found}?"


def suggest_or_list(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?", else all known names."""
    names = sorted(known)
    return suggest(name, names, f"there are {', '.join(names)}")
