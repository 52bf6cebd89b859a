"""The file of a recording: a stream of Arrow IPC, one record batch for each block that was written.

The metadata of its schema hold the header as JSON. Blocks are appended whole: of a file whose writer was
killed, all blocks but a torn last one can be read."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from streambench.errors import StreambenchError, described
from streambench.fsync import fsync_directory
from streambench.locks import Held, is_locked

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 2
_BEGUN_AS, _WITH_ADOPTED = b'{"version":1', b'{"version":2'
"""A header begins so. A reader of version 1 passes over ``adopt``: it would replay with the wrong code."""
HEADER = b"streambench.recording"
COLUMNS = (
    "kind", "position", "task", "source", "offset", "key", "message", "timestamp", "headers", "key_as",
    "message_as",
)  # fmt: skip
BLOCK_MESSAGES, BLOCK_S = 1_000, 1.0
"""A block is written once so many messages wait for it, or for so many seconds."""
BLOCK_BYTES = 64 << 20
"""A block ends at so many bytes. A column of Arrow holds 2 GiB at most."""

_IN_USE = "another recording is being written to it; end that one first, or name another file"
_LOOK_S, _LONGEST_LOOK_S = 0.002, 0.05
"""A look at a lock (``is_locked``) has it for a moment. One that is held for longer is a recording's."""
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row of a recording. ``kind`` says what it is (see docs/recording.md). ``key_as``, ``message_as``:
    None for bytes, ``json`` for an object as JSON, ``text`` for one that could not be kept."""

    kind: str
    position: int
    task: str | None = None
    source: str | None = None
    offset: str | None = None
    key: bytes | None = None
    message: bytes | None = None
    timestamp: int | None = None
    headers: Mapping[str, bytes] | None = None
    key_as: str | None = None
    message_as: str | None = None


def schema(header: Mapping[str, Any]) -> pa.Schema:
    """The schema of a recording with this header."""
    import pyarrow as pa

    text, data, number = pa.string(), pa.binary(), pa.int64()
    kinds = {
        "position": number, "key": data, "message": data, "timestamp": number,
        "headers": pa.map_(pa.string(), data),
    }  # fmt: skip
    fields = [pa.field(name, kinds.get(name, text)) for name in COLUMNS]
    return pa.schema(fields, metadata={HEADER: msgspec.json.encode(header)})


class RecordingWriter:
    """Writes a recording. ``size``, ``messages``: the number of bytes and messages so far. With ``is_whole``
    the file appears under its name when it is closed without an exception. Else it is there from the start
    on, grows, and is locked until it ends."""

    def __init__(self, path: Path, header: Mapping[str, Any], *, is_whole: bool = False) -> None:
        """Raises OSError, BlockingIOError where another recording is being written to the file."""
        import pyarrow as pa

        self.path = path
        self.size = 0
        self.messages = 0
        self._is_whole = is_whole
        self._written_to = path.with_name(f".{path.name}.{os.getpid()}.tmp") if is_whole else path
        # First of all, whatever the version of the file that the header was read from.
        self._schema = schema({"version": 1, **header} | {"version": 1})
        lock = None if is_whole else _locked(path)
        self._release = weakref.finalize(self, bool if lock is None else lock.release)
        try:
            self._file = open(self._written_to, "wb")  # noqa: SIM115 - closed by close()
        except OSError:
            self._release()
            raise
        try:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            self._stream = pa.ipc.new_stream(self._file, self._schema, options=options)
            self._file.flush()
            self.size = self._file.tell()
        except BaseException:
            self._drop()
            raise

    def write(self, rows: list[Row]) -> None:
        """Append rows, as ``write_columns`` does."""
        if rows:
            self.write_columns(columns_of(rows))

    def write_columns(self, columns: Mapping[str, list[Any]]) -> None:
        """Append columns, of which those that are left out are null: as one block, or several where one would
        be too large. Raises OSError, and what pyarrow raises for a row that fits in none."""
        for block in _blocks(columns):
            self._stream.write_batch(self._batch(block))
            self._file.flush()
            if "adopt" in block["kind"]:
                self._raise_version()
            self.size = self._file.tell()
            self.messages += block["kind"].count("message")

    def _raise_version(self) -> None:
        """Have older readers refuse the file. Arrow writes the schema first, with the first block."""
        at = self._schema.serialize().to_pybytes().index(_BEGUN_AS)
        os.pwrite(self._file.fileno(), _WITH_ADOPTED, at)

    def _batch(self, columns: Mapping[str, list[Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        count = len(columns["kind"])
        arrays = [_array(field, columns.get(field.name) or [None] * count) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def cut(self, rows: list[Row]) -> None:
        """Close a file to which a block could not be written: behind its last whole block, with these rows
        where there is room for them. One that is closed stays as it is."""
        if self._file.closed:
            return
        descriptor = os.dup(self._file.fileno())
        try:
            with contextlib.suppress(OSError):
                self._file.close()
            os.ftruncate(descriptor, self.size)
            end = self._batch(columns_of(rows))
            # Arrow writes the schema with the first block.
            begin = b"" if self.size else self._schema.serialize().to_pybytes()
            data = begin + end.serialize().to_pybytes() + _END_OF_STREAM
            if os.pwrite(descriptor, data, self.size) < len(data):
                os.ftruncate(descriptor, self.size)
            else:
                self.size += len(data)
            os.fsync(descriptor)
        except OSError:
            pass
        finally:
            os.close(descriptor)
            self._release()

    def close(self) -> None:
        """End the file, durably. Raises OSError."""
        if self._file.closed:
            return
        try:
            self._stream.close()
            self._file.flush()
            self.size = self._file.tell()
            os.fsync(self._file.fileno())
            self._file.close()
            self._release()
            if self._is_whole:
                os.replace(self._written_to, self.path)
                fsync_directory(self.path.parent)
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        """Close the file; one that is not whole goes."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._release()
        if self._is_whole:
            with contextlib.suppress(OSError):
                self._written_to.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._is_whole:
            self.close()
        else:
            self._drop()


