"""A recording that was read: the messages in their order, the state at its begin, and what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from streambench.config import Config
from streambench.errors import escaped
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.recording import header as headers
from streambench.recording.file import (
    BLOCK_MESSAGES,
    BLOCK_S,
    RecordingWriter,
    Row,
    check_target,
    damaged,
    read_header,
    read_rows,
)
from streambench.recording.header import Header, TaskCode, TaskStart
from streambench.recording.values import packed, unpacked
from streambench.serde.streams import StreamSerdes, decoded

EVENTS = ("window", "end_of_stream", "commit")
_TIMED = (*EVENTS, "clock", "code")
_ROWS_PER_BLOCK = 10_000
TEXT = "text"
"""The form of keys and messages that cannot be kept."""


class Event(Struct, frozen=True):
    """A callback without a message, or a commit, of some tasks, after ``position`` messages."""

    position: int
    kind: str
    tasks: tuple[str, ...]
    now_ms: int


class CodeChange(Struct, frozen=True):
    """A swap of the code, after ``position`` messages. ``init``: its ``init`` was called then. ``number``: of
    the codes of the recording, counted from 1 on, also those that a branch has replaced."""

    position: int
    code: TaskCode
    init: bool
    number: int


class Failure(Struct, frozen=True):
    """The failure that ended a recorded container, after ``position`` messages. ``ssp``, ``offset``: the
    message that it was given, None outside ``process``. ``kind``: the class of the exception, ``text``: that
    of the error, ``traceback``: the lines of the traceback."""

    position: int
    task: str | None
    ssp: SystemStreamPartition | None
    offset: str | None
    kind: str
    text: str
    traceback: str


class Recording:
    """A recording. Iterating gives its messages in their order, keys and messages as they were read (bytes,
    or objects where the stream has no serde). ``decoded`` gives them as the task got them.

    A failing message is the last one; ``failure`` says what it was. ``notes``: what the recording lacks."""

    def __init__(self, header: Header, rows: Sequence[Row], path: Path | None = None) -> None:
        self.header = header
        self.path = path
        self._rows = with_adopted(rows)
        self.warned_of: set[str] = set()
        """The systems of which its replays have warned. Recordings made of this one have the same set."""

    @classmethod
    def read(
        cls, path: str | Path, progress: Callable[[int, int], object] = lambda done, total: None
    ) -> Recording:
        """Read a recording. ``progress`` is called with the bytes that are read, and those of the file.
        Raises StreambenchError where it cannot be read."""
        path = Path(path)
        try:
            header = headers.read(read_header(path), path)
        except msgspec.ValidationError as error:
            raise damaged(path, f"its header cannot be read ({error})") from None
        found = cls(header, list(read_rows(path, progress)), path)
        if header.kind == "capture" and not found.is_complete:
            raise damaged(path, "its end is missing, and a capture is written whole")
        return found

    def __repr__(self) -> str:
        return f"<{', '.join(self._described())}>"

    def _repr_html_(self) -> str:
        first, *others = map(escape, self._described())
        return f"<div><b>{first}</b></div>" + "".join(f"<div>{each}</div>" for each in others)

    def _described(self) -> list[str]:
        """The job, the number of messages, the failure, and the file with its size."""
        found = [f"recording of {self.job}", f"{len(self):,} message{'' if len(self) == 1 else 's'}"]
        failure = self.failure
        if failure is None:
            found.append("no failure")
        else:
            at = "" if failure.ssp is None else f" at {failure.ssp}@{failure.offset}"
            found.append(f"{failure.kind}{at} after {failure.position:,}")
        if self.path is None:
            return [*found, "in no file"]
        size = f" ({self.path.stat().st_size:,} bytes)" if self.path.is_file() else ", which is gone"
        return [*found, escaped(f"{self.path}{size}")]

    def _of(self, *kinds: str) -> Iterator[Row]:
        """The rows of these kinds, in their order."""
        return (row for row in self._rows if row.kind in kinds)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[IncomingMessageEnvelope]:
        return iter(self.messages)

    @property
    def job(self) -> str:
        """The name of the job, as ``name-id``."""
        return self.header.job

    @property
    def tasks(self) -> Sequence[TaskStart]:
        """The tasks, and where they begin."""
        return self.header.tasks

    @property
    def directory(self) -> Path:
        """The directory that relative paths of the configuration are relative to."""
        return headers.origin_of(self.header)

    @cached_property
    def config(self) -> Config:
        """The configuration of the job, without its secrets."""
        return Config.from_text("", directory=self.directory).with_values(self.header.config)

    @cached_property
    def messages(self) -> Sequence[IncomingMessageEnvelope]:
        """The messages in their order, as they were read."""
        return [
            IncomingMessageEnvelope(
                SystemStreamPartition.parse(row.source or ""), row.offset or "",
                _value(row.key, row.key_as), _value(row.message, row.message_as), row.timestamp, row.headers,
            )
            for row in self._of("message")
        ]  # fmt: skip

    def decoded(self) -> Iterator[IncomingMessageEnvelope]:
        """The messages in their order, as the tasks got them. Raises SerdeError."""
        serdes = StreamSerdes(self.config)
        for raw in self.messages:
            found = decoded(raw, *serdes.for_stream(raw.ssp.system_stream))
            if not isinstance(found, IncomingMessageEnvelope):
                raise found
            yield found

    @cached_property
    def events(self) -> Sequence[Event]:
        """The windows, ends of inputs and commits, in their order."""
        return list(map(_event, self._of(*EVENTS)))

    @cached_property
    def timeline(self) -> Sequence[Event]:
        """The events and, as ``clock``, the readings of the clock, as they came; the swaps of ``codes`` stand
        between them as ``code``."""
        return list(map(_event, self._of(*_TIMED)))

    @cached_property
    def codes(self) -> Sequence[CodeChange]:
        """The swaps of the code, in their order; the code before the first one is that of the header."""
        found: list[CodeChange] = []
        for row in self._of("code"):
            values = unpacked(row.message or b"{}")
            code = msgspec.convert(values["code"], TaskCode)
            # A file without numbers is older than branches in recordings: it has all its codes.
            number = values.get("number", len(found) + 1)
            found.append(CodeChange(row.position, code, values["init"], number))
        return found

    @cached_property
    def streams(self) -> Mapping[SystemStream, int]:
        """The numbers of partitions of streams that the tasks sent to, where they are known."""
        return {SystemStream.parse(row.source or ""): int(row.offset or 1) for row in self._of("stream")}

    @cached_property
    def size_limits(self) -> Mapping[SystemStream, int]:
        """The most bytes of a message to streams, of those whose broker has given a limit."""
        return {
            SystemStream.parse(row.source or ""): unpacked(row.message)["size_limit"]
            for row in self._of("stream")
            if row.message is not None
        }

    @cached_property
    def batches(self) -> Sequence[tuple[int, int]]:
        """The messages that a task got at once: the position of the last one, and their number."""
        return [(row.position, int(row.offset or 1)) for row in self._of("batch")]

    @cached_property
    def stores(self) -> Mapping[str, Mapping[str, Mapping[bytes, bytes]]]:
        """The stores at the begin: per task and store the entries, as the serdes of the store make them."""
        found: dict[str, dict[str, dict[bytes, bytes]]] = {}
        for row in self._of("store"):
            of_task = found.setdefault(row.task or "", {})
            of_task.setdefault(row.source or "", {})[row.key or b""] = row.message or b""
        return found

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """The attributes of the tasks' objects at the begin, by task and name; those of ``context.user``
        stand as ``context.user.NAME``. Made for each call: a task may change them in place."""
        return {row.task or "": unpacked(row.message or b"{}") for row in self._of("attributes")}

    @cached_property
    def failure(self) -> Failure | None:
        """The failure that ended it; None where it ended without one."""
        row = next(self._of("failure"), None)
        if row is None:
            return None
        ssp = None if row.source is None else SystemStreamPartition.parse(row.source)
        return Failure(row.position, row.task, ssp, row.offset, **unpacked(row.message or b"{}"))

    @cached_property
    def notes(self) -> Sequence[str]:
        """Sentences about what the recording lacks."""
        notes = [unpacked(row.message or b'""') for row in self._of("note")]
        texts = {row.source: None for row in self._of("message") if TEXT in (row.key_as, row.message_as)}
        streams = {SystemStreamPartition.parse(source or "").system_stream: None for source in texts}
        notes += map(text_note, streams)
        if not self.is_complete:
            notes.append(
                "the recording was not closed (its process was killed, or still records): it reaches to its "
                f"last whole block, and lacks at most about {BLOCK_MESSAGES:,} messages or {BLOCK_S:g} s of "
                "its end"
            )
        return notes

    @property
    def is_complete(self) -> bool:
        """True where the recording was closed."""
        return next(self._of("end"), None) is not None

    def only(self, places: Sequence[int]) -> Recording:
        """The same recording with only the messages at these places (from 0 on), in their order. Windows,
        ends of inputs and commits stay where they are among the messages that stay, and the failure where its
        message does."""
        kept = set(places)
        before = [0]
        for place in range(len(self.messages)):
            before.append(before[-1] + (place in kept))
        rows = []
        for row in self._rows:
            at = min(row.position, len(self.messages))
            if row.kind == "batch":
                count = before[at] - before[max(0, at - int(row.offset or 1))]
                rows += [batch_row(before[at], count)] if count > 1 else []
            elif row.kind == "failure" and row.source is not None and at not in kept:
                continue
            elif row.kind != "message" or at - 1 in kept:
                rows.append(replace(row, position=before[at]))
        found = Recording(self.header, rows)
        found.warned_of = self.warned_of
        return found

    def with_failure(self, row: Row | None) -> Recording:
        """The same messages, which end with this failure (see ``failure_row``), or without one."""
        other = copy(self)
        others = [each for each in self._rows if each.kind not in ("failure", "end")]
        other._rows = [*others, *([] if row is None else [row]), *self._of("end")]
        vars(other).pop("failure", None)  # made of the rows
        return other

    def save(self, path: str | Path) -> Path:
        """Write the recording to a file, durably. A recording of that name is replaced. Raises OSError, and
        StreambenchError where the file is no recording, or is being recorded to."""
        path = Path(path)
        check_target(path, "save")
        with RecordingWriter(path, headers.written(self.header), is_whole=True) as writer:
            for start in range(0, len(self._rows), _ROWS_PER_BLOCK):
                writer.write(list(self._rows[start : start + _ROWS_PER_BLOCK]))
        self.path = self.path or path
        return path

    def with_header(self, header: Header) -> Recording:
        """The same messages under another header."""
        other = copy(self)
        other.header = header
        vars(other).pop("config", None)  # made of the header
        return other

    def to_test(self, path: str | Path, *, task: Any = None, recorded_source: bool = False) -> Path:
        """Write a pytest file that runs the recording, which is put beside it. The path of the test.

        Of a recording that failed, it is red while the task still fails at it. Of another one, it compares
        outputs, stores and offsets with those that the code has now. ``task``, ``recorded_source``: the code,
        as for ``streambench.debug.open``.

        Raises StreambenchError where it cannot be written there, ConfigError where there is no code."""
        # By its name: to run a recording takes what stands above recordings.
        write_test = import_module("streambench.debug.replay.generated_test").write_test
        return Path(write_test(self, Path(path), task=task, recorded_source=recorded_source))


def _event(row: Row) -> Event:
    tasks = () if row.kind == "code" else tuple(unpacked(row.message or b"[]"))
    return Event(row.position, row.kind, tasks, row.timestamp or 0)


def _value(data: bytes | None, form: str | None) -> Any:
    if data is None or form is None:
        return data
    return unpacked(data) if form == "json" else data.decode()


def value_columns(values: Sequence[Any]) -> tuple[list[bytes | None], list[str | None]]:
    """Keys or messages as bytes, and as what each of them is kept."""
    data: list[bytes | None] = []
    forms: list[str | None] = []
    for value in values:
        if value is None or type(value) is bytes:
            data.append(value)
            forms.append(None)
            continue
        try:
            data.append(packed(value))
            forms.append("json")
        except Exception:
            data.append(repr(value)[:1000].encode(errors="backslashreplace"))
            forms.append(TEXT)
    return data, forms


def text_note(stream: SystemStream) -> str:
    """The note about a stream with keys or messages that a recording cannot keep."""
    return (
        f"messages of {stream} are objects of classes, which a recording cannot keep: a replay gives the "
        f"task their repr() as text; with a serde (systems.{stream.system}.samza.msg.serde) they are kept"
    )


def batch_row(position: int, count: int) -> Row:
    """The row of a batch, by the position of its last message."""
    return Row("batch", position, offset=str(count))


def code_row(change: CodeChange) -> Row:
    """The row of a swap of the code."""
    values = {"code": msgspec.to_builtins(change.code), "init": change.init, "number": change.number}
    return plain_row("code", change.position, values)


def adopt_row(changes: Sequence[CodeChange]) -> Row:
    """The row of a branch that was adopted, with the swaps in it; it began at the first one."""
    return plain_row("adopt", changes[0].position, [msgspec.to_builtins(each) for each in changes])


def with_adopted(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows with the swaps of adopted branches in the place of those that they replaced."""
    if not any(row.kind == "adopt" for row in rows):
        return rows
    found: list[Row] = []
    for row in rows:
        if row.kind != "adopt":
            found.append(row)
            continue
        found = [each for each in found if each.kind not in ("code", "note") or each.position <= row.position]
        for change in msgspec.convert(unpacked(row.message or b"[]"), list[CodeChange]):
            later = (
                at for at, each in enumerate(found) if each.kind in _TIMED and each.position > change.position
            )
            found.insert(next(later, len(found)), code_row(change))
    return found


def plain_row(kind: str, position: int, value: Any, **fields: Any) -> Row:
    """A row whose message is a value as JSON."""
    return Row(kind, position, message=packed(value), message_as="json", **fields)
