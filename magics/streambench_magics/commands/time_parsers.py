"""The arguments of the sub-commands that move a job in time, or change its code."""

from __future__ import annotations

from collections.abc import Callable

from streambench_magics.commands.command_parser import Parser, number, positive, takes_job
from streambench_magics.commands.compare_arguments import compare_commands

REPLAYED = 500
"""The number of messages that are replayed before a swap."""


def time_commands(command: Callable[[str, str], Parser]) -> None:
    """The commands that move a job in time."""
    it = command(
        "back",
        "Go one message back, or N: state, attributes, offsets and outputs are those of that position. "
        "Streams, stores and checkpoints stay as they are. Where attributes are looked at, the task runs "
        "again on a copy: what it does besides, with files, requests or globals, is done again.",
    )
    it.takes("what", metavar="[NAME] [N]", nargs="*", completes="jobs", help="the job, and how many messages")
    it.takes(
        "--until",
        metavar="COND",
        help="back to the last message at which this held, such as \"store['ORD'] > 9\"; with several stores "
        "\"store['airports']['ORD'] > 9\"",
    )
    it = command(
        "forward",
        "Go one message forward, or N, at most to the newest one. It stops at breakpoints, as a step does.",
    )
    it.takes("what", metavar="[NAME] [N]", nargs="*", completes="jobs", help="the job, and how many messages")
    it.takes("--until", metavar="COND", help="forward to the next message at which this holds")
    it = command("goto", "Go to a position (the number of messages processed), or behind a message.")
    it.takes(
        "what",
        metavar="[NAME] POSITION|SSP@OFFSET",
        nargs="+",
        completes="jobs messages",
        help="the job (the one used last), and where to: 1034, or log.flights.0@724",
    )
    takes_job(
        command("live", "Return from the past to the newest position. What was done in the past is dropped.")
    )
    takes_job(
        command(
            "adopt",
            "Make a branch the truth, from the last commit on: what was done in the past with other code. It "
            "runs up to the newest position first. The history holds it in the place of what was recorded "
            "after its begin. Refused where outputs are out already.",
        )
    )
    it = takes_job(
        command(
            "swap",
            "Give a live job the code that its task has now (a file is read again); state and position stay. "
            "In the past this begins a branch, whose outputs are held.",
        )
    )
    swap_options(it)
    it.takes("--undo", action="store_true", help="undo the last swap: the former code again")
    compare_commands(command, positive, REPLAYED)
    it = command("changed", "List the changes of one key of a store, the newest first, with their messages.")
    it.takes(
        "what",
        metavar="[NAME] STORE KEY",
        nargs="+",
        completes="jobs stores",
        help="the job (the one used last), the store, and the key as text or JSON",
    )
    it.takes("--limit", metavar="N", type=positive, default=20, help="how many, the newest (20)")
    it = command(
        "diff",
        "Everything that differs between two positions: state, attributes, offsets, and the outputs between.",
    )
    it.takes(
        "what",
        metavar="[NAME] A [B]",
        nargs="+",
        completes="jobs",
        help="the job (the one used last), and two positions; without the second, the one where it stands",
    )


def swap_options(parser: Parser) -> None:
    parser.takes("--init", action="store_true", help="make the attributes again, by init()")
    parser.takes(
        "--replay",
        metavar="N",
        type=number,
        default=REPLAYED,
        help=f"run the last N messages through both versions first, and show what differs ({REPLAYED}; "
        "0: none)",
    )
