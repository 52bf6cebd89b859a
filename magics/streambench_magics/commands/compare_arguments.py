"""The arguments of the sub-commands of ``%stream`` that run messages again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compare_commands(
    command: Callable[[str, str], Any], positive: Callable[[str], int], replayed: int
) -> None:
    """Add the sub-commands. ``command`` makes a parser of a name and a description; ``positive`` reads a
    number; ``replayed``: the number of messages without ``--last``."""
    it = command(
        "crash",
        "Simulate a kill -9 where the job stands: what would come again from the last commit, which outputs "
        "would be there twice, and how state would differ. Nothing is changed by it.",
    )
    it.takes(
        "name", metavar="NAME", nargs="?", completes="jobs", help="the job; without it, the one used last"
    )
    it.takes("--everywhere", action="store_true", help="after each message of the history, with a verdict")
    it.takes(
        "--inside-commit",
        action="store_true",
        help="before the commit at this position is done: outputs are out, the checkpoint is not written",
    )
    it = command(
        "compare",
        "Run two tasks, or two configurations, over the same messages, and show the first message at which "
        "they differ, and outputs and state side by side. Both run on copies.",
    )
    it.takes("a", metavar="A", completes="tasks configs", help="a task, FILE.py:Class, or a configuration")
    it.takes(
        "b",
        metavar="B",
        nargs="?",
        completes="tasks configs",
        help="another one; without it, the code that the job runs is compared with A",
    )
    it.takes("--last", metavar="N", type=positive, help=f"over the last N messages of the job ({replayed})")
    it.takes(
        "--over",
        metavar="WHAT",
        completes="streams",
        help="instead over a recording (a file), a stream, or a range of it: log.flights.0@100..200",
    )
    it.takes("--job", metavar="NAME", completes="jobs", help="the job; without it, the one used last")
    it.takes(
        "--attributes", action="store_true",
        help="begin with the attributes of the first message, not with those that init() makes",
    )  # fmt: skip
    it = command(
        "shrink",
        "Find the fewest messages of a recording that still fail, and write them to another recording.",
    )
    it.takes("file", metavar="FILE", help="the recording")
    where = "where to write it (beside the recording: NAME.small, of NAME.capture NAME.small.capture)"
    it.takes("--to", metavar="FILE", help=where)
    it.takes(
        "--task",
        metavar="TASK",
        completes="tasks",
        help="the code to run; without it, the task of the recording",
    )
