"""The parser of the arguments of a magic, and the arguments that several sub-commands take."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import shlex
from collections.abc import Iterable
from typing import Any, NoReturn

from msgspec import Struct

from streambench.cli.option_groups import option_fields
from streambench.suggestions import suggest
from streambench_magics.commands.typed_condition import condition_and_words
from streambench_magics.errors import MagicError

_WIDTH = 110
_UNTIL = re.compile(r"(?:^|(?<=\s))(--until|--where)(?:=|\s+|$)")
_OPTION = re.compile(r"\s(--[a-z]+)(?:\s+([^\s-]\S*))?(?=\s|$)")
_JSON = re.compile(r"""(?=[{\[])|(?:[^\s'"]+|'[^']*'|"(?:\\.|[^"\\])*"|\s+(?![\s{\[]))*+\s+(?=[{\[])""")
"""The text before the first object or array that is not in quotes."""

_BYTES = re.compile(r"(?<!\S)b'(?:[^'\\]|\\.)*'(?!\S)")
"""Bytes as Python writes them, which keep their quotes."""

_WHICH_JOB = "the job; without it, the one used last"
_WHICH_CONFIG = "what says where the stream is; without it, the job's, or the one that knows the system"
_UNRECOGNIZED = re.compile(r"unrecognized arguments: (--\S+)")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Writes several words of one argument once, as its metavar has them."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if not action.option_strings and action.nargs in ("+", "*"):
            return str(action.metavar)
        return super()._format_args(action, default_metavar)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises MagicError, and knows what completes each argument (``completes``: jobs,
    tasks, or the values)."""

    def __init__(self, command: str, about: str, **kwargs: Any) -> None:
        super().__init__(
            prog=command.lstrip("%"),
            description=about,
            add_help=False,
            allow_abbrev=False,
            formatter_class=lambda prog: _Formatter(
                prog, width=_WIDTH, max_help_position=32
            ),
            **kwargs,
        )
        self.about = about
        self._mark = command[: len(command) - len(command.lstrip("%"))]
        self.completes: dict[str, str | tuple[str, ...]] = {}
        self.takes_expression = False

    def takes(
        self,
        name: str,
        metavar: str | None,
        help: str,
        *,
        completes: str | tuple[str, ...] = (),
        group: Any = None,
        **kwargs: Any,
    ) -> Parser:
        """Add an argument with a value. ``completes``: what completes it; ``group``: of the parser, that it
        belongs to; ``kwargs``: as for ``add_argument``."""
        action = (group or self).add_argument(name, metavar=metavar, help=help, **kwargs)
        self.completes[action.dest] = completes
        return self

    def flag(self, name: str, help: str) -> Parser:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=help)
        return self

    def takes_words(
        self, metavar: str, help: str, *, nargs: str = "+", completes: str = "jobs"
    ) -> Parser:
        """Add ``what``: the words of a line that belong to no option."""
        return self.takes("what", metavar, help, nargs=nargs, completes=completes)

    def takes_job(self) -> Parser:
        return self.takes("name", "NAME", _WHICH_JOB, nargs="?", completes="jobs")

    def takes_job_option(self) -> Parser:
        """Add ``--job``, where the words of a line are something else."""
        return self.takes("--job", "NAME", _WHICH_JOB, completes="jobs")

    def takes_stream(self) -> Parser:
        return self.takes("stream", "STREAM", "the stream, as system.stream", completes="streams")

    def takes_config(self, help: str = _WHICH_CONFIG) -> Parser:
        return self.takes("--config", "CONFIG", help, completes="configs")

    def takes_options(self, options: type[Struct]) -> None:
        """Add the options of a group of the command line, with their help."""
        for each in option_fields(options):
            option, text = each.option, each.option.help.rstrip(".")
            help = f"{text[0].lower()}{text[1:]}"
            if each.type is bool:
                self.add_argument(each.flag, dest=each.name, action="store_true", help=help)
                continue
            default = option.shown or each.default
            self.takes(
                each.flag,
                option.metavar,
                f"{help} ({default})" if default else help,
                dest=each.name,
                default=each.default,
                completes=each.choices or option.completes,
                choices=each.choices or None,
                type=positive if each.type is int else str,
                action="append" if each.repeats else "store",
            )

    def words(self, line: str) -> list[str]:
        """The words of a line. Where an expression is taken, all but options is one word, quotes included.
        Raises MagicError."""
        if not self.takes_expression:
            return self._with_condition(line) or split_words(line)
        flags = {name: each.nargs == 0 for each in self._actions for name in each.option_strings}
        options: list[str] = []

        def take(found: re.Match[str]) -> str:
            name, value = found[1], found[2]
            if name not in flags:
                return found[0]
            options.append(name)
            if flags[name]:
                return f" {value or ''}"
            options.extend([value] if value else [])
            return " "

        text = _OPTION.sub(take, f" {line}").strip()
        if text[:1] in ("'", '"') and len(whole := _split(text)) == 1 and text[-1] == text[0]:
            text = whole[0]
        return [*options, *(["--", text] if text else [])]

    def _with_condition(self, line: str) -> list[str]:
        """The words of a line with a condition behind ``--until`` or ``--where``; none where there is no
        condition. It ends at the next option."""
        found = _UNTIL.search(line)
        if found is None or found[1] not in self._option_string_actions:
            return []
        text, behind = line[found.end() :], ""
        following = [
            each.start()
            for each in re.finditer(r"\s--?[a-z]+", text)
            if each.group().strip() in self._option_string_actions
        ]
        if following:
            text, behind = text[: following[0]], text[following[0] :]
        condition, others = condition_and_words(text.strip())
        # One word with its option: it may begin with a hyphen.
        option = f"{found[1]}={condition}" if condition else found[1]
        return [*split_words(line[: found.start()]), *others, *split_words(behind), option]

    def error(self, message: str) -> NoReturn:
        wrong = _UNRECOGNIZED.match(message)
        similar = suggest(wrong[1], self._option_string_actions) if wrong is not None else ""
        raise MagicError(f"{message}{f' ({similar})' if similar else ''}; {self.usage_line()}")

    def usage_line(self) -> str:
        """One line: how it is written."""
        return self._marked(" ".join(self.format_usage().split()))

    def full_help(self) -> str:
        """Its usage, and what each argument means."""
        return self._marked(self.format_help().strip())

    def _marked(self, text: str) -> str:
        """With the percent signs of a magic, which argparse would take for its own."""
        return text.replace("usage: ", f"usage: {self._mark}", 1)


def stream_names(words: Iterable[str]) -> list[str]:
    """The streams of a line, with spaces or, as in ``task.inputs``, commas between them."""
    return [name for word in words for name in word.split(",") if name]


def split_words(line: str) -> list[str]:
    """A line split as a shell would. A JSON object or array stays one word as it is, blanks and quotes
    included. Raises MagicError."""
    found = _JSON.match(line)
    if found is None:
        return _split(line)
    start = found.end()
    try:
        _, end = json.JSONDecoder().raw_decode(line, start)
    except json.JSONDecodeError as error:
        rest = line[error.pos : error.pos + 10]
        raise MagicError(
            f"this is not JSON: {error.msg} at {repr(rest) if rest else 'its end'}; names and texts need "
            "double quotes. "
            "A message in a variable is sent with --from VARIABLE"
        ) from None
    # What goes on without a blank is an expression that begins like JSON.
    end += len(re.split(r"\s", line[end:], maxsplit=1)[0])
    return [*_split(line[:start]), line[start:end], *_split(line[end:])]


def _split(line: str) -> list[str]:
    if '"' not in line:
        line = _BYTES.sub(lambda found: shlex.quote(found[0]), line)
    try:
        return shlex.split(line)
    except ValueError as error:
        raise MagicError(f"{str(error).lower()} in: {line.strip()}") from None


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or more")
    return int(text)


def number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number")
    return int(text)


def per_second(text: str) -> float:
    try:
        found = float(text.removesuffix("/s"))
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of messages a second: write 5/s")
    return found


def seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if (number := float(text)) >= 0:
            return number
    raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")

