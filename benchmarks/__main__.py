"""``python -m benchmarks`` (in a wheel, ``streambench_benchmarks``): measure, and print each figure with
its aim as soon as it is known."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import typer
from rich.console import Console

from streambench.cli.bench import (
    MESSAGES,
    PARTS,
    ROUNDS,
    Full,
    Json,
    Messages,
    Parts,
    Rounds,
    bench,
    check_parts,
)
from streambench.errors import MissingExtraError, StreambenchError

from .report import Figure, as_json, heading, row

_MODULES = {"spark": "on_spark"}


def main(
    parts: Parts = None, messages: Messages = MESSAGES, rounds: Rounds = ROUNDS, full: Full = False,
    json: Json = None,
) -> None:  # fmt: skip
    """Measure the parts, and print each figure. Raises StreambenchError where a named part cannot be
    measured."""
    check_parts(parts)
    console = Console()
    figures: list[Figure] = []
    modules = {part: _module(part) for part in parts} if parts else dict(_installed(console))
    console.print(heading())
    try:
        for part, module in modules.items():
            options = {"full": full} if part == "latency" else {}
            with (
                tempfile.TemporaryDirectory(prefix="streambench-bench-") as directory,
                console.status(f"measuring: {part}"),
            ):
                try:
                    for figure in module.measure(messages, rounds, Path(directory), **options):
                        figures.append(figure)
                        console.print(row(figure))
                except StreambenchError as error:
                    if parts:
                        raise
                    console.print(f"{part} is not measured: {error}", markup=False)
    finally:  # Ctrl-C leaves what was measured
        if json is not None:
            json.write_bytes(orjson.dumps(as_json(figures), option=orjson.OPT_INDENT_2))


def _installed(console: Console) -> Iterator[tuple[str, Any]]:
    """All parts whose packages are installed; which are left out is told."""
    for part in PARTS:
        try:
            yield part, _module(part)
        except typer.BadParameter as error:
            console.print(f"not measured: {error}", markup=False)


def _module(part: str) -> Any:
    """Imported when it is asked for: where what one part needs is not installed, the others are measured
    all the same."""
    try:
        return importlib.import_module(f".{_MODULES.get(part, part)}", __package__)
    except ModuleNotFoundError as error:
        what = f"{part} needs {error.name}, which is not installed: pip install 'streambench[all]' psutil"
        raise typer.BadParameter(what) from None
    except MissingExtraError as error:
        raise typer.BadParameter(f"{part}: {error}") from None


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=bench.__doc__, context_settings={"help_option_names": ["-h", "--help"]})(main)
    try:
        app(prog_name="streambench bench")
    except StreambenchError as problem:
        sys.exit(f"error: {problem}")
