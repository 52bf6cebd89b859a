"""The option of all commands that would end what runs of a job."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from streambench.cli.option_groups import Option


class RunningOption(Struct):
    """The answer to a job that runs already."""

    if_running: Annotated[
        Literal["refuse", "take-over"],
        Option(
            metavar="refuse|take-over",
            help="Where this runs already: refuse, or end that at its last commit.",
        ),
    ] = "refuse"
