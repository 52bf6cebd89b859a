"""``streambench bench``: the measurements behind the figures of the README. They are part of the checkout, not of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

import streambench
from streambench.errors import StreambenchError


def add_to(app: typer.Typer) -> None:
    app.command(name="bench", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(bench)


def bench(context: typer.Context) -> None:
    """Measure: throughput, latency, start-up. Everything behind "bench" goes to the benchmarks; "bench --help" lists what they take.

    Examples:

        streambench bench

        streambench bench --help
    """
    checkout = Path(streambench.__file__).resolve().parent.parent
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        raise StreambenchError(f"there are no benchmarks in {checkout}: they come with the checkout of the project, not with the package")
    done = subprocess.run([sys.executable, "-m", "benchmarks", *context.args], cwd=checkout, check=False)
    if done.returncode:
        raise typer.Exit(1 if done.returncode != 2 else 2)
