"""``streambench send``: lines into a stream."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any

import orjson
import typer

from streambench.cli.job import JobOption, complete_words, split_job, stream_named, systems_of
from streambench.cli.output import say
from streambench.config import Config
from streambench.container.writer import Writer, writing
from streambench.debug.view import counted
from streambench.errors import SerdeError, StreambenchError, StreamSystemError, UnknownStreamError, described, no_partition
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.serde.builtin import BytesSerde
from streambench.serde.streams import StreamSerdes

_SOURCE = "streambench send"
_FLUSH_EVERY = 10_000
_NOTHING = "nothing has been sent"


def add_to(app: typer.Typer) -> None:
    app.command(name="send")(send)


def send(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB.properties] SYSTEM.STREAM", show_default=False, autocompletion=complete_words),
    ] = None,
    config: JobOption = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", "-i", metavar="FILE", help="A file with the lines; else standard input.", show_default=False),
    ] = None,
    key_field: Annotated[str | None, typer.Option(metavar="FIELD", help="The field of each object that is the message's key.")] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Send to this partition; else by the key, else in turn.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", "-t", help="Each line is a text, not JSON.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Send lines as they come, not after the end of the input.")] = False,
) -> None:
    """Send messages to a stream: one JSON value per line, written with the serdes that the configuration names for the stream.

    Where it names no serde for messages, or the serde bytes, each line is sent as it stands, JSON or not. With --text, each line is a text
    (UTF-8), for the serde string for example. --key-field needs lines that are JSON objects in any case. Empty lines are passed over.

    Returns when all of them are durable. All lines are looked at before the first is sent: where one is wrong, nothing is sent at all. With
    --follow that cannot be; an error then says how many were sent.

    Examples:

        streambench send log.clicks --key-field user -c job.properties < clicks.jsonl

        streambench send log.clicks --input clicks.jsonl --partition 0 -c job.properties

        tail -F app.log | streambench send log.lines --text --follow -c job.properties
    """
    settings, names = split_job(config, words)
    if len(names) != 1:
        raise typer.BadParameter("to which stream? Give one, as SYSTEM.STREAM" if not names else f"one stream, not {len(names)}")
    stream = stream_named(names[0])
    try:
        sent = _send(settings, stream, source, key_field, partition, text=text, follow=follow)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(*(interrupt.args or [_NOTHING])) from None
    say(f"sent {counted(sent, 'message')} to {stream}")


def _send(
    settings: Config, stream: SystemStream, source: Path | None, key_field: str | None, partition: int | None, *, text: bool, follow: bool
) -> int:  # fmt: skip
    """Send what is in the source; how many messages that was."""
    with systems_of(settings) as systems, ExitStack() as files:
        try:
            partitions = len(systems.metadata([stream])[stream])
        except UnknownStreamError as error:
            raise UnknownStreamError(f"{error}{systems.remedy(stream.system, str(stream))}") from None
        if partition is not None and partition >= partitions:
            raise no_partition(stream, partition, partitions)
        encoder = _Encoder(settings, stream, key_field, partition, text=text)
        lines = _Lines(source, files)
        with writing(systems, stream, partitions, _SOURCE) as writer:
            if follow:
                _write(writer, encoder.each(lines.once(), lines.name), flush_every=1)
            else:
                _write(writer, encoder.checked(lines), flush_every=_FLUSH_EVERY)
    return writer.sent


class _Lines:
    """The input. A file is read twice, first to look at it; what can be read only once is kept in between."""

    def __init__(self, source: Path | None, files: ExitStack) -> None:
        self.name = str(source) if source is not None else "standard input"
        if source is not None:
            self._file: IO[bytes] = files.enter_context(source.open("rb"))
        else:
            self._file = sys.stdin.buffer

    def once(self) -> Iterator[bytes]:
        """The lines as they come."""
        return iter(self._file.readline, b"")

    def twice(self) -> tuple[Iterable[bytes], Iterable[bytes]]:
        """The lines to look at, and the same lines to send."""
        if self._file.seekable():
            start = self._file.tell()

            def again() -> Iterator[bytes]:
                self._file.seek(start)
                yield from self.once()

            return self.once(), again()
        kept: Sequence[bytes] = list(self.once())
        return kept, kept


class _Encoder:
    """Makes messages of lines."""

    def __init__(self, config: Config, stream: SystemStream, key_field: str | None, partition: int | None, *, text: bool) -> None:
        self._stream = stream
        self._text = text
        self._key_field = key_field
        self._partition = partition
        self._key_serde, self._message_serde = StreamSerdes(config).for_stream(stream)
        self._as_it_stands = self._message_serde is None or isinstance(self._message_serde, BytesSerde)

    def checked(self, lines: _Lines) -> Iterator[OutgoingMessageEnvelope]:
        """All messages, once every line has been found to be right."""
        first, second = lines.twice()
        try:
            for _ in self.each(first, lines.name):
                pass
        except SerdeError as error:
            raise SerdeError(f"{error}; {_NOTHING}") from error.__cause__
        return self.each(second, lines.name)

    def each(self, lines: Iterable[bytes], name: str) -> Iterator[OutgoingMessageEnvelope]:
        """The messages one by one. Raises SerdeError that names the line; empty lines are passed over."""
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)  # some editors begin a file with a byte order mark
            if line.strip():
                try:
                    yield self._message(line.rstrip(b"\r\n"))
                except Exception as error:
                    raise SerdeError(f"{name}, line {number}: {described(error)}") from error

    def _message(self, line: bytes) -> OutgoingMessageEnvelope:
        is_json = self._key_field is not None or not (self._text or self._as_it_stands)
        value = self._json(line) if is_json else None
        key = None if self._key_field is None else _encoded(self._key_serde, self._key(value), "key")
        message = line if self._as_it_stands else _encoded(self._message_serde, line.decode() if self._text else value, "message")
        return OutgoingMessageEnvelope(self._stream, message, key, None, self._partition)

    def _json(self, line: bytes) -> Any:
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError as error:
            hint = "" if self._text or self._key_field is not None else "; --text sends lines that are none"
            raise SerdeError(f"this is not JSON: {error}{hint}") from None

    def _key(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise SerdeError(f"--key-field {self._key_field} needs a JSON object, not {type(value).__name__}")
        if self._key_field not in value:
            raise SerdeError(f"there is no field '{self._key_field}' to take the key from")
        return value[self._key_field]


def _encoded(serde: Serde | None, value: Any, what: str) -> bytes | None:
    if value is None:
        return None
    if serde is None:
        return value.encode() if isinstance(value, str) else orjson.dumps(value)
    try:
        return serde.to_bytes(value)
    except Exception as error:
        raise SerdeError(f"the {what} {value!r} cannot be encoded with {type(serde).__name__}: {described(error)}") from error


def _write(writer: Writer, messages: Iterable[OutgoingMessageEnvelope], *, flush_every: int) -> None:
    """Send all messages. An error says how many are durable."""
    try:
        writer.send(messages, flush_every=flush_every)
    except KeyboardInterrupt:
        if writer.sent == 0:
            raise KeyboardInterrupt(_NOTHING) from None
        least = "" if _saved(writer) else "at least "
        raise KeyboardInterrupt(f"sent before that: {least}{counted(writer.durable, 'message')}") from None
    except StreambenchError as error:
        if writer.sent == 0:
            raise
        certain = _saved(writer)
        if not writer.durable:
            raise
        how_many = f"{'' if certain else 'at least '}{counted(writer.durable, 'message')}"
        raise StreamSystemError(f"{error}; {how_many} before it have been sent") from error


def _saved(writer: Writer) -> bool:
    """Make durable what was sent before an error; whether that is certain now."""
    try:
        writer.flush()
    except StreambenchError:
        return False
    return True
