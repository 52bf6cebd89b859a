"""``streambench bench``: the measurements behind docs/figures.md."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import streambench
from streambench.cli.job import complete_of
from streambench.errors import StreambenchError

_IN_WHEELS = "streambench_benchmarks"

PARTS = (
    "container",
    "batches",
    "metrics",
    "history",
    "debugger",
    "panel",
    "partitions",
    "log",
    "network",
    "webhook",
    "commit",
    "latency",
    "stores",
    "kafka",
    "processes",
    "spark",
    "frames",
    "amqp",
)
"""The names of the benchmarks, in their order."""

MESSAGES = 500_000
ROUNDS = 5

Parts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PART]...",
        help=f"What to measure: {', '.join(PARTS)}. Default: all of it.",
        show_default=False,
        autocompletion=complete_of(*PARTS),
    ),
]
Messages = Annotated[int, typer.Option(metavar="N", min=12_000, help="How many messages each run has.")]
Rounds = Annotated[int, typer.Option(metavar="N", min=1, help="How often each is run; the best counts.")]
Full = Annotated[
    bool, typer.Option("--full", help="Latency: let the stream grow to 1 GB, not only to 10 MB.")
]
Json = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the figures to this file, too.", show_default=False)
]


def bench(
    parts: Parts = None, messages: Messages = MESSAGES, rounds: Rounds = ROUNDS, full: Full = False,
    json: Json = None,
) -> None:  # fmt: skip
    """Measure streambench against bare Python on this machine, as ratios of runs that take turns in one
    process.

    Examples:

        streambench bench

        streambench bench log stores --rounds 3
    """
    check_parts(parts)
    checkout = Path(streambench.__file__).resolve().parent.parent
    module, environment = "benchmarks", dict(os.environ)
    if (checkout / "benchmarks" / "__main__.py").is_file():
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(checkout), os.environ.get("PYTHONPATH")])
        )
    elif importlib.util.find_spec(_IN_WHEELS) is not None:
        module = _IN_WHEELS
    else:
        raise StreambenchError(
            f"there are no benchmarks beside {checkout / 'streambench'}: install streambench again"
        )
    arguments = [*(parts or []), "--messages", str(messages), "--rounds", str(rounds)]
    if full:
        arguments.append("--full")
    if json is not None:
        arguments += ["--json", str(json)]
    # -P: what is called benchmarks in the working directory is another's.
    done = subprocess.run([sys.executable, "-P", "-m", module, *arguments], env=environment, check=False)
    if done.returncode:
        raise typer.Exit(1 if done.returncode != 2 else 2)


def check_parts(parts: list[str] | None) -> None:
    """Raise BadParameter at the first name that is no benchmark."""
    unknown = next((part for part in parts or [] if part not in PARTS), None)
    if unknown is not None:
        raise typer.BadParameter(f"there is no {unknown}; there are {', '.join(PARTS)}")
