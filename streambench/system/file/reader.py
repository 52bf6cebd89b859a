"""From the bytes of a file to messages."""

from __future__ import annotations

import csv
from itertools import accumulate, count
from operator import add
from typing import Any

import orjson
from msgspec import Struct

from streambench.errors import CorruptDataError, OffsetError
from streambench.system.file.source import BLOCK, PlainSource, source_of
from streambench.system.file.streams import Place

_INCOMPLETE = "unexpected end of data"
"""What csv says where its input ends inside quotes."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Messages(Struct):
    """What was read at once: the position of each message's last byte, the keys, the messages."""

    ends: list[int]
    keys: list[Any]
    messages: list[Any]


class Reader:
    """Reads one partition from a position on; whole lines (in a CSV file: whole rows) only.

    Where the file is not followed, it is read up to where it ended when reading began, and its last line needs no newline.
    """

    def __init__(self, place: Place, position: int) -> None:
        """``position``: the message that holds this byte is the first. Raises OffsetError where it lies behind the end of the file."""
        self._place = place
        self._source = source_of(place)
        self._limit = self._source.size() if isinstance(self._source, PlainSource) and not place.follow else None
        self._text = b""
        self._ended = False
        self._dry = False
        self.position = self._find(position)
        """Where the message begins that is read next."""

    @property
    def at_head(self) -> bool:
        """Whether everything that was there at the last ``read`` has been returned."""
        return self._ended and (self._dry or not self._text)

    @property
    def is_bounded(self) -> bool:
        """Whether reading ends where the file ended when it began."""
        return not self._place.follow

    def read(self, at_most: int) -> Messages | None:
        """The next messages, at most so many, None where there are none. Raises CorruptDataError that names file and line."""
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
        if self._place.format == "jsonl" and b"" in lines:
            ends = [end for end, line in zip(ends, lines, strict=True) if line]
            lines = [line for line in lines if line]
        field = self._place.key_field
        return Messages(ends, [None] * len(lines) if field is None else [_json_key(line, field) for line in lines], lines)

    def _ends(self, lines: list[bytes]) -> list[int]:
        """The positions of the last bytes of the next lines: of their newlines, which only the last line of a file may lack."""
        ends = list(map(add, accumulate(map(len, lines)), count(self.position)))
        ends[-1] = min(ends[-1], self.position + len(self._text) - 1)
        return ends

    def _look_again(self) -> None:
        """Find out whether a file that was read to its end has grown since."""
        if self._ended and self._place.follow and isinstance(self._source, PlainSource):
            self._ended = self.position + len(self._text) >= self._source.size()

    def _peek(self, at_most: int, more_than: int = 0) -> list[bytes]:
        """Whole lines without their newlines, at most ``at_most``; more than ``more_than``, unless the file ends."""
        while True:
            lines = self._text.split(b"\n", at_most)
            rest = lines.pop()
            if len(lines) > more_than or len(lines) == at_most:
                return lines
            if not self._fill():
                if rest and not self._place.follow:
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
                raise OffsetError(f"{source.name}: {source.path} was cut to {at + len(block)} bytes while it was being read")
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
        """Where the message begins that holds the byte at ``position``."""
        if position == 0:
            return 0
        self._check(position)
        return position if self._is_done(position) else self._source.line_start(position)

    def _check(self, position: int) -> None:
        if not self._source.read(position - 1, 1):
            raise OffsetError(f"{self._source.name}: offset {position} lies behind the end of {self._source.path}")

    def _is_done(self, position: int) -> bool:
        """Whether this is the end of the file, and its last line is to be taken as complete."""
        return not self._place.follow and not self._source.read(position, 1)


