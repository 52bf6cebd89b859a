"""Secrets that this process has read, and their removal from everything that is shown.

Configuration registers a secret as it is read. Errors, log lines and tracebacks pass through ``redacted``, so
that a secret does not appear in the text of another library's error either. Nothing here is ever written to a
disk or sent to another process.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

MASK = "***"

# Shorter texts occur everywhere: to mask them would make errors unreadable, and protect little.
_SHORTEST = 4

_known: set[str] = set()
_pattern: re.Pattern[str] | None = None


def remember(secret: str) -> None:
    """Register a secret, and the forms in which a URL, a list or a repr would show it. Texts of fewer than 4
    characters are ignored."""
    global _pattern
    parts = {secret, *(part.strip() for part in secret.split(","))}
    forms = {form for part in parts for form in (part, unquote(part), quote(part, safe=""), repr(part)[1:-1])}
    new = {form for form in forms if len(form) >= _SHORTEST} - _known
    if new:
        _known.update(new)
        _pattern = re.compile("|".join(re.escape(each) for each in sorted(_known, key=len, reverse=True)))


def redacted(text: str) -> str:
    """The text with stars in place of every registered secret."""
    return text if _pattern is None else _pattern.sub(MASK, text)
