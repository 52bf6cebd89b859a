"""The sub-commands of ``%stream``: their arguments, their help, and what completes each argument."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import wrap

from streambench.cli.deploy_options import DeployOptions
from streambench.debug.stopping.breakpoints import KINDS
from streambench.debug.stopping.moment import NAMES
from streambench_magics.commands.command_parser import Parser, number, per_second, positive, seconds

REPLAYED = 500
"""The number of messages that are replayed before a swap, and compared."""

_NAMES = ", ".join(NAMES)

Command = Callable[[str, str], Parser]
"""Adds a sub-command of this name, about which this text says what it does."""


def _jobs(command: Command) -> None:
    it = command(
        "create",
        "Make a job of a task and a configuration; it starts at its first step, run or show. A job of that "
        "name is replaced; with nothing but NAME, by the same one, with its present task and configuration.",
    )
    it.takes("name", "NAME", "the job's name, which owns its checkpoints", completes="jobs tasks")
    about = "a %%%%streamtask, a class or a function; without it, the task of the job's name"
    it.takes("--task", "TASK", about, completes="tasks")
    it.takes_config(
        "a %%%%streamconfig, a variable or a properties file; without it, a log system in ./streambench-data"
    )
    about = "the input streams, in place of task.inputs"
    it.takes("--inputs", "STREAM", about, nargs="+", default=[], completes="streams")
    about = "the memory for going back in time (256; 0: none)"
    it.takes("--history", "MB", about, nargs="?", const=True, type=number)

    about = (
        "Read streams as inputs. A job that is started commits, stops, and continues with them from its "
        "checkpoint."
    )
    _takes_streams(command("attach", about))
    about = "Stop reading streams. A job that is started commits, stops, and continues without them."
    _takes_streams(command("detach", about))

    it = command(
        "show",
        "The live panel. It follows the job until it is stopped or shown again, and stays as a table then. "
        "Space steps it, or pauses what runs; the arrows step back and forward; the strip of choices can be "
        "dragged to another position.",
    )
    it.takes_job().flag("--static", "the table at once")

    it = command(
        "stop", "Commit, close the tasks, release the streams. A later step or run continues from there."
    )
    it.takes_job().flag(
        "--now",
        "end it as a crash would: nothing since the last checkpoint is committed, and outputs that wait for "
        "a commit are dropped. It waits for no message that takes long: its task gets a KeyboardInterrupt. "
        "What a task does that goes on all the same (time.sleep() ends only when it returns) has no effect "
        "any more",
    )

    command(
        "job",
        "A handle for Python code: job = %stream job NAME has .state, .outputs, .metrics, .last and "
        ".session.",
    ).takes_job()


def _takes_streams(it: Parser) -> None:
    about = "the job (the one used last), and the streams as system.stream"
    it.takes("names", "[NAME] STREAM [STREAM ...]", about, nargs="+", completes="jobs streams")


def _move(command: Command) -> None:
    it = command("step", "Process one message, or N, and say which they were and what they did.")
    it.takes_words("[NAME] [N]", "the job (the one used last), and how many messages (1)", nargs="*")
    it.takes(
        "--until",
        "COND",
        "stop before the message for which this is true, which may be the next one; the same step once more "
        "goes on from there. With output, before, after or error: stop just after it",
        completes=NAMES,
    )
    it.flag("--pdb", "debug the task: stop at the first line of its callback")

    it = command(
        "run",
        "Process messages in the background. Wait for it with %stream wait, interrupt it with %stream pause.",
    )
    either = it.takes_job().add_mutually_exclusive_group()
    it.takes(
        "--until",
        "WHEN",
        "caught-up: until all inputs are read to their ends; or an expression: stop before the message for "
        "which it is true (\"message['delay'] > 180\"), with output, before, after or error just after it; "
        "else until paused",
        completes=("caught-up", *NAMES),
        group=either,
    )
    it.takes("--messages", "N", "so many messages", type=positive, group=either)
    it.takes("--speed", "N/s", "at most so many messages a second, to watch it", type=per_second)

    command("pause", "Have it stand still after the message it is at.").takes_job()
    it = command("wait", "Wait until it is paused or ends. Interrupting the cell ends only the waiting.")
    it.takes_job().takes("--timeout", "SECONDS", "wait no longer than this", type=seconds)

    it = command(
        "break",
        "Stop where a condition is true, in steps and runs: %stream break message['delay'] > 180. "
        "Without one, list the breakpoints.",
    )
    it.takes_expression = True
    it.takes("condition", "COND", f"an expression of {_NAMES}", nargs="?", completes=NAMES)
    about = f"{', '.join(KINDS)}: message (the default) stops before the message, the others just after it"
    it.takes("--on", "KIND", about, choices=KINDS, completes=KINDS)
    it.flag("--once", "stop only one time")
    it.takes("--hits", "N", "stop from the N-th time on", type=positive, default=1)
    it.takes("--remove", "ID", "remove a breakpoint", type=number, completes="breakpoints")
    it.takes_job_option()

    it = command("watch", "Show a value after each step. Without NAME=COND, list them with their values.")
    it.takes_expression = True
    it.takes("condition", "NAME=COND", f"a name, and an expression of {_NAMES}", nargs="?")
    it.takes("--remove", "NAME", "show it no longer", completes="watches")
    it.takes_job_option()


def _look(command: Command) -> None:
    it = command("state", "The keys and values of the stores; with --changed, what the last message changed.")
    it.takes("store", "STORE", "one store; without it, all of them", nargs="?", completes="stores")
    it.takes("--key", "K", "one key")
    it.flag("--changed", "what the last message changed, before and after")
    it.takes_job_option()

    it = command("outputs", "The messages that the tasks sent, the newest at the end.").takes_job()
    it.flag("--held", "only those that become visible with the next commit")
    it.takes("--stream", "STREAM", "only those to this stream", completes="streams")
    it.takes("--key", "K", "only those with this key")
    it.takes("--where", "COND", "only those for which this is true: output.message['delay'] > 180")
    it.takes("--last", "N", "how many at most (20)", type=positive, default=20)

    it = command("changed", "List the changes of one key of a store, the newest first, with their messages.")
    about = "the job (the one used last), the store, and the key as text or JSON"
    it.takes_words("[NAME] STORE KEY", about, completes="jobs stores")
    it.takes("--limit", "N", "how many, the newest (20)", type=positive, default=20)

    it = command("metrics", "The metrics of the job and its tasks; in the past, those of the position.")
    it.takes_job().takes("--match", "TEXT", "only those with this text in their name", default="")


def _time(command: Command) -> None:
    it = command(
        "back",
        "Go one message back, or N: state, attributes, offsets and outputs are those of that position. "
        "Streams, stores and checkpoints stay as they are. Where attributes are looked at, the task runs "
        "again on a copy: what it does besides, with files, requests or globals, is done again.",
    )
    it.takes_words("[NAME] [N]", "the job, and how many messages", nargs="*")
    it.takes(
        "--until",
        "COND",
        "back to the last message at which this held, such as \"store['ORD'] > 9\"; with several stores "
        "\"store['airports']['ORD'] > 9\"",
    )

    it = command(
        "forward",
        "Go one message forward, or N, at most to the newest one. It stops at breakpoints, as a step does.",
    )
    it.takes_words("[NAME] [N]", "the job, and how many messages", nargs="*")
    it.takes("--until", "COND", "forward to the next message at which this holds")

    it = command("goto", "Go to a position (the number of messages processed), or behind a message.")
    about = "the job (the one used last), and where to: 1034, or log.flights.0@724"
    it.takes_words("[NAME] POSITION|SSP@OFFSET", about, completes="jobs messages")

    about = "Return from the past to the newest position. What was done in the past is dropped."
    command("live", about).takes_job()

    it = command(
        "diff",
        "Everything that differs between two positions: state, attributes, offsets, and the outputs between.",
    )
    about = "the job (the one used last), and two positions; without the second, the one where it stands"
    it.takes_words("[NAME] A [B]", about)

    command(
        "adopt",
        "Make a branch the truth, from the last commit on: what was done in the past with other code. It "
        "runs up to the newest position first. The history holds it in the place of what was recorded "
        "after its begin. Refused where outputs are out already.",
    ).takes_job()


def _code(command: Command) -> None:
    it = command(
        "swap",
        "Give a live job the code that its task has now (a file is read again); state and position stay. "
        "In the past this begins a branch, whose outputs are held.",
    )
    _takes_swap(it.takes_job())
    it.flag("--undo", "undo the last swap: the former code again")

    it = command(
        "compare",
        "Run two tasks, or two configurations, over the same messages, and show the first message at which "
        "they differ, and outputs and state side by side. Both run on copies.",
    )
    it.takes("a", "A", "a task, FILE.py:Class, or a configuration", completes="tasks configs")
    about = "another one; without it, the code that the job runs is compared with A"
    it.takes("b", "B", about, nargs="?", completes="tasks configs")
    it.takes("--last", "N", f"over the last N messages of the job ({REPLAYED})", type=positive)
    about = "instead over a recording (a file), a stream, or a range of it: log.flights.0@100..200"
    it.takes("--over", "WHAT", about, completes="streams")
    it.takes_job_option()
    about = "begin with the attributes of the first message, not with those that init() makes"
    it.flag("--attributes", about)


def _takes_swap(it: Parser) -> None:
    it.flag("--init", "make the attributes again, by init()")
    it.takes(
        "--replay",
        "N",
        f"run the last N messages through both versions first, and show what differs ({REPLAYED}; 0: none)",
        type=number,
        default=REPLAYED,
    )


def _failures(command: Command) -> None:
    it = command(
        "crash",
        "Simulate a kill -9 where the job stands: what would come again from the last commit, which outputs "
        "would be there twice, and how state would differ. Nothing is changed by it.",
    )
    it.takes_job().flag("--everywhere", "after each message of the history, with a verdict")
    it.flag(
        "--inside-commit",
        "before the commit at this position is done; at least once, its outputs are out then",
    )

    it = command(
        "record",
        "Record a job to a file, until it stops or --stop: its messages in their order, its state at the "
        "begin, windows and commits. It begins with the start, or with the next commit (%stream commit).",
    )
    it.takes_words("[NAME] FILE", "the job, and the file; without them, what is being recorded", nargs="*")
    it.flag("--stop", "end the recording; the job goes on")

    it = command(
        "replay",
        "Open a recording, or the capture of a failure, as a job: it stands before the failing message, else "
        "behind the last one. Step it, go back, swap its code; nothing that it does leaves it.",
    )
    it.takes("file", "FILE", "the recording; the error of a failure names its capture")
    it.takes("name", "NAME", "the job's name (replay)", nargs="?", completes="jobs")
    about = "a %%%%streamtask, a class or file.py:Class; without it, the task of the recorded job"
    it.takes("--task", "TASK", about, completes="tasks")
    it.flag(
        "--recorded-source",
        "run the source text in the recording; it is code, to be run if you trust who made the file",
    )
    it.takes("--to-test", "FILE", "write a pytest file that runs the recording, and open nothing")

    it = command(
        "shrink",
        "Find the fewest messages of a recording that still fail, and write them to another recording.",
    )
    it.takes("file", "FILE", "the recording")
    about = "where to write it (beside the recording: NAME.small, of NAME.capture NAME.small.capture)"
    it.takes("--to", "FILE", about)
    it.takes("--task", "TASK", "the code to run; without it, the task of the recording", completes="tasks")


def _commits(command: Command) -> None:
    command("commit", "Commit all tasks now.").takes_job()

    it = command(
        "checkpoints",
        "How far each task is committed, and how many messages would be processed again after a crash now.",
    )
    it.takes_job().flag("--history", "all the checkpoints that are kept, oldest first")

    it = command(
        "rewind",
        "Go back to a commit, a message or a time. With oldest the stores begin empty, with a commit they go "
        "back to it; with all else they stay as the last checkpoint has them. A job that is started commits "
        "and stops first; one that has failed does not commit, and SSP@OFFSET then leaves out what it had "
        "not committed.",
    )
    it.takes_words(
        "[NAME] WHERE",
        "the job (the one used last), and: oldest, upcoming, a commit of %%stream checkpoints --history "
        "(3.17), SSP@OFFSET or STREAM@timestamp:TIME",
        completes="jobs oldest upcoming commits messages",
    )


def _streams(command: Command) -> None:
    it = command(
        "streams",
        "List streams with their partitions and offsets, create one, or give one more partitions: %stream "
        "streams create STREAM --partitions N, %stream streams grow STREAM --partitions N.",
    )
    about = "a stream (system.stream) or a system; without it, all of them"
    it.takes_words("[create|grow] [STREAM ...]", about, nargs="*", completes="streams")
    about = "with create or grow: how many partitions (create: as configured, else 1)"
    it.takes("--partitions", "N", about, type=positive)
    it.takes_config()

    about = "Send a message, or with --from all those of a variable. Returns when they are durable."
    it = command("send", about).takes_stream()
    about = "JSON; or a word or quoted text, which is sent as it is"
    it.takes("message", "MESSAGE", about, nargs="?")
    it.takes("--key", "KEY", "the message's key")
    it.takes("--key-field", "FIELD", "take the key from this field of each message")
    it.takes("--partition", "N", "the partition; without it, the key decides", type=number)
    it.takes(
        "--from",
        "EXPRESSION",
        "a variable of the notebook (or any expression) instead of MESSAGE: each element of a list, each row "
        "of a DataFrame",
        dest="source",
        completes="variables",
    )
    it.takes_config()

    it = command(
        "peek",
        "Look at messages of a stream, evenly from its partitions. Nothing moves by it. The value is a list "
        "of records.",
    )
    it.takes_stream().takes("--limit", "N", "how many at most (10)", type=positive, default=10)
    it.takes("--partition", "N", "of this partition only", type=number)
    about, places = "oldest (the default), newest, or an offset", ("oldest", "newest")
    it.takes("--from", "PLACE", about, dest="begin", default="oldest", completes=places)
    it.takes_config()

    it = command("dataframe", "A stream as a DataFrame of the active Spark session, which is the value.")
    it.takes_stream().takes("--schema", "SCHEMA", "fields of the messages: 'carrier STRING, delay INT'")
    it.takes("--columns", "COLUMNS", "of key, message, partition, offset, timestamp, headers")
    about = "oldest (the default), upcoming, an offset or timestamp:TIME"
    it.takes("--from", "PLACE", about, dest="begin", completes=("oldest", "upcoming"))
    it.takes("--view", "NAME", "make it a view for spark.sql")
    it.takes_config()


def _elsewhere(command: Command) -> None:
    it = command(
        "export",
        "Write a job as files: its task, its configuration, requirements and a test. streambench run and "
        "deploy take them.",
    )
    about = "the job (the one used last), and the directory"
    it.takes("names", "[NAME] DIR", about, nargs="+", completes="jobs")
    about = "do not run the task, which else runs on some messages of its inputs, in memory, for its test"
    it.flag("--no-run", about)

    it = command(
        "deploy",
        "Run the job on Spark until it has caught up, from its last checkpoint. The one in this notebook is "
        "stopped first, but for a dry run or a backfill.",
    ).takes_job()
    about = "Spark's master (that of the active session; where there is none, local[*])"
    it.takes("--master", "MASTER", about, completes=("local[2]", "local[*]"))
    it.takes_options(DeployOptions)

    it = command("help", "What there is, or all about one sub-command.")
    it.takes("command", "COMMAND", "a sub-command", nargs="?", completes="commands")


def _parsers(group: Callable[[Command], None]) -> dict[str, Parser]:
    made: dict[str, Parser] = {}

    def command(name: str, about: str) -> Parser:
        made[name] = Parser(f"%stream {name}", about)
        return made[name]

    group(command)
    return made


_GROUPS = {
    "jobs": _parsers(_jobs),
    "move": _parsers(_move),
    "look": _parsers(_look),
    "time": _parsers(_time),
    "code": _parsers(_code),
    "failures": _parsers(_failures),
    "commits": _parsers(_commits),
    "streams": _parsers(_streams),
    "elsewhere": _parsers(_elsewhere),
}
"""The sub-commands by what they are for, in the order of the overview."""

PARSERS = {name: parser for group in _GROUPS.values() for name, parser in group.items()}

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
TASK.takes("name", "NAME", "the task's name, and the variable that holds its class", completes="tasks")
TASK.takes("--class", "CLASS", "which class, where the cell holds several tasks", dest="wanted")
TASK.flag("--swap", "give live jobs of this task the new code; see %%%%stream help swap")
_takes_swap(TASK)

CONFIG = Parser(
    "%%streamconfig", "Make a configuration of this cell: lines of key=value, as in a properties file."
)
CONFIG.takes("name", "NAME", "the configuration's name", completes="configs")

_END_OF_GIST = re.compile(r"[.:;](?: |$)")
_WIDTH = 92
"""Characters of a line: so many fit into a JupyterLab of 1,200 pixels."""


def overview() -> str:
    """All sub-commands by what they are for, with the gist of each."""
    lines = ["%stream COMMAND ..."]
    for group, parsers in _GROUPS.items():
        lines += ["", group]
        for name, parser in parsers.items():
            gist = _END_OF_GIST.split(parser.about)[0]
            lines += wrap(f"{name:<12}{gist}", _WIDTH, initial_indent="  ", subsequent_indent=" " * 14)
    return "\n".join(
        [*lines, "", "%stream alone lists the jobs; %stream help COMMAND describes one command."]
    )
