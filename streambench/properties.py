"""Properties text, as ``java.util.Properties`` reads and writes it: a setting per line.

A reader of its own, because the package that has one brings XML and HTTP: 35 ms for each command with a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
# An even number of backslashes stands for half as many, and escapes nothing behind them.
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:]|[ \t\f])[ \t\f]*")
_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_HEX = re.compile(r"u[0-9A-Fa-f]{4}")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_MEANINGS = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}

_ESCAPED = re.compile(r"[^\x20-\x7E]|[\\#!=:]")
_ESCAPES = {meaning: f"\\{letter}" for letter, meaning in _MEANINGS.items()}


class PropertiesError(ValueError):
    """Text that is no properties text. ``line``: where that begins which cannot be read."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


class Property(NamedTuple):
    """A setting. ``source``: its text, with the line ends in it; ``line``: the number of the first line."""

    key: str
    value: str
    source: str
    line: int


def parse(text: str) -> Iterator[Property]:
    """The settings, in their order; a key may stand there more than once. Raises PropertiesError."""
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, source in lines:
        line = source.lstrip(_BLANKS)
        if line.startswith(("#", "!")):
            continue
        while _CONTINUED.search(line):
            _, following = next(lines, (0, ""))
            source += f"\n{following}"
            line = line[:-1] + following.lstrip(_BLANKS)
        if not line:
            continue
        found = _SEPARATOR.search(line)
        key, value = (line[: found.start(1)], line[found.end() :]) if found else (line, "")
        try:
            yield Property(_unescaped(key), _unescaped(value), source, number)
        except ValueError as error:
            raise PropertiesError(str(error), number) from None


def loads(text: str) -> dict[str, str]:
    """The settings; of a key that stands there more than once the last one. Raises PropertiesError."""
    return {each.key: each.value for each in parse(text)}


def dumps(values: Mapping[str, str]) -> str:
    """Properties text, in ASCII, that ``loads`` reads as these values."""
    lines = []
    for key, value in values.items():
        name, text = _ESCAPED.sub(_escaped, key).replace(" ", r"\ "), _ESCAPED.sub(_escaped, value)
        blank = "\\" if text.startswith(" ") else ""  # which would belong to the separator
        lines.append(f"{name}={blank}{text}\n")
    return "".join(lines)


def _unescaped(text: str) -> str:
    return _PAIR.sub(_joined, _ESCAPE.sub(_meaning, text)) if "\\" in text else text


def _meaning(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if escaped[0] != "u":
        return _MEANINGS.get(escaped, escaped)
    if not _HEX.fullmatch(escaped):
        raise ValueError(f"\\{escaped} is no character: write \\u and four hexadecimal digits")
    return chr(int(escaped[1:], 16))


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _escaped(character: re.Match[str]) -> str:
    text = character[0]
    if text in _ESCAPES:
        return _ESCAPES[text]
    if text.isascii() and text.isprintable():
        return f"\\{text}"
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
