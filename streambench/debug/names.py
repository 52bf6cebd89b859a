"""Names, texts and figures in little room: partitions stay readable, nothing invisible goes to a screen."""

from __future__ import annotations

import re
from collections.abc import Callable

from streambench.errors import escaped

_TAIL = 7
"""Characters at the end of a stream's name that stay, with the partition, where the name is cut."""

_PARTITION = re.compile(r"(\.\d+| · [\d,]+ partitions)$")


def head_and_tail(name: str) -> tuple[str, str]:
    """A name in two parts, of which the first may be cut: the partition is in the second."""
    found = _PARTITION.search(name)
    at = max(0, (found.start() if found else len(name)) - _TAIL)
    return name[:at], name[at:]


def middle_cut(name: str, width: int) -> str:
    """A name of at most ``width`` characters: what it loses, it loses in the middle, not its partition."""
    if len(name) <= width:
        return name
    head, tail = head_and_tail(name)
    if len(tail) >= width:
        return f"…{name[len(name) - width + 1 :]}"
    return f"{head[: width - len(tail) - 1]}…{tail}"


class Cut(str):
    """A text that is cut. ``again``: cut as it was whole, at another width."""

    again: Callable[[int], str]


def end_cut(text: str, width: int) -> str:
    """A text of at most ``width`` characters, with the number of those that are left out at its end."""
    if len(text) <= width:
        return text
    if isinstance(text, Cut):
        return text.again(width)
    kept = max(1, width - len(f"… +{len(text):,}"))
    return f"{text[:kept]}… +{len(text) - kept:,}"


def figure(value: float | None) -> str:
    """A whole number with separators; a dash for None."""
    return "-" if value is None else f"{value:,.0f}"


def visible(text: str) -> str:
    """The same with an escape such as ``\\\\u202e`` for each character that cannot be seen or turns others
    around; tabs and line ends stay."""
    return escaped(text, keep="\t\n")
