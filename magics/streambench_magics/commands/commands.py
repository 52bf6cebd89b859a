"""The sub-commands of ``%stream``: their arguments, their help, and what completes each argument, in one
table."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import wrap

from streambench.cli.deploy_options import DeployOptions
from streambench.debug.stopping.breakpoints import KINDS
from streambench.debug.stopping.moment import NAMES
from streambench_magics.commands.command_parser import (
    Parser,
    number,
    per_second,
    positive,
    seconds,
    takes_config,
    takes_job,
    takes_options,
)
from streambench_magics.commands.record_parsers import record_commands
from streambench_magics.commands.time_parsers import swap_options, time_commands

_NAMES = ", ".join(NAMES)

Command = Callable[[str, str], Parser]
"""Adds a sub-command of this name, about which this text says what it does."""


def _job_commands(command: Command) -> None:
    """The commands that make a job, and that change its inputs."""
    it = command(
        "create",
        "Make a job of a task and a configuration; it starts at its first step, run or show. A job of that "
        "name is replaced; with nothing but NAME, by the same one, with its present task and configuration.",
    )
    it.takes(
        "name", metavar="NAME", completes="jobs tasks", help="the job's name, which owns its checkpoints"
    )
    it.takes(
        "--task",
        metavar="TASK",
        completes="tasks",
        help="a %%%%streamtask, a class or a function; without it, the task of the job's name",
    )
    takes_config(
        it,
        "a %%%%streamconfig, a variable or a properties file; without it, a log system in ./streambench-data",
    )
    it.takes(
        "--inputs",
        metavar="STREAM",
        nargs="+",
        default=[],
        completes="streams",
        help="the input streams, in place of task.inputs",
    )

    it.takes(
        "--history",
        metavar="MB",
        nargs="?",
        const=True,
        type=number,
        help="the memory for going back in time (256; 0: none)",
    )

    for name, about in (
        (
            "attach",
            "Read streams as inputs. A job that is started commits, stops, and continues with them from its "
            "checkpoint.",
        ),
        ("detach", "Stop reading streams. A job that is started commits, stops, and continues without them."),
    ):
        names = "the job (the one used last), and the streams as system.stream"
        command(name, about).takes(
            "names", metavar="[NAME] STREAM [STREAM ...]", nargs="+", completes="jobs streams", help=names
        )


def _stream_commands(command: Command) -> None:
    """The commands that send to streams and look at them."""
    it = command(
        "send", "Send a message, or with --from all those of a variable. Returns when they are durable."
    )
    it.takes("stream", metavar="STREAM", completes="streams", help="the stream, as system.stream")
    it.takes(
        "message", metavar="MESSAGE", nargs="?", help="JSON; or a word or quoted text, which is sent as it is"
    )
    it.takes("--key", metavar="KEY", help="the message's key")
    it.takes("--key-field", metavar="FIELD", help="take the key from this field of each message")
    it.takes("--partition", metavar="N", type=number, help="the partition; without it, the key decides")
    it.takes(
        "--from",
        metavar="EXPRESSION",
        dest="source",
        completes="variables",
        help="a variable of the notebook (or any expression) instead of MESSAGE: each element of a list, "
        "each row of a DataFrame",
    )
    takes_config(it)

    it = command(
        "peek",
        "Look at messages of a stream, evenly from its partitions. Nothing moves by it. The value is a list "
        "of records.",
    )
    it.takes("stream", metavar="STREAM", completes="streams", help="the stream, as system.stream")
    it.takes("--limit", metavar="N", type=positive, default=10, help="how many at most (10)")
    it.takes("--partition", metavar="N", type=number, help="of this partition only")
    it.takes(
        "--from",
        metavar="PLACE",
        dest="begin",
        default="oldest",
        completes=("oldest", "newest"),
        help="oldest (the default), newest, or an offset",
    )
    takes_config(it)

    it = command("dataframe", "A stream as a DataFrame of the active Spark session, which is the value.")
    it.takes("stream", metavar="STREAM", completes="streams", help="the stream, as system.stream")
    it.takes("--schema", metavar="SCHEMA", help="fields of the messages: 'carrier STRING, delay INT'")
    it.takes("--columns", metavar="COLUMNS", help="of key, message, partition, offset, timestamp, headers")
    where = "oldest (the default), upcoming, an offset or timestamp:TIME"
    it.takes("--from", metavar="PLACE", dest="begin", completes=("oldest", "upcoming"), help=where)
    it.takes("--view", metavar="NAME", help="make it a view for spark.sql")
    takes_config(it)

    it = command(
        "streams",
        "List streams with their partitions and offsets, or create one: %stream streams create STREAM "
        "--partitions N.",
    )
    it.takes(
        "what",
        metavar="[create] [STREAM ...]",
        nargs="*",
        completes="streams",
        help="a stream (system.stream) or a system; without it, all of them",
    )
    it.takes(
        "--partitions",
        metavar="N",
        type=positive,
        help="with create: how many partitions (as configured, else 1)",
    )
    takes_config(it)


def _moving_commands(command: Command) -> None:
    """The commands that process messages."""
    it = command("step", "Process one message, or N, and say which they were and what they did.")
    it.takes(
        "what",
        metavar="[NAME] [N]",
        nargs="*",
        completes="jobs",
        help="the job (the one used last), and how many messages (1)",
    )
    it.takes(
        "--until",
        metavar="COND",
        completes=NAMES,
        help="stop before the message for which this is true, which may be the next one; the same step "
        "once more goes on from there. With output, before, after or error: stop just after it",
    )
    it.takes("--pdb", action="store_true", help="debug the task: stop at the first line of its callback")

    it = takes_job(
        command(
            "run",
            "Process messages in the background. Wait for it with %stream wait, interrupt it with %stream "
            "pause.",
        )
    )
    group = it.add_mutually_exclusive_group()
    group.add_argument(
        "--until",
        metavar="WHEN",
        help="caught-up: until all inputs are read to their ends; or an expression: stop before the "
        "message for which it is true (\"message['delay'] > 180\"), with output, before, after or error just "
        "after it; else until paused",
    )
    group.add_argument("--messages", metavar="N", type=positive, help="so many messages")
    it.takes("--speed", metavar="N/s", type=per_second, help="at most so many messages a second, to watch it")
    it.completes["until"] = ("caught-up", *NAMES)


def _condition_commands(command: Command) -> None:
    """The commands of breakpoints and watches."""
    it = command(
        "break",
        "Stop where a condition is true, in steps and runs: %stream break message['delay'] > 180. "
        "Without one, list the breakpoints.",
    )
    it.takes_expression = True
    it.takes("condition", metavar="COND", nargs="?", completes=NAMES, help=f"an expression of {_NAMES}")
    it.takes(
        "--on",
        metavar="KIND",
        choices=KINDS,
        completes=KINDS,
        help=f"{', '.join(KINDS)}: message (the default) stops before the message, the others just after it",
    )
    it.takes("--once", action="store_true", help="stop only one time")
    it.takes("--hits", metavar="N", type=positive, default=1, help="stop from the N-th time on")
    it.takes("--remove", metavar="ID", type=number, completes="breakpoints", help="remove a breakpoint")
    it.takes("--job", metavar="NAME", completes="jobs", help="the job; without it, the one used last")

    it = command("watch", "Show a value after each step. Without NAME=COND, list them with their values.")
    it.takes_expression = True
    it.takes("condition", metavar="NAME=COND", nargs="?", help=f"a name, and an expression of {_NAMES}")
    it.takes("--remove", metavar="NAME", completes="watches", help="show it no longer")
    it.takes("--job", metavar="NAME", completes="jobs", help="the job; without it, the one used last")


def _looking_commands(command: Command) -> None:
    """The commands that look at state and outputs."""
    it = command("state", "The keys and values of the stores; with --changed, what the last message changed.")
    it.takes(
        "store", metavar="STORE", nargs="?", completes="stores", help="one store; without it, all of them"
    )
    it.takes("--key", metavar="K", help="one key")
    it.takes("--changed", action="store_true", help="what the last message changed, before and after")
    it.takes("--job", metavar="NAME", completes="jobs", help="the job; without it, the one used last")

    it = takes_job(command("outputs", "The messages that the tasks sent, the newest at the end."))
    it.takes("--held", action="store_true", help="only those that become visible with the next commit")
    it.takes("--stream", metavar="STREAM", completes="streams", help="only those to this stream")
    it.takes("--key", metavar="K", help="only those with this key")
    it.takes(
        "--where", metavar="COND", help="only those for which this is true: output.message['delay'] > 180"
    )
    it.takes("--last", metavar="N", type=positive, default=20, help="how many at most (20)")

    it = takes_job(
        command("metrics", "The metrics of the job and its tasks; in the past, those of the position.")
    )
    it.takes("--match", metavar="TEXT", default="", help="only those with this text in their name")

    takes_job(
        command(
            "job",
            "A handle for Python code: job = %stream job NAME has .state, .outputs, .metrics, .last and "
            ".session.",
        )
    )


def _running_commands(command: Command) -> None:
    """The commands that wait for a job, stop it and show it."""
    it = takes_job(
        command("wait", "Wait until it is paused or ends. Interrupting the cell ends only the waiting.")
    )
    it.takes("--timeout", metavar="SECONDS", type=seconds, help="wait no longer than this")
    takes_job(command("pause", "Have it stand still after the message it is at."))
    it = takes_job(
        command(
            "stop", "Commit, close the tasks, release the streams. A later step or run continues from there."
        )
    )
    it.takes(
        "--now",
        action="store_true",
        help="end it as a crash would: nothing since the last checkpoint is committed, and outputs that wait "
        "for a commit are dropped. It waits for no message that takes long: its task gets a "
        "KeyboardInterrupt. What a task does that goes on all the same (time.sleep() ends only when it "
        "returns) has no effect any more",
    )
    it = takes_job(
        command(
            "show",
            "The live panel. It follows the job until it is stopped or shown again, and stays as a table "
            "then. Space steps it, or pauses what runs; the arrows step back and forward; the strip of "
            "choices can be dragged to another position.",
        )
    )
    it.takes("--static", action="store_true", help="the table at once")


def _committing_commands(command: Command) -> None:
    """The commands that write a job, its commits and its rewinds."""
    it = command(
        "export",
        "Write a job as files: its task, its configuration, requirements and a test. streambench run and "
        "deploy take them.",
    )
    it.takes(
        "names",
        metavar="[NAME] DIR",
        nargs="+",
        completes="jobs",
        help="the job (the one used last), and the directory",
    )
    it.takes(
        "--no-run",
        action="store_true",
        help="do not run the task, which else runs on some messages of its inputs, in memory, for its test",
    )
    takes_job(command("commit", "Commit all tasks now."))
    it = takes_job(
        command(
            "checkpoints",
            "How far each task is committed, and how many messages would be processed again after a crash "
            "now.",
        )
    )
    it.takes("--history", action="store_true", help="all the checkpoints that are kept, oldest first")

    it = command(
        "rewind",
        "Go back to a commit, a message or a time. With oldest the stores begin empty, with a commit they go "
        "back to it; with all else they stay as the last checkpoint has them. A job that is started commits "
        "and stops first; one that has failed does not commit, and SSP@OFFSET then leaves out what it had "
        "not committed.",
    )
    it.takes(
        "what",
        metavar="[NAME] WHERE",
        nargs="+",
        completes="jobs oldest upcoming commits messages",
        help="the job (the one used last), and: oldest, upcoming, a commit of %%stream checkpoints --history "
        "(3.17), SSP@OFFSET or STREAM@timestamp:TIME",
    )


def _other_commands(command: Command) -> None:
    """The commands of Spark and of help."""
    it = command(
        "deploy",
        "Run the job on Spark until it has caught up, from its last checkpoint. The one in this notebook is "
        "stopped first, but for a dry run or a backfill.",
    )
    takes_job(it)
    it.takes(
        "--master",
        metavar="MASTER",
        completes=("local[2]", "local[*]"),
        help="Spark's master (that of the active session; where there is none, local[*])",
    )
    takes_options(it, DeployOptions)

    it = command("help", "What there is, or all about one sub-command.")
    it.takes("command", metavar="COMMAND", nargs="?", completes="commands", help="a sub-command")


def _parsers() -> dict[str, Parser]:
    made: dict[str, Parser] = {}

    def command(name: str, about: str) -> Parser:
        made[name] = Parser(f"%stream {name}", about)
        return made[name]

    for group in (
        _job_commands, _stream_commands, _moving_commands, _condition_commands, _looking_commands,
        _running_commands, _committing_commands, time_commands, record_commands, _other_commands,
    ):  # fmt: skip
        group(command)
    return made


PARSERS = _parsers()

TASK = Parser(
    "%%streamtask",
    "Make a task of this cell: of its class with a process method, or of functions process, init, window, "
    "close.",
    epilog="""\
