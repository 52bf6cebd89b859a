"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """A number of things: "1 message", "1,000 messages"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