def columns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Rows as columns."""
    return {name: [getattr(row, name) for row in rows] for name in COLUMNS}


def read_header(path: Path) -> dict[str, Any]:
    """The header of a recording. Raises StreambenchError where the file is none, or cannot be read."""
    import pyarrow as pa

    try:
        with open(path, "rb") as file, pa.ipc.open_stream(file) as stream:
            return _checked(path, stream.schema)
    except OSError as error:
        raise StreambenchError(f"cannot read the recording {path}: {error.strerror or error}") from None
    except pa.ArrowException:
        raise _no_recording(path) from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise damaged(path, f"its header cannot be read ({described(error)})") from error


def check_target(path: Path, verb: str = "record") -> None:
    """Raise StreambenchError where a recording cannot be written to a path, or would replace another file.
    ``verb``: what was asked for, for the error."""
    cannot = f"cannot {verb} to {path}"
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StreambenchError(f"{cannot}: there is no directory {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        reason = "it is a directory" if path.is_dir() else "it cannot be written"
        raise StreambenchError(f"{cannot}: {reason}")
    if is_locked(path):
        raise StreambenchError(f"{cannot}: {_IN_USE}")
    if path.exists() and path.stat().st_size:
        try:
            read_header(path)
        except StreambenchError:
            why = "there is a file of that name, which is no recording; name another"
            raise StreambenchError(f"{cannot}: {why}") from None


def read_rows(
    path: Path, progress: Callable[[int, int], object] = lambda done, total: None
) -> Iterator[Row]:
    """The rows of a recording, up to a block that is torn. ``progress`` is called with the bytes that are
    read, and those of the file. Raises StreambenchError, also where a block that is whole cannot be read."""
    import pyarrow as pa

    read_header(path)
    with open(path, "rb") as file, pa.ipc.open_stream(file) as stream:
        size = os.fstat(file.fileno()).st_size
        while True:
            at = file.tell()
            progress(at, size)
            try:
                batch = stream.read_next_batch()
                batch.validate(full=True)
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                if file.tell() >= size:
                    return
                what = f"its block at byte {at:,} cannot be read ({described(error)})"
                raise damaged(path, what) from error
            names = set(batch.schema.names)
            columns = [
                batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
                for name in COLUMNS
            ]
            headers = COLUMNS.index("headers")
            columns[headers] = [None if each is None else dict(each) for each in columns[headers]]
            yield from map(Row, *columns)


def _locked(path: Path) -> Held | None:
    """The lock of a recording that is to be written; None where there are no locks. Raises BlockingIOError
    where another recording is being written to it."""
    deadline = time.monotonic() + _LONGEST_LOOK_S
    while True:
        try:
            return Held.locked(path)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise BlockingIOError(errno.EWOULDBLOCK, _IN_USE) from None
        except OSError:
            return None  # to open it says what is wrong
        time.sleep(_LOOK_S)


def _blocks(columns: Mapping[str, list[Any]]) -> Iterator[Mapping[str, list[Any]]]:
    """The columns, parted where they have more bytes than a block."""
    sizes = [0] * len(columns["kind"])
    for name in ("key", "message"):
        for at, value in enumerate(columns.get(name, ())):
            if value is not None:
                sizes[at] += len(value)
    for at, headers in enumerate(columns.get("headers", ())):
        if headers:
            sizes[at] += sum(map(len, headers.values()))
    start = size = 0
    for at, more in enumerate(sizes):
        if size + more > BLOCK_BYTES and at > start:
            yield {name: values[start:at] for name, values in columns.items()}
            start, size = at, 0
        size += more
    yield columns if start == 0 else {name: values[start:] for name, values in columns.items()}


def _array(field: pa.Field, values: list[Any]) -> pa.Array:
    """A column, made without pandas: a failed task would wait seconds for its import."""
    import pyarrow as pa

    from streambench.system.log.arrays import binary_column, int64_column

    if values.count(None) == len(values):
        return pa.nulls(len(values), field.type)
    if field.name == "headers":
        return pa.array([None if each is None else list(each.items()) for each in values], field.type)
    if field.type == pa.int64():
        return int64_column(values)
    if field.type == pa.binary():
        return binary_column(values)
    return binary_column([None if each is None else each.encode() for each in values]).cast(field.type)


def _checked(path: Path, found: pa.Schema) -> dict[str, Any]:
    data = (found.metadata or {}).get(HEADER)
    if data is None:
        raise _no_recording(path)
    header: dict[str, Any] = msgspec.json.decode(data)
    if header["version"] > VERSION:
        raise StreambenchError(
            f"{path} is a recording of version {header['version']}, made by streambench "
            f"{header.get('streambench', '?')}; this one reads versions up to {VERSION}: update it"
        )
    return header


def damaged(path: Path, what: str) -> StreambenchError:
    """The error for a recording that is not as it was written."""
    return StreambenchError(f"{path} is damaged: {what}; take another copy of it, or make it again")


def _no_recording(path: Path) -> StreambenchError:
    return StreambenchError(
        f"{path} is no recording: they are made by %stream record, Session.record(), and by containers that "
        "fail"
    )