Functions have no self. What belongs to one task (there is one per partition) they keep in its context, which
each of them may take as its last parameter: process(envelope, collector, coordinator, context),
window(collector, coordinator, context), close(context).

    def init(context):
        context.user.seen = 0

    def process(envelope, collector, coordinator, context):
        context.user.seen += 1
        counts = context.store("counts")
        counts.put(envelope.key, (counts.get(envelope.key) or 0) + 1)
        collector.send("log.seen", context.user.seen, key=envelope.key)

A global would be shared by all tasks, and the last init() would win.""",
)
TASK.takes(
    "name", metavar="NAME", completes="tasks", help="the task's name, and the variable that holds its class"
)
TASK.takes("--class", metavar="CLASS", dest="wanted", help="which class, where the cell holds several tasks")

TASK.takes(
    "--swap", action="store_true", help="give live jobs of this task the new code; see %%%%stream help swap"
)
swap_options(TASK)

CONFIG = Parser(
    "%%streamconfig", "Make a configuration of this cell: lines of key=value, as in a properties file."
)
CONFIG.takes("name", metavar="NAME", completes="configs", help="the configuration's name")


_GROUPS = {
    "jobs": "create attach detach show stop job",
    "move": "step run pause wait break watch",
    "look": "state outputs changed metrics",
    "time": "back forward goto live diff adopt",
    "code": "swap compare",
    "failures": "crash record replay shrink",
    "commits": "commit checkpoints rewind",
    "streams": "streams send peek dataframe",
    "elsewhere": "export deploy help",
}
"""The sub-commands by what they are for, in the order of the overview."""

_END_OF_GIST = re.compile(r"[.:;](?: |$)")
_WIDTH = 92
"""Characters of a line: so many fit into a JupyterLab of 1,200 pixels."""


def overview() -> str:
    """All sub-commands by what they are for, with the gist of each."""
    lines = ["%stream COMMAND ..."]
    for group, names in _GROUPS.items():
        lines += ["", group]
        for name in names.split():
            gist = _END_OF_GIST.split(PARSERS[name].about)[0]
            lines += wrap(f"{name:<12}{gist}", _WIDTH, initial_indent="  ", subsequent_indent=" " * 14)
    return "\n".join(
        [*lines, "", "%stream alone lists the jobs; %stream help COMMAND describes one command."]
    )
