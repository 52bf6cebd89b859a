"""Values as short literals: equal in each run, and written as a person would write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from pprint import pformat
from typing import Any

from streambench import syntax
from streambench.errors import class_name

LONGEST = 200
"""The characters of a value that is written out; a longer one is its digest."""
MOST = 50
"""The entries of a list or mapping that are written out; the others are one digest."""

_WIDTH = 100
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def plain_value(value: Any) -> Any:
    """A value itself where it is a short literal, else its text or the digest of it.

    Where the text differs from run to run, it is the name of the class."""
    text = repr(value)
    if len(text) <= LONGEST and _is_literal(text, value):
        return value
    if _ADDRESS.search(text) and _has_address(value):
        return f"a {class_name(type(value))}"
    text = _canonical(value)
    return text if len(text) <= LONGEST else f"sha256 {_digest([text])} of {len(text):,} characters"


def plain_list(values: Sequence[Any]) -> list[Any]:
    """The first values, and as the last entry the digest of the others."""
    found = list(values[:MOST])
    if len(values) > MOST:
        found.append(_others(map(_canonical, values[MOST:]), len(values) - MOST))
    return found


def plain_mapping(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The first entries, and under ``...`` the digest of the others."""
    found = dict(islice(values.items(), MOST))
    if len(values) > MOST:
        left = map(_canonical, islice(values.items(), MOST, None))
        found["..."] = _others(sorted(left), len(values) - MOST)
    return found


def literal(value: Any, indent: str = "", taken: int = 0) -> str:
    """The source text of a plain value, over several lines where it is long. ``indent``: of its lines;
    ``taken``: the characters before it in the first one."""
    line = _line(value)
    if len(indent) + taken + len(line) <= _WIDTH or not isinstance(value, (dict, list, tuple)) or not value:
        return line
    inner = indent + "    "
    if isinstance(value, dict):
        heads = [f"{_line(key)}: " for key in value]
        parts = [
            head + literal(each, inner, len(head) + 1)
            for head, each in zip(heads, value.values(), strict=True)
        ]
    else:
        parts = [literal(each, inner, 1) for each in value]
    ends = {dict: "{}", list: "[]"}.get(type(value), "()")
    return "\n".join([ends[0], *(f"{inner}{part}," for part in parts), f"{indent}{ends[1]}"])


def _line(value: Any) -> str:
    """A plain value in one line."""
    if type(value) is str:
        return _quoted(value)
    if type(value) is dict:
        return "{" + ", ".join(f"{_line(key)}: {_line(each)}" for key, each in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(_line, value)) + "]"
    if type(value) is tuple:
        return "(" + ", ".join(map(_line, value)) + (",)" if len(value) == 1 else ")")
    if type(value) is set and value:
        return "{" + ", ".join(sorted(map(_line, value))) + "}"
    return repr(value)


def _quoted(text: str) -> str:
    """A text in double quotes, where none are in it."""
    written = repr(text)
    if written[0] == "'" and '"' not in written:
        return '"' + written[1:-1] + '"'
    return written


def _is_literal(text: str, value: Any) -> bool:
    try:
        found = syntax.literal(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return type(found) is type(value) and bool(found == value)


def _has_address(value: Any) -> bool:
    """True where the text of a value has an address of this process in it, and not only in its strings."""
    if type(value) in (str, bytes, bytearray):
        return False
    parts = [*value, *value.values()] if type(value) is dict else value
    if type(value) not in (dict, list, tuple, set, frozenset):
        return _ADDRESS.search(repr(value)) is not None
    try:
        return any(map(_has_address, parts))
    except RecursionError:
        return True  # it holds itself


def _canonical(value: Any) -> str:
    """The text of a value, with sets in their order and dicts by their keys."""
    return " ".join(line.strip() for line in pformat(value, width=1).splitlines())


def _others(texts: Iterable[str], count: int) -> str:
    return f"{count:,} more: sha256 {_digest(texts)}"


def _digest(texts: Iterable[str]) -> str:
    found = sha256()
    for text in texts:
        found.update(text.encode(errors="surrogatepass") + b"\n")
    return found.hexdigest()[:16]
