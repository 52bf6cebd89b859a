"""The sub-commands of ``%stream`` that read and write streams, without a job: send, peek, dataframe and
streams."""

from __future__ import annotations

import contextlib
import importlib
import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from streambench.config import Config
from streambench.container.observe.snapshot import lag_between
from streambench.counts import counted
from streambench.debug.streams.by_hand import (
    is_confirmed,
    messages_in,
    partitions_of,
    peek,
    send,
    takes_tables,
)
from streambench.debug.streams.errors import ByHandError
from streambench.errors import StreamSystemError, UnknownStreamError
from streambench.model import SystemStream
from streambench.planning.pending_commits import pending_for
from streambench.serde.streams import StreamSerdes
from streambench.system.listing import listing
from streambench.system.systems import KEYS_MOVE, Systems
from streambench_magics.commands.command_parser import stream_names
from streambench_magics.commands.commands import PARSERS
from streambench_magics.commands.status_messages import warn_of_pending
from streambench_magics.commands.typed_key import TEXT_SERDES, json_or_text
from streambench_magics.errors import MagicError
from streambench_magics.jobs.complete_names import field_names
from streambench_magics.jobs.workbench import Workbench
from streambench_magics.tables import Records

_FOLD_ABOVE = 24
_PATIENCE_S = 15.0


