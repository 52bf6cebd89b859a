"""From the bytes of a file to messages."""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import accumulate, count
from operator import add
from typing import Any

import orjson
from msgspec import Struct

from streambench.errors import CorruptDataError, OffsetError, SerdeError
from streambench.serde.json_text import json_bytes, json_value
from streambench.system.file.source import BLOCK, PlainSource, source_of
from streambench.system.file.streams import PartitionFile

_INCOMPLETE = "unexpected end of data"
"""The error of csv where its input ends inside quotes."""
_FEWEST, _MOST = 16, 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Broken(Struct, frozen=True):
    """A defect of a row, and its line.

    ``error`` makes the error of it: to count lines takes time, and many a row is only looked at to find where
    it ends."""

    what: str
    end: int
    lines: int
    first_line: Callable[[], int]
    file: PartitionFile

    def error(self) -> SerdeError:
        line = self.first_line() + self.lines
        return SerdeError(f"{self.file.name}@{self.end}: {self.file.path}, line {line}: {self.what}")


class Messages(Struct):
    """The result of one read: the position of each message's last byte, the keys, the messages. ``broken``:
    this is one row that cannot be read, as it stands there."""

    ends: list[int]
    keys: list[Any]
    messages: list[Any]
    broken: Broken | None = None


class Reader:
    """Reads one partition from a position on; whole lines (in a CSV file: whole rows) only.

    Where the file is not followed, it is read up to where it ended when reading began, and its last line
    needs no newline.
    """

    def __init__(self, file: PartitionFile, position: int) -> None:
        """``position``: the message that holds this byte is the first. Raises OffsetError where it lies
        behind the end of the file."""
        self._file = file
        self._source = source_of(file)
        self._limit = (
            self._source.size() if isinstance(self._source, PlainSource) and not file.follow else None
        )
        self._text = b""
        self._ended = False
        self._dry = False
        self.position = self._find(position)
        """The beginning of the message that is read next."""

    @property
    def at_head(self) -> bool:
        """True if everything that was there at the last ``read`` has been returned."""
        return self._ended and (self._dry or not self._text)

    @property
    def is_bounded(self) -> bool:
        """True if reading ends where the file ended when it began."""
        return not self._file.follow

    def read(self, at_most: int) -> Messages | None:
        """The next messages, at most so many, None where there are none. Raises CorruptDataError that names
        file and line."""
        lines = self._peek(at_most)
        messages = self._messages(lines) if lines else None
        while messages is not None and not messages.ends:
            # Nothing but blank lines.
            lines = self._peek(at_most)
            messages = self._messages(lines) if lines else None
        self._dry = messages is None
        self._look_again()
        return messages

    def close(self) -> None:
        self._source.close()

    def _messages(self, lines: list[bytes]) -> Messages | None:
        ends = self._ends(lines)
        if self._text.find(b"\r", 0, ends[-1] + 1 - self.position) >= 0:
            lines = [line.removesuffix(b"\r") for line in lines]
        self._consume(ends[-1] + 1)
        if self._file.format == "jsonl" and b"" in lines:
            ends = [end for end, line in zip(ends, lines, strict=True) if line]
            lines = [line for line in lines if line]
        field = self._file.key_field
        return Messages(
            ends, [None] * len(lines) if field is None else [_json_key(line, field) for line in lines], lines
        )

    def _ends(self, lines: list[bytes]) -> list[int]:
        """The positions of the last bytes of the next lines: of their newlines, which only the last line of a
        file may lack."""
        ends = list(map(add, accumulate(map(len, lines)), count(self.position)))
        ends[-1] = min(ends[-1], self.position + len(self._text) - 1)
        return ends

    def _look_again(self) -> None:
        """Find out whether a file that was read to its end has grown since."""
        if self._ended and self._file.follow and isinstance(self._source, PlainSource):
            self._ended = self.position + len(self._text) >= self._source.size()

    def _peek(self, at_most: int, more_than: int = 0) -> list[bytes]:
        """Whole lines without their newlines, at most ``at_most``; more than ``more_than``, unless the file
        ends."""
        while True:
            lines = self._text.split(b"\n", at_most)
            rest = lines.pop()
            if len(lines) > more_than or len(lines) == at_most:
                return lines
            if not self._fill():
                if rest and not self._file.follow:
                    lines.append(rest)
                return lines if len(lines) > more_than else []

    def _fill(self) -> bool:
        """Read on; False where there is no more."""
        at = self.position + len(self._text)
        size = max(BLOCK, len(self._text))  # twice as much each time, where a line is very long
        source = self._source
        if isinstance(source, PlainSource):
            end = source.size() if self._limit is None else self._limit
            size = min(size, end - at)
            block = source.read(at, size) if size > 0 else b""
            if len(block) < size:
                raise OffsetError(
                    f"{source.name}: {source.path} was cut to {at + len(block)} bytes while it was being read"
                )
            self._ended = at + len(block) >= end
        else:
            block = source.read(at, size)
            self._ended = len(block) < size
        if at == 0 and block.startswith(_BYTE_ORDER_MARK):
            self.position = len(_BYTE_ORDER_MARK)
            block = block[self.position :]
        self._text += block
        return bool(block)

    def _consume(self, position: int) -> None:
        self._text = self._text[position - self.position :]
        self.position = position

    def _find(self, position: int) -> int:
        """The beginning of the message that holds the byte at ``position``."""
        if position == 0:
            return 0
        self._check(position)
        return position if self._is_done(position) else self._source.line_start(position)

    def _check(self, position: int) -> None:
        if not self._source.read(position - 1, 1):
            raise OffsetError(
                f"{self._source.name}: offset {position} lies behind the end of {self._source.path}"
            )

    def _is_done(self, position: int) -> bool:
        """True if this is the end of the file, and its last line is to be taken as complete."""
        return not self._file.follow and not self._source.read(position, 1)


