"""The producer of files: appends lines."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

from streambench.errors import SerdeError, StreamSystemError, UnknownStreamError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.json_text import json_value
from streambench.system.adapters import SenderProducer
from streambench.system.api import Sender
from streambench.system.file.line_check import check_line
from streambench.system.file.source import PlainSource
from streambench.system.file.streams import FileStreams, PartitionFile

log = logging.getLogger(__name__)

_PENDING_BYTES = 1 << 20


def check_writable(system: str, stream: str, path: Path) -> None:
    """Raise StreamSystemError, with the remedy, where a file of this kind cannot be appended to."""
    if path.name.endswith((".csv", ".gz")):
        what = "CSV files" if path.name.endswith(".csv") else "compressed files"
        raise StreamSystemError(
            f"{system}.{stream}: {what} can only be read, not written ({path}); write JSON lines: name the "
            "file .jsonl, and convert it when it is complete"
        )


class FileProducer(SenderProducer):
    """Appends messages to files, one per line. A line has no key, time or headers: what is to be kept of them
    belongs into the message.

    Lines are kept back until ``flush``, or until there are enough of them; they are always written whole.
    """

    def __init__(self, streams: FileStreams) -> None:
        super().__init__()
        self._streams = streams
        self._writers: dict[str, list[_Writer]] = {}

    def stop(self) -> None:
        super().stop()
        for writers in self._writers.values():
            for writer in writers:
                writer.close()
        self._writers.clear()

    def _new_sender(self, stream: SystemStream) -> Sender:
        writers = self._writers_of(stream)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            writers[partition].append(message)

        return send

    def flush(self, source: str) -> None:
        for writers in self._writers.values():
            for writer in writers:
                writer.flush()

    def _writers_of(self, stream: SystemStream) -> list[_Writer]:
        if stream.stream not in self._writers:
            files = self._streams.partitions(stream.stream)
            for file in files:
                check_writable(stream.system, stream.stream, file.path)
                if file.format == "csv":
                    raise StreamSystemError(
                        f"{stream}: CSV can only be read, not written: set format=jsonl for this stream"
                    )
            self._writers[stream.stream] = [_Writer(file) for file in files]
        return self._writers[stream.stream]


class _Writer:
    """Appends to one file."""

    def __init__(self, file: PartitionFile) -> None:
        self._file = file
        self._pending: list[bytes] = []
        self._size = 0
        self._handle: int | None = None
        self._unsynced = False

    def append(self, message: Any) -> None:
        # The check costs a call: it is made only for what it can refuse.
        if type(message) is not bytes or not message or b"\n" in message:
            check_line(
                self._file.name, self._file.path, is_json=self._file.format == "jsonl", message=message
            )
        self._pending.append(message)
        self._size += len(message) + 1
        if self._size >= _PENDING_BYTES:
            self._write()

    def flush(self) -> None:
        """Return when everything is on the disk."""
        if self._pending:
            self._write()
        if self._unsynced and self._handle is not None:
            try:
                os.fsync(self._handle)
            except OSError as error:
                raise self._failure(error) from error
            self._unsynced = False

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self) -> None:
        data = memoryview(b"\n".join(self._pending) + b"\n")
        handle = self._opened()
        before = os.fstat(handle).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(handle, data[written:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, before)
            raise self._failure(error) from error
        self._pending.clear()
        self._size = 0
        self._unsynced = True

    def _opened(self) -> int:
        if self._handle is None:
            try:
                self._handle = os.open(self._file.path, os.O_WRONLY | os.O_APPEND)
                self._mend(self._handle)
            except FileNotFoundError:
                raise UnknownStreamError(f"{self._file.name}: there is no file {self._file.path}") from None
            except OSError as error:
                raise self._failure(error) from error
        return self._handle

    def _mend(self, handle: int) -> None:
        """Make the file end with a newline. An incomplete last line of JSON is cut off: a crash tore it."""
        source = PlainSource(self._file.name, self._file.path)
        size = source.size()
        if size == 0 or source.read(size - 1, 1) == b"\n":
            return
        start = source.line_start(size)
        torn = source.read(start, size - start)
        if self._file.format == "jsonl" and not _is_json(torn):
            log.warning(
                "%s: the last line of %s was not complete and is cut off: %r",
                self._file.name,
                self._file.path,
                torn[:200],
            )
            os.ftruncate(handle, start)
        else:
            os.write(handle, b"\n")

    def _failure(self, error: OSError) -> StreamSystemError:
        return StreamSystemError(f"{self._file.name}: cannot write {self._file.path}: {error.strerror}")


def _is_json(line: bytes) -> bool:
    try:
        json_value(line)
    except (ValueError, SerdeError):
        return False
    return True