class CsvReader(Reader):
    """Reads rows; lines of a file belong to one row where a quoted field holds newlines."""

    def __init__(self, place: Place, position: int) -> None:
        self._header: list[str] | None = None
        super().__init__(place, position)

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

    def _read_header(self) -> bool:
        rows, ends = self._rows(1)
        if not rows:
            return False
        header = rows[0]
        place = self._place
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise CorruptDataError(f"{place.name}: {place.path}, line 1: the column '{twice}' stands twice in the header")
        if place.key_field is not None and place.key_field not in header:
            raise CorruptDataError(f"{place.name}: {place.path}, line 1: no column '{place.key_field}' (key.field): {', '.join(header)}")
        self._header = header
        self._consume(ends[0] + 1)
        return True

    def _read_rows(self, at_most: int) -> Messages | None:
        header = self._header
        assert header is not None
        rows, ends = self._rows(at_most)
        width = len(header)
        odd = next((at for at, row in enumerate(rows) if len(row) != width), None)
        if odd == 0:
            raise self._broken(ends[0], f"{len(rows[0])} fields, but the header has {width} columns")
        rows, ends = rows[:odd], ends[:odd]
        if not rows:
            return None
        self._consume(ends[-1] + 1)
        column = None if self._place.key_field is None else header.index(self._place.key_field)
        keys: list[Any] = [None] * len(rows) if column is None else [row[column].encode() for row in rows]
        # Copies of the right size: what orjson returns holds 4 KiB for as long as it lives.
        return Messages(ends, keys, [b"%b" % orjson.dumps(dict(zip(header, row, strict=True))) for row in rows])

    def _rows(self, at_most: int) -> tuple[list[list[str]], list[int]]:
        """The next rows, at most so many, and where they end. What is wrong behind the first row is left for the next call."""
        lines = self._peek(at_most)
        while lines:
            rows: list[list[str]] = []
            last_lines: list[int] = []
            text, error = _decoded(lines)
            raise_at = len(text)  # the line that is no UTF-8, if there is one
            rows_of = csv.reader(text, strict=True)
            try:
                for row in rows_of:
                    if row:
                        rows.append(row)
                        last_lines.append(rows_of.line_num)
            except csv.Error as problem:
                if str(problem) != _INCOMPLETE:
                    raise_at, error = rows_of.line_num - 1, problem
            ends = self._ends(lines)
            if rows:
                return rows[:at_most], [ends[number - 1] for number in last_lines[:at_most]]
            if error is not None:
                raise self._broken(ends[raise_at], str(error).partition(" - ")[0])
            if not any(line.strip(b"\r") for line in lines):
                self._consume(ends[-1] + 1)
                lines = self._peek(at_most)
                continue
            more = self._peek(2 * len(lines), more_than=len(lines))
            if not more and not self._place.follow:
                raise self._broken(self.position, "a quoted field begins in this row and does not end")
            lines = more
        return [], []

    def _broken(self, position: int, what: str) -> CorruptDataError:
        line = self._source.line_number(position)
        return CorruptDataError(f"{self._place.name}: {self._place.path}, line {line}: {what}")


def reader_of(place: Place, position: int) -> Reader:
    """What reads a partition, by its format."""
    return CsvReader(place, position) if place.format == "csv" else Reader(place, position)


def _decoded(lines: list[bytes]) -> tuple[list[str], Exception | None]:
    """Lines as text with their newlines, up to the first that is no UTF-8, and what is wrong with that."""
    try:
        return [line + "\n" for line in b"\n".join(lines).decode().split("\n")], None
    except UnicodeDecodeError:
        good: list[str] = []
        for line in lines:
            try:
                good.append(line.decode() + "\n")
            except UnicodeDecodeError as error:
                return good, ValueError(f"not UTF-8: {error.reason} at byte {error.start} of the line")
        raise


def _json_key(line: bytes, field: str) -> bytes | None:
    """The key of a JSON line; None where it has none. What is no JSON is for the serde to report, with its own rules for such messages."""
    try:
        value: Any = orjson.loads(line)
    except ValueError:
        return None
    value = value.get(field) if isinstance(value, dict) else None
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else orjson.dumps(value)
