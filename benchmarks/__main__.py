"""``python -m benchmarks``: measure, and print all figures with their aims."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from benchmarks import amqp, batches, commit, container, kafka, latency, log, metrics, network, on_spark, partitions, stores, webhook
from benchmarks.report import Figure, as_json, table

_PARTS = {
    "container": container.measure,
    "batches": batches.measure,
    "metrics": metrics.measure,
    "partitions": partitions.measure,
    "log": log.measure,
    "network": network.measure,
    "webhook": webhook.measure,
    "commit": commit.measure,
    "latency": latency.measure,
    "stores": stores.measure,
    "kafka": kafka.measure,
    "spark": on_spark.measure,
    "amqp": amqp.measure,
}


def main(
    parts: Annotated[list[str] | None, typer.Argument(help=f"What to measure: {', '.join(_PARTS)}. Default: all of it.")] = None,
    messages: Annotated[int, typer.Option(min=12_000, help="How many messages each run has.")] = 500_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is run; the best counts.")] = 5,
    full: Annotated[bool, typer.Option("--full", help="Latency: let the stream grow to 1 GB, not only to 10 MB.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file, too.")] = None,
) -> None:
    """Measure streambench against bare Python on this machine, as ratios of runs that take turns in one process."""
    unknown = [part for part in parts or [] if part not in _PARTS]
    if unknown:
        raise typer.BadParameter(f"there is no {unknown[0]}; there are {', '.join(_PARTS)}")
    console = Console()
    figures: list[Figure] = []
    for part in parts or list(_PARTS):
        with tempfile.TemporaryDirectory(prefix="streambench-bench-") as directory, console.status(f"measuring: {part}"):
            measure = partial(latency.measure, full=full) if part == "latency" else _PARTS[part]
            figures.extend(measure(messages, rounds, Path(directory)))
    console.print(table(figures))
    if json is not None:
        json.write_bytes(orjson.dumps(as_json(figures), option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m benchmarks")