class StreamCommands:
    """Methods of the magics, one per sub-command."""

    shell: InteractiveShell
    bench: Workbench

    def _send(self, args: Namespace) -> None:
        stream = SystemStream.parse(args.stream)
        config = self.bench.config_with(stream.system, args.config)
        if (args.message is None) == (args.source is None):
            raise MagicError(f"give one message, or --from a variable; {PARSERS['send'].usage_line()}")
        if args.key is not None and args.key_field is not None:
            raise MagicError("give --key or --key-field, not both")
        key_serde = config.text(config.stream_key(stream.system, stream.stream, "samza.key.serde"))
        key = args.key if key_serde in TEXT_SERDES else json_or_text(args.key)
        value = self._message(stream, config, args) if args.source is None else self._value(args.source)
        StreamSerdes(config)
        with self._known_stream(stream):
            split = args.source or args.key_field
            whole = args.key_field is None and takes_tables(config, stream)
            pairs = messages_in(value, key, args.key_field, whole_tables=whole) if split else [(key, value)]
            number = send(config, stream, pairs, args.partition)
        note = "" if is_confirmed(config, stream) else "; nothing confirms that it arrived"
        print(f"sent {counted(number, 'message')} to {stream}{note}")
        if args.source is None and _is_variable(self.shell.user_ns, args.message):
            print(
                f"that was the word '{args.message}'; the messages of the variable {args.message} are sent "
                f"with --from {args.message}"
            )

    def _peek(self, args: Namespace) -> Records:
        stream = SystemStream.parse(args.stream)
        config = self.bench.config_with(stream.system, args.config)
        with self._known_stream(stream):
            found = peek(config, stream, limit=args.limit, partition=args.partition, begin=args.begin)
        warn_of_pending(pending_for(config, [stream]))
        fields = self.bench.peeked_fields.setdefault(str(stream), set())
        fields |= field_names(each["message"] for each in found)
        return Records(
            [
                "partition",
                "offset",
                "key",
                "message",
                *(["reason"] if any("reason" in each for each in found) else []),
            ],
            found,
            right=["partition", "offset"],
            data=["key", "message"],
            note=""
            if found
            else f"{stream} is empty there"
            if args.begin in ("oldest", "newest")
            else f"{stream} ends at {args.begin}",
        )

    def _dataframe(self, args: Namespace) -> Any:
        stream = SystemStream.parse(args.stream)
        config = self.bench.config_with(stream.system, args.config)
        given = {"columns": args.columns, "start": args.begin}
        options = {name: value for name, value in given.items() if value is not None}
        read = importlib.import_module("streambench.spark").read
        with self._known_stream(stream):
            partitions_of(config, [stream])  # whose error is shorter than Spark's
            frame = read(config, str(stream), schema=args.schema, **options)
        if args.view is not None:
            frame.createOrReplaceTempView(args.view)
        return frame

    def _streams(self, args: Namespace) -> Records | None:
        if args.what[:1] == ["create"]:
            self._create_streams(args)
            return None
        if args.what[:1] == ["grow"]:
            self._grow_streams(args)
            return None
        if args.partitions is not None:
            raise MagicError(
                "--partitions goes with create and grow: %stream streams create STREAM --partitions N"
            )
        records: list[dict[str, Any]] = []
        problems: list[str] = []
        for what in args.what or self._systems():
            config = self.bench.config_with(what.partition(".")[0], args.config)
            if "." in what:
                with self._known_stream(stream := SystemStream.parse(what)):
                    records += partitions_of(config, [stream])
                warn_of_pending(pending_for(config, [stream]))
                continue
            found = listing(config, [what], patience_s=_PATIENCE_S)
            problems += map(str, found.problems)
            try:
                records += partitions_of(config, found.streams, all_there=False)
            except StreamSystemError as error:
                problems.append(str(error))
            warn_of_pending(pending_for(config, found.streams))
        for problem in problems:
            print(problem)
        if len(records) > _FOLD_ABOVE:
            return _folded(records)
        figures = ["partition", "oldest", "newest", "upcoming"]
        return Records(
            ["stream", *figures],
            records,
            right=figures,
            note="" if records or problems else "there are no streams",
        )

    def _create_streams(self, args: Namespace) -> None:
        names = stream_names(args.what[1:])
        if not names:
            raise MagicError("which stream? %stream streams create STREAM --partitions N")
        for name in names:
            stream = SystemStream.parse(name)
            with closing(Systems(self.bench.config_with(stream.system, args.config))) as systems:
                made = systems.create(stream, args.partitions)
                number = len(systems.metadata([stream])[stream])
            print(
                f"{stream} {'is created' if made else 'is there already'}, with "
                f"{counted(number, 'partition')}"
            )

    def _grow_streams(self, args: Namespace) -> None:
        names = stream_names(args.what[1:])
        if not names or args.partitions is None:
            raise MagicError("which stream, to how many? %stream streams grow STREAM --partitions N")
        for name in names:
            stream = SystemStream.parse(name)
            with closing(Systems(self.bench.config_with(stream.system, args.config))) as systems:
                before = systems.grow(stream, args.partitions)
            print(f"{stream} has {counted(args.partitions, 'partition')} now; it had {before}")
            if args.partitions > before:
                print(KEYS_MOVE)

    def _systems(self) -> list[str]:
        """The systems of the nearest configuration."""
        return self.bench.all_configs()[0].names_below("systems.")

    def _message(self, stream: SystemStream, config: Config, args: Namespace) -> Any:
        """The message that was typed. Raises MagicError for a bare word to a stream of JSON."""
        value, word = json_or_text(args.message), args.message
        serde = config.text(config.stream_key(stream.system, stream.stream, "samza.msg.serde"))
        if serde != "json" or value is not word:
            return value
        remedy = (
            f"--from {word} sends the messages of the variable {word}"
            if _is_variable(self.shell.user_ns, word)
            else f"a text needs quotes in quotes: %stream send {stream} '{json.dumps(word)}'"
        )
        raise MagicError(f"{word} is not JSON, and {stream} holds JSON: {remedy}")

    def _value(self, expression: str) -> Any:
        try:
            return eval(expression, self.shell.user_ns)
        except Exception as error:
            raise MagicError(f"--from {expression}: {type(error).__name__}: {error}") from None

    @contextlib.contextmanager
    def _known_stream(self, stream: SystemStream) -> Iterator[None]:
        try:
            yield
        except ByHandError as error:
            raise MagicError(str(error)) from error.__cause__
        except UnknownStreamError as error:
            if "--partition " in str(error):
                raise MagicError(str(error)) from None  # it is a partition of a stream that is there
            # It may end with a suggestion: did you mean X?
            end = "" if str(error).endswith("?") else "."
            remedy = f"%stream streams create {stream} --partitions N makes it"
            raise MagicError(f"{error}{end} {remedy}") from None


def _is_variable(names: Mapping[str, Any], word: str | None) -> bool:
    """True where a message that is sent as a word is the name of messages."""
    value = names.get(word or "")
    return isinstance(value, (list, tuple, dict)) or hasattr(value, "columns")


def _folded(records: list[dict[str, Any]]) -> Records:
    streams: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        streams.setdefault(record["stream"], []).append(record)
    # The number of messages where it is known: offsets need not be numbers.
    lines = [
        {
            "stream": stream,
            "partitions": len(parts),
            "messages": sum(
                lag_between(part["oldest"], part["upcoming"]) or 0
                for part in parts
                if part["oldest"] is not None
            ),
        }
        for stream, parts in streams.items()
    ]
    return Records(["stream", "partitions", "messages"], lines, right=["partitions", "messages"])