class CsvReader(Reader):
    """Reads rows; lines of a file belong to one row where a quoted field holds newlines.

    A row that cannot be read comes by itself. Where its quotes are wrong its end is not known. Then only its
    first line is taken for it, so that one quote too many does not consume all that follows.
    """

    def __init__(self, file: PartitionFile, position: int) -> None:
        self._header: list[str] | None = None
        self._at_once = _MOST
        self._lines = 0
        super().__init__(file, position)
        self._begin, self._lines = self.position, 0
        self._begin_line: int | None = None

    def read(self, at_most: int) -> Messages | None:
        messages = None
        if self._header is not None or self._read_header():
            messages = self._read_rows(at_most)
        self._dry = messages is None
        self._look_again()
        return messages

    def _find(self, position: int) -> int:
        self.position = 0
        if not self._read_header() or position <= self.position:
            return self.position
        self._check(position)
        if self._source.read(position - 1, 1) == b"\n":
            # A row ends with an unquoted newline, and none consists of nothing else: here one begins.
            self._forget()
            return position
        start = self.position
        while messages := self._read_rows(1000):
            for end in messages.ends:
                if end >= position:
                    self._forget()
                    return start
                start = end + 1
        self._forget()
        return position if self._is_done(position) else start

    def _forget(self) -> None:
        self._text, self._ended = b"", False

    def _consume(self, position: int) -> None:
        self._lines += self._text.count(b"\n", 0, position - self.position)
        super()._consume(position)

    def _read_header(self) -> bool:
        try:
            rows, ends = self._rows(1)
        except _BrokenRow as broken:
            raise self._wrong_header(broken.what, self._source.line_number(broken.at)) from None
        if not rows:
            return False
        header = rows[0]
        field = self._file.key_field
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise self._wrong_header(f"the column '{twice}' stands twice in the header")
        if field is not None and field not in header:
            raise self._wrong_header(f"no column '{field}' (key.field): {', '.join(header)}")
        self._header = header
        self._consume(ends[0] + 1)
        return True

    def _wrong_header(self, what: str, line: int = 1) -> CorruptDataError:
        return CorruptDataError(f"{self._file.name}: {self._file.path}, line {line}: {what}")

    def _read_rows(self, at_most: int) -> Messages | None:
        header = self._header
        assert header is not None
        width = len(header)
        try:
            # As few behind a broken row: where there are many of them, lines would be parsed again and again.
            rows, ends = self._rows(min(at_most, self._at_once))
            odd = next((at for at, row in enumerate(rows) if len(row) != width), None)
            if odd == 0:
                raise _BrokenRow(
                    f"{len(rows[0])} fields, but the header has {width} columns", ends[0], ends[0]
                )
        except _BrokenRow as broken:
            self._at_once = _FEWEST
            return self._broken(broken)
        rows, ends = rows[:odd], ends[:odd]
        if not rows:
            return None
        self._at_once = min(2 * self._at_once, _MOST)
        self._consume(ends[-1] + 1)
        column = None if self._file.key_field is None else header.index(self._file.key_field)
        keys: list[Any] = [None] * len(rows) if column is None else [row[column].encode() for row in rows]
        # Copies of the right size: what orjson returns holds 4 KiB for as long as it lives.
        return Messages(
            ends, keys, [b"%b" % orjson.dumps(dict(zip(header, row, strict=True))) for row in rows]
        )

    def _broken(self, row: _BrokenRow) -> Messages:
        text = (
            self._text[: row.end + 1 - self.position].lstrip(b"\r\n").removesuffix(b"\n").removesuffix(b"\r")
        )
        lines = self._lines + self._text.count(b"\n", 0, row.at - self.position)
        self._consume(row.end + 1)
        if row.read_on:
            # All of the rest was read for it.
            self._forget()
        return Messages(
            [row.end], [None], [text], Broken(row.what, row.end, lines, self._first_line, self._file)
        )

    def _first_line(self) -> int:
        """The number of the line at which reading began."""
        if self._begin_line is None:
            self._begin_line = self._source.line_number(self._begin)
        return self._begin_line

    def _rows(self, at_most: int) -> tuple[list[list[str]], list[int]]:
        """The next rows, at most so many, and where they end. Raises _BrokenRow where the first one is; what
        is wrong behind it is left for the next call."""
        lines = self._peek(at_most)
        while lines:
            ends = self._ends(lines)
            rows, last_lines, wrong = _parsed(lines, ends)
            if rows:
                return rows[:at_most], [ends[number - 1] for number in last_lines[:at_most]]
            first = next((at for at, line in enumerate(lines) if line.strip(b"\r")), None)
            if first is None:
                self._consume(ends[-1] + 1)
                lines = self._peek(at_most)
                continue
            if wrong is not None:
                raise _BrokenRow(wrong[1], ends[first], ends[wrong[0]])
            more = self._peek(2 * len(lines), more_than=len(lines))
            if not more and not self._file.follow:
                what = "a quoted field begins in this row and does not end"
                raise _BrokenRow(what, ends[first], ends[first], read_on=True)
            lines = more
        return [], []


