"""``streambench send``: lines into a stream."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from msgspec import Struct

from streambench.cli.envelopes import encoded, envelope_of, milliseconds
from streambench.cli.job import JobOption, JsonOption, StreamArgument, stream_in, systems_of
from streambench.cli.option_groups import with_options
from streambench.cli.output import print_json
from streambench.cli.pipes import interruptible, opened_pipe
from streambench.config import Config
from streambench.container.outputs.direct_writer import Writer, writing
from streambench.counts import counted
from streambench.errors import (
    SerdeError,
    StreambenchError,
    StreamSystemError,
    UnknownStreamError,
    described,
    no_partition,
)
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.builtin import BytesSerde, EncodedStringSerde, StringSerde
from streambench.serde.json_text import check_names_differ, json_value
from streambench.serde.streams import StreamSerdes

_SOURCE = "streambench send"
_FLUSH_EVERY = 10_000
_NOTHING = "nothing has been sent"


class SendOptions(Struct, frozen=True):
    """The options that say where lines come from, and how they become messages."""

    source: Annotated[
        Path | None,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE",
            help="A file with the lines; else standard input.",
            show_default=False,
        ),
    ] = None

    key_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field of each object that is the message's key.")
    ] = None
    partition: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Send to this partition; else by the key, else in turn."),
    ] = None
    tombstones: Annotated[
        list[str] | None,
        typer.Option(
            "--tombstone",
            metavar="KEY",
            help="Send null with this key, which deletes it; again for more.",
            show_default=False,
        ),
    ] = None
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=VALUE",
            help="A header of each message; again for more.",
            show_default=False,
        ),
    ] = None
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The time of each message: milliseconds since 1970, or ISO 8601 with a time zone.",
        ),
    ] = None
    timestamp_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field of each object that is its time.")
    ] = None
    envelopes: Annotated[
        bool,
        typer.Option(
            "--envelopes",
            "-e",
            help="Each line is a whole message, as peek --json prints it.",
            show_default=False,
        ),
    ] = False
    text: Annotated[bool, typer.Option("--text", "-t", help="Each line is a text, not JSON.")] = False
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Send lines as they come, not after the end of the input.")
    ] = False

    def check(self) -> None:
        """Raise BadParameter for a header or a time that is none, and for options that exclude each other."""
        _headers(self.headers or ())
        _time(self.timestamp)
        of_lines: dict[str, object] = {
            "--key-field": self.key_field,
            "--timestamp-field": self.timestamp_field,
            "--text": self.text,
        }
        time: dict[str, object] = {"--timestamp": self.timestamp}
        of_source = {"--input": self.source, "--follow": self.follow, "--envelopes": self.envelopes}
        first, others = "", dict[str, object]()
        if self.tombstones:
            first, others = "--tombstone", of_lines | of_source
        elif self.envelopes:
            first, others = "--envelopes", of_lines | {"--header": self.headers} | time
        elif self.timestamp_field is not None:
            first, others = "--timestamp-field", time
        wrong = next((name for name, value in others.items() if value not in (None, False, [])), None)
        if wrong is not None:
            raise typer.BadParameter(f"{first} and {wrong} exclude each other")


_DEFAULTS = SendOptions()


@with_options("options", SendOptions)
def send(
    words: StreamArgument = None,
    config: JobOption = None,
    options: SendOptions = _DEFAULTS,
    json: JsonOption = False,
) -> None:
    """Send messages to a stream: one JSON value per line, written with the serdes that the configuration
    names for the stream.

    Where it names no serde for messages, or the serde bytes, each line is sent as it stands, JSON or not.
    With --text, each line is a text (UTF-8), for the serde string for example. --key-field needs lines that
    are JSON objects in any case. Empty lines are passed over.

    Returns when all of them are durable. All lines are looked at before the first is sent: where one is
    wrong, nothing is sent at all. With --follow that cannot be; an error then says how many were sent.

    With --envelopes a line is an object with the fields message (null is a tombstone), key, timestamp,
    headers and partition. Only message is required. This is what peek --json prints. So peek and send copy a
    stream. Bytes that are no text stand in message_base64, key_base64 and headers_base64, and are sent as
    they are, without a serde.

    With --tombstone nothing is read. For each KEY, a message of null is sent. The KEY is written as text or,
    for a serde of anything else, as JSON.

    Examples:

        streambench send log.clicks --key-field user -c job.properties < clicks.jsonl

        streambench send log.clicks --input clicks.jsonl --partition 0 -c job.properties

        tail -F app.log | streambench send log.lines --text --follow -c job.properties

        streambench send log.users --tombstone alice --header reason=gdpr -c job.properties

        streambench peek log.old --json --limit 1000000 -c job.properties | streambench send log.new
        --envelopes -c job.properties
    """
    settings, stream = stream_in(config, words, "to which stream? Give one, as SYSTEM.STREAM")
    options.check()
    try:
        sent = _send(settings, stream, options)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(*(interrupt.args or [_NOTHING])) from None
    if json:
        print_json({"stream": str(stream), "messages": sent})
    else:
        print(f"sent {counted(sent, 'message')} to {stream}")


def _headers(given: Sequence[str]) -> dict[str, bytes] | None:
    headers: dict[str, bytes] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{each!r} is no NAME=VALUE", param_hint="--header")
        if name in headers:
            raise typer.BadParameter(f"the header {name} is given twice", param_hint="--header")
        headers[name] = value.encode(errors="surrogateescape")
    return headers or None


def _time(given: str | None) -> int | None:
    if given is None:
        return None
    try:
        return milliseconds(int(given) if given.removeprefix("-").isdecimal() else given)
    except SerdeError as error:
        raise typer.BadParameter(str(error), param_hint="--timestamp") from None


def _send(settings: Config, stream: SystemStream, options: SendOptions) -> int:
    """Send what is in the source; how many messages that was."""
    with systems_of(settings) as systems, ExitStack() as files:
        try:
            partitions = len(systems.metadata([stream])[stream])
        except UnknownStreamError as error:
            raise UnknownStreamError(f"{error}{systems.remedy(stream.system, str(stream))}") from None
        if options.partition is not None and options.partition >= partitions:
            raise no_partition(stream, options.partition, partitions)
        encoder = _Encoder(settings, stream, options, partitions)
        deleted = encoder.tombstones(options.tombstones or ())
        lines = _Lines(None if deleted else options.source, files)
        with writing(systems, stream, partitions, _SOURCE) as writer:
            if deleted:
                _write(writer, deleted, flush_every=_FLUSH_EVERY)
            elif options.follow:
                _write(writer, encoder.each(lines.once(), lines.name), flush_every=1)
            else:
                _write(writer, encoder.checked(lines), flush_every=_FLUSH_EVERY)
    return writer.sent


class _Lines:
    """The input lines. A file is read twice: first it is checked. Input that can be read only once is kept
    in between."""

    def __init__(self, source: Path | None, files: ExitStack) -> None:
        self.name = str(source) if source is not None else "standard input"
        if source is None:
            self._file: IO[bytes] = files.enter_context(interruptible(sys.stdin.buffer))
        elif source.is_fifo():
            self._file = files.enter_context(opened_pipe(source))
        else:
            self._file = files.enter_context(source.open("rb"))

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
        # list() would not notice a Ctrl-C that comes just before it waits for the next line: it runs no code
        # in between.
        kept: Sequence[bytes] = [line for line in self.once()]
        return kept, kept


class _Encoder:
    """Makes messages of lines."""

    def __init__(self, config: Config, stream: SystemStream, options: SendOptions, partitions: int) -> None:
        self._stream = stream
        self._options = options
        self._headers = _headers(options.headers or ())
        self._time = _time(options.timestamp)
        self._partitions = partitions
        self._serdes = self._key_serde, self._message_serde = StreamSerdes(config).for_stream(stream)
        self._as_it_stands = self._message_serde is None or isinstance(self._message_serde, BytesSerde)
        fields = options.key_field, options.timestamp_field
        self._is_json = any(each is not None for each in fields) or not (options.text or self._as_it_stands)

    def tombstones(self, keys: Sequence[str]) -> list[OutgoingMessageEnvelope]:
        """Messages of null with these keys. Raises SerdeError."""
        return [self._envelope(None, self._written_key(key), self._time) for key in keys]

    def _envelope(
        self, message: bytes | None, key: bytes | None, time: int | None
    ) -> OutgoingMessageEnvelope:
        partition = self._options.partition
        return OutgoingMessageEnvelope(self._stream, message, key, None, partition, time, self._headers)

    def _written_key(self, key: str) -> bytes | None:
        """The key that was written on the command line: text, or JSON for a serde of anything else."""
        serde = self._key_serde
        if serde is None or isinstance(serde, (BytesSerde, StringSerde, EncodedStringSerde)):
            return encoded(serde, key, "key")
        try:
            value = json_value(key.encode())
        except ValueError:
            value = key
        if value is None:
            raise SerdeError("a tombstone needs a key that is not null")
        return encoded(serde, value, "key")

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
        options = self._options
        if options.envelopes:
            envelope = envelope_of(line, self._stream, self._serdes, options.partition)
            if envelope.partition is not None and envelope.partition >= self._partitions:
                wrong = no_partition(self._stream, envelope.partition, self._partitions)
                raise SerdeError(f"{wrong}; --partition N sends all to one")
            return envelope
        value = self._json(line) if self._is_json else None
        key, time = None, self._time
        message: bytes | None = line
        if options.key_field is not None:
            key = encoded(self._key_serde, self._field(value, options.key_field, "--key-field"), "key")
        if options.timestamp_field is not None:
            time = milliseconds(self._field(value, options.timestamp_field, "--timestamp-field"))
        if not self._as_it_stands:
            message = encoded(self._message_serde, line.decode() if options.text else value, "message")
        return self._envelope(message, key, time)

    def _json(self, line: bytes) -> Any:
        try:
            value = json_value(line)
        except ValueError as error:
            is_needed = self._options.text or self._options.key_field is not None
            hint = "" if is_needed else "; --text sends lines that are none"
            raise SerdeError(f"this is not JSON: {error}{hint}") from None
        check_names_differ(line)
        return value

    def _field(self, value: Any, name: str, option: str) -> Any:
        if not isinstance(value, dict):
            raise SerdeError(f"{option} {name} needs a JSON object, not {type(value).__name__}")
        if name not in value:
            what = "key" if option == "--key-field" else "time"
            raise SerdeError(f"there is no field '{name}' to take the {what} from")
        return value[name]


def _write(writer: Writer, messages: Iterable[OutgoingMessageEnvelope], *, flush_every: int) -> None:
    """Send all messages. An error says how many are durable."""
    try:
        writer.send(messages, flush_every=flush_every)
    except KeyboardInterrupt:
        if writer.sent == 0:
            raise KeyboardInterrupt(_NOTHING) from None
        raise KeyboardInterrupt(f"sent before that: {_saved(writer)}") from None
    except StreambenchError as error:
        if writer.sent == 0:
            raise
        how_many = _saved(writer)
        if not writer.durable:
            raise
        raise StreamSystemError(f"{error}; {how_many} before it have been sent") from error


def _saved(writer: Writer) -> str:
    """Make durable what was sent before an error, and say how many messages are."""
    least = ""
    try:
        writer.flush()
    except StreambenchError:
        least = "at least "
    return f"{least}{counted(writer.durable, 'message')}"
