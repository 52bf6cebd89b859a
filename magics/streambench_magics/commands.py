"""The sub-commands of ``%stream``: their arguments, their help, and what completes each argument, in one table."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from typing import Any, NoReturn

from streambench_magics.errors import MagicError

_WIDTH = 110


class Parser(argparse.ArgumentParser):
    """An argument parser that raises MagicError, and knows what completes each argument (``completes``: jobs, tasks, or the values)."""

    def __init__(self, command: str, about: str, **kwargs: Any) -> None:
        super().__init__(
            prog=command.lstrip("%"), description=about, add_help=False, allow_abbrev=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=_WIDTH, max_help_position=32), **kwargs,
        )  # fmt: skip
        self.about = about
        self._mark = command[: len(command) - len(command.lstrip("%"))]
        self.completes: dict[str, str | tuple[str, ...]] = {}

    def takes(self, *names: str, completes: str | tuple[str, ...] = (), **kwargs: Any) -> Parser:
        """``add_argument``, with what completes it."""
        action = self.add_argument(*names, **kwargs)
        self.completes[action.dest] = completes
        return self

    def error(self, message: str) -> NoReturn:
        raise MagicError(f"{message}; {self.usage_line()}")

    def usage_line(self) -> str:
        """One line: how it is written."""
        return self._marked(" ".join(self.format_usage().split()))

    def full_help(self) -> str:
        """How it is written, and what each argument means."""
        return self._marked(self.format_help().strip())

    def _marked(self, text: str) -> str:
        """With the percent signs of a magic, which argparse would take for its own."""
        return text.replace("usage: ", f"usage: {self._mark}", 1)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or more")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number")
    return int(text)


def _until(text: str) -> str:
    if text != "caught-up":
        raise argparse.ArgumentTypeError(f"'{text}'? Give caught-up, or --messages with a number")
    return text


def _job(parser: Parser, *, needed: bool = False) -> Parser:
    if needed:
        return parser.takes("name", metavar="NAME", completes="jobs", help="the job")
    return parser.takes("name", metavar="NAME", nargs="?", completes="jobs", help="the job; without it, the one used last")


def _config(parser: Parser, why: str = "what says where the stream is; without it, the job's, or the one that knows the system") -> Parser:
    return parser.takes("--config", metavar="CONFIG", completes="configs", help=why)


def _parsers() -> dict[str, Parser]:
    made: dict[str, Parser] = {}

    def command(name: str, about: str) -> Parser:
        made[name] = Parser(f"%stream {name}", about)
        return made[name]

    it = command(
        "create", "Make a job of a task and a configuration; it starts at its first step, run or show. A job of that name is replaced."
    )
    it.takes("name", metavar="NAME", completes="jobs tasks", help="the job's name, which owns its checkpoints")
    it.takes(
        "--task", metavar="TASK", completes="tasks", help="a %%%%streamtask, a class or a function; without it, the task of the job's name"
    )
    _config(it, "a %%%%streamconfig, a variable or a properties file; without it, a log system in ./streambench-data")
    it.takes("--inputs", metavar="STREAM", nargs="+", default=[], completes="streams", help="the input streams, in place of task.inputs")

    for name, about in (
        ("attach", "Read streams as inputs. A job that is started commits, stops, and goes on with them from its checkpoint."),
        ("detach", "Read streams no longer. A job that is started commits, stops, and goes on without them."),
    ):
        names = "the job (the one used last), and the streams as system.stream"
        command(name, about).takes("names", metavar="[NAME] STREAM", nargs="+", completes="jobs streams", help=names)

    it = command("send", "Send a message, or with --from all those of a variable. Returns when they are durable.")
    it.takes("stream", metavar="STREAM", completes="streams", help="the stream, as system.stream")
    it.takes("message", metavar="MESSAGE", nargs="?", help="JSON; or a word or quoted text, which is sent as it is")
    it.takes("--key", metavar="KEY", help="the message's key")
    it.takes("--key-field", metavar="FIELD", help="take the key from this field of each message")
    it.takes("--partition", metavar="N", type=_number, help="the partition; without it, the key decides")
    it.takes(
        "--from",
        metavar="EXPRESSION",
        dest="source",
        completes="variables",
        help="a variable of the notebook (or any expression) instead of MESSAGE: each element of a list, each row of a DataFrame",
    )
    _config(it)

    it = command("peek", "Look at messages of a stream, evenly from its partitions. Nothing moves by it. The value is a list of records.")
    it.takes("stream", metavar="STREAM", completes="streams", help="the stream, as system.stream")
    it.takes("--limit", metavar="N", type=_positive, default=10, help="how many at most (10)")
    it.takes("--partition", metavar="N", type=_number, help="of this partition only")
    it.takes(
        "--from",
        metavar="PLACE",
        dest="begin",
        default="oldest",
        completes=("oldest", "newest"),
        help="oldest (the default), newest, or an offset",
    )
    _config(it)

    it = command("streams", "List streams with their partitions and offsets, or create one: %stream streams create STREAM --partitions N.")
    it.takes(
        "what",
        metavar="[create] STREAM",
        nargs="*",
        completes="streams",
        help="a stream (system.stream) or a system; without it, all of them",
    )
    it.takes("--partitions", metavar="N", type=_positive, help="with create: how many partitions (as configured, else 1)")
    _config(it)

    it = command("step", "Process one message, or N, and say which they were.")
    it.takes("what", metavar="[NAME] [N]", nargs="*", completes="jobs", help="the job (the one used last), and how many messages (1)")

    it = _job(command("run", "Process messages in the background. Wait for it with %stream wait, interrupt it with %stream pause."))
    group = it.add_mutually_exclusive_group()
    group.add_argument("--until", metavar="WHEN", type=_until, help="caught-up: until all inputs are read to their ends; else until paused")
    group.add_argument("--messages", metavar="N", type=_positive, help="so many messages")
    it.completes["until"] = ("caught-up",)

    it = _job(command("wait", "Wait until it stands still. Interrupting the cell ends the waiting; the job goes on."))
    it.takes("--timeout", metavar="SECONDS", type=float, help="wait no longer than this")
    _job(command("pause", "Have it stand still after the message it is at."))
    it = _job(command("stop", "Commit, close the tasks, let go of the streams. A later step or run goes on from there."))
    it.takes(
        "--now",
        action="store_true",
        help="wait for no message that takes long: its task gets a KeyboardInterrupt, and nothing since the last checkpoint is committed. "
        "What a task does that goes on all the same (time.sleep() ends only when it returns) has no effect any more",
    )
    it = _job(command("show", "The live panel. It follows the job until it is stopped or shown again, and stays as a table then."))
    it.takes("--static", action="store_true", help="the table at once")
    _job(command("commit", "Commit all tasks now."))
    it = _job(command("checkpoints", "How far each task is committed, and how many messages would be processed again after a crash now."))
    it.takes("--history", action="store_true", help="all the checkpoints that are kept, oldest first")

    it = command(
        "deploy", "Run the job on Spark until it has caught up, from its last checkpoint. The one in this notebook is stopped first."
    )
    _job(it)
    it.takes("--master", metavar="MASTER", default="local[*]", completes=("local[2]", "local[*]"), help="Spark's master (local[*])")

    it = command("help", "What there is, or all about one sub-command.")
    it.takes("command", metavar="COMMAND", nargs="?", completes="commands", help="a sub-command")
    return made


PARSERS = _parsers()

TASK = Parser("%%streamtask", "Make a task of this cell: of its class with a process method, or of functions process, init, window, close.")
TASK.takes("name", metavar="NAME", completes="tasks", help="the task's name, and the variable that holds its class")
TASK.takes("--class", metavar="CLASS", dest="wanted", help="which class, where the cell holds several tasks")

CONFIG = Parser("%%streamconfig", "Make a configuration of this cell: lines of key=value, as in a properties file.")
CONFIG.takes("name", metavar="NAME", completes="configs", help="the configuration's name")


def words(line: str) -> list[str]:
    """A line split as a shell would. A JSON object or array stays one word as it is, blanks and quotes included. Raises MagicError."""
    found = re.search(r"(?:^|\s)(?=[{\[])", line)
    if found is None:
        return _split(line)
    start = found.end()
    try:
        _, end = json.JSONDecoder().raw_decode(line, start)
    except json.JSONDecodeError as error:
        raise MagicError(
            f"this is not JSON: {error.msg} at {line[error.pos : error.pos + 10]!r}; names and texts need double quotes. "
            "A message in a variable is sent with --from VARIABLE"
        ) from None
    # What goes on without a blank is an expression that begins like JSON.
    end += len(re.split(r"\s", line[end:], maxsplit=1)[0])
    return [*_split(line[:start]), line[start:end], *_split(line[end:])]


def overview() -> str:
    """All sub-commands with a line about each."""
    lines = [f"  {name:<12}{parser.about}" for name, parser in PARSERS.items()]
    return "\n".join(
        ["%stream COMMAND ...", "", *lines, "", "%stream alone lists the jobs; %stream help COMMAND tells all about one command."]
    )


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise MagicError(f"{str(error).lower()} in: {line.strip()}") from None
