"""The arguments of the sub-commands that record and replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def record_commands(command: Callable[[str, str], Any]) -> None:
    """Add the sub-commands."""
    it = command(
        "record",
        "Record a job to a file, until it stops or --stop: its messages in their order, its state at the "
        "begin, windows and commits. It begins with the start, or with the next commit (%stream commit).",
    )
    it.takes(
        "what", metavar="[NAME] FILE", nargs="*", completes="jobs",
        help="the job, and the file; without them, what is being recorded",
    )  # fmt: skip
    it.takes("--stop", action="store_true", help="end the recording; the job goes on")

    it = command(
        "replay",
        "Open a recording, or the capture of a failure, as a job: it stands before the failing message, else "
        "behind the last one. Step it, go back, swap its code; nothing that it does leaves it.",
    )
    it.takes("file", metavar="FILE", help="the recording; the error of a failure names its capture")
    it.takes("name", metavar="NAME", nargs="?", completes="jobs", help="the job's name (replay)")
    it.takes(
        "--task", metavar="TASK", completes="tasks",
        help="a %%%%streamtask, a class or file.py:Class; without it, the task of the recorded job",
    )  # fmt: skip
    it.takes(
        "--recorded-source", action="store_true",
        help="run the source text in the recording; it is code, to be run if you trust who made the file",
    )  # fmt: skip
    it.takes(
        "--to-test", metavar="FILE", help="write a pytest file that runs the recording, and open nothing"
    )