class _BrokenRow(Exception):
    """The next row cannot be read: what is wrong, where the row ends, and a position in the line that is to
    blame."""

    def __init__(self, what: str, end: int, at: int, *, read_on: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.end = end
        self.at = at
        self.read_on = read_on


def reader_of(file: PartitionFile, position: int) -> Reader:
    """Return the reader of a partition, by its format."""
    return CsvReader(file, position) if file.format == "csv" else Reader(file, position)


def _parsed(lines: list[bytes], ends: list[int]) -> tuple[list[list[str]], list[int], tuple[int, str] | None]:
    """The rows of lines, the number of each one's last line, and the line and reason of what is wrong behind
    them. Raises _BrokenRow where the first row is not UTF-8."""
    rows: list[list[str]] = []
    last_lines: list[int] = []
    text, is_utf8 = _decoded(lines)
    rows_of = csv.reader(text, strict=True)
    try:
        for row in rows_of:
            if not is_utf8 and not _is_utf8("".join(row)):
                if not rows:
                    at, what = _not_utf8(lines)
                    raise _BrokenRow(what, ends[rows_of.line_num - 1], ends[at])
                break
            if row:
                rows.append(row)
                last_lines.append(rows_of.line_num)
    except csv.Error as problem:
        if str(problem) != _INCOMPLETE:
            return rows, last_lines, (rows_of.line_num - 1, str(problem).partition(" - ")[0])
    return rows, last_lines, None


def _decoded(lines: list[bytes]) -> tuple[list[str], bool]:
    """Lines as text with their newlines, and whether they are UTF-8; what is not are lone surrogates."""
    data = b"\n".join(lines)
    try:
        return [line + "\n" for line in data.decode().split("\n")], True
    except UnicodeDecodeError:
        return [line + "\n" for line in data.decode(errors="surrogateescape").split("\n")], False


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_utf8(lines: list[bytes]) -> tuple[int, str]:
    """The first of these lines that is no UTF-8, and the reason."""
    for at, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return at, f"not UTF-8: {error.reason} at byte {error.start} of the line"
    raise AssertionError("all of them are UTF-8")


def _json_key(line: bytes, field: str) -> bytes | None:
    """The key of a JSON line; None where it has none. What is no JSON is for the serde to report, with its
    own rules for such messages."""
    try:
        value = json_value(line)
    except (ValueError, SerdeError):
        return None
    value = value.get(field) if isinstance(value, dict) else None
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json_bytes(value)
