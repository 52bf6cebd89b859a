"""``streambench demo``: the whole path on real data. Flights into a log, half of them processed here, the
rest on Spark, and a check."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from streambench.cli.deploy_display import deploy_display
from streambench.cli.flights import LATE_MINUTES, Flight, read_flights, replayed
from streambench.cli.output import live_console
from streambench.cli.run import run_display
from streambench.config import Config
from streambench.container.outputs.direct_writer import writing
from streambench.counts import counted
from streambench.errors import ConfigError, MissingExtraError, StreambenchError
from streambench.job.run import run
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems

if TYPE_CHECKING:
    from streambench.job.result import RunResult
    from streambench.spark.result import DeployResult

_FLIGHTS = SystemStream("log", "flights")
_CHANGELOG = SystemStream("log", "airports-changelog")
_PARTITIONS = 12
_ENOUGH_FLIGHTS = 0.002

_PROPERTIES = """\
# The job of `streambench demo`. Look around: streambench streams -c {file}
job.name=delays
task.class=streambench.cli.flights:Delays
task.inputs=log.flights
task.window.ms=1000
task.commit.ms=5000
systems.log.samza.factory=log
systems.log.path=streams
systems.log.samza.key.serde=string
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
stores.airports.factory=memory
stores.airports.changelog=log.airports-changelog
"""

Totals = dict[str, dict[str, float]]


def main(arguments: list[str]) -> None:
    """Run the demo with command-line arguments."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(demo)
    app(arguments, prog_name="streambench demo", standalone_mode=False)


def demo(
    input: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Flights of your own: JSON lines or CSV with date, delay and origin."
        ),
    ] = None,
    times: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="How often the flights are replayed, each time with their dates moved on.",
        ),
    ] = 25,
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Where streams and checkpoints go; emptied first.")
    ] = Path("demo-data"),
    master: Annotated[str, typer.Option(metavar="MASTER", help="Where Spark runs.")] = "local[2]",
) -> None:
    """Flights and their delays: started here, finished on Spark, checked against the input.

    The flights go to a log of 12 partitions, keyed by airport. For each airport, a task keeps flights, mean
    delay and the share of late ones. It runs on this machine until half of the messages are processed, and
    stops. Spark finishes it as a batch from the same checkpoints and the same state.

    Examples:

        streambench demo

        streambench demo --times 100 --master "local[4]"
    """
    console = live_console()
    flights, without_delay = read_flights(input or _own_data())
    total = len(flights) * times
    every = counted(total, "flight")
    config = _prepared(directory)
    with console.status(f"sending {every} to log.flights"):
        seconds = _send(config, flights, times)
    left_out = f" ({without_delay:,} without a delay left out)" if without_delay else ""
    partitions = f"log.flights, {_PARTITIONS} partitions"
    console.print(f"1. sent {every}{left_out} to {partitions}: {total / seconds:,.0f} messages/s")
    processed = _process_half(console, config, total)
    processed += _process_rest(console, config, master)
    kept = _kept(config)
    console.print(_worst(kept))
    _check(flights, times, kept, processed)
    airports = counted(len(kept), "airport")
    console.print(
        f"[green]✓[/] every flight counted exactly once: {every}, {airports}, the same totals as the input's"
    )
    job = shlex.quote(str(directory / "delays.properties"))
    console.print(f"  what the demo wrote is in {directory}: streambench streams -c {job}")


def _process_half(console: Console, config: Config, total: int) -> int:
    """Process half of the flights here; how many that were. Raises Exit where it was stopped."""
    show, display = run_display(console)
    with display:
        done = run(config, max(1, total // 2), on_snapshots=show)
    rate = done.messages / done.seconds
    console.print(f"2. processed {done.messages:,} here, and stopped: {rate:,.0f} messages/s")
    if done.ended == "signal":
        raise typer.Exit(1)
    return done.messages


def _process_rest(console: Console, config: Config, master: str) -> int:
    """Process the rest on Spark, or here where there is none; how many that were."""
    done: DeployResult | RunResult
    try:
        done = _on_spark(console, config, master)
        where, start = "on Spark", ", its start included"
    except MissingExtraError as error:
        done = run(config, "caught-up")
        where, start = "here, too", ""
        console.print(f"   {error}; without Spark, the rest is processed here", markup=False)
    rate = f"{done.messages / done.seconds:,.0f} messages/s{start}"
    console.print(f"3. processed {done.messages:,} {where}, from the same checkpoints and state: {rate}")
    return done.messages


def _on_spark(console: Console, config: Config, master: str) -> DeployResult:
    containers = min(os.cpu_count() or 1, 4)
    config = config.with_values({"job.container.count": containers})
    with deploy_display(console) as display:
        from streambench.spark import deploy

        return deploy(config, master=master, progress=display.show)


def _own_data() -> Path:
    """The flights of the tutorials: a wheel has them beside this module."""
    name = "flights.jsonl.gz"
    places = (Path(__file__).parent / name, Path(__file__).parents[2] / "notebooks" / "data" / name)
    path = next((each for each in places if each.is_file()), None)
    if path is None:
        raise ConfigError(f"there is no {places[0]}: install streambench again, or give --input FILE")
    return path


def _prepared(directory: Path) -> Config:
    """The job's configuration, written to a directory that holds nothing else."""
    file = directory / "delays.properties"
    if directory.exists() and any(directory.iterdir()) and not file.is_file():
        raise ConfigError(f"{directory} is not empty and was not made by the demo: give another --directory")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    file.write_text(_PROPERTIES.format(file=shlex.quote(str(file))), encoding="utf-8")
    return Config.from_file(file)


def _send(config: Config, flights: list[Flight], times: int) -> float:
    began = time.monotonic()
    systems = Systems(config)
    systems.create(_FLIGHTS, _PARTITIONS)
    with writing(systems, _FLIGHTS, _PARTITIONS, "demo") as writer:
        writer.send(
            OutgoingMessageEnvelope(_FLIGHTS, message, key, None, None, timestamp)
            for key, message, timestamp in replayed(flights, times)
        )
    systems.close()
    return time.monotonic() - began


def _kept(config: Config) -> Totals:
    """Return what the job has kept of each airport: the last values in the changelog of its store."""
    systems = Systems(config)
    starts = {
        _CHANGELOG.partition(number): here.oldest or here.upcoming or "0"
        for number, here in systems.metadata([_CHANGELOG])[_CHANGELOG].items()
    }
    found = read_to_head(systems.consumer(_CHANGELOG.system, MetricsRegistry()), starts)
    systems.close()
    kept = {envelope.key.decode(): envelope.message for envelopes in found.values() for envelope in envelopes}
    return {airport: orjson.loads(value) for airport, value in kept.items() if value is not None}


def _worst(kept: Totals) -> Table:
    table = Table(
        title="The ten worst airports",
        title_justify="left",
        caption=f"late: more than {LATE_MINUTES} minutes",
    )
    for column in ("airport", "flights", "mean delay (min)", "late"):
        table.add_column(column, justify="left" if column == "airport" else "right")
    enough = _ENOUGH_FLIGHTS * sum(each["flights"] for each in kept.values())
    busy = [(airport, each) for airport, each in kept.items() if each["flights"] >= enough]
    for airport, each in sorted(busy, key=lambda item: -item[1]["delay"] / item[1]["flights"])[:10]:
        count = each["flights"]
        table.add_row(airport, f"{count:,}", f"{each['delay'] / count:.1f}", f"{each['late'] / count:.1%}")
    return table


def _check(flights: list[Flight], times: int, kept: Totals, processed: int) -> None:
    """Compare with a plain count of the input. Raises StreambenchError where anything differs."""
    expected: Totals = defaultdict(lambda: {"flights": 0, "delay": 0, "late": 0})
    for flight in flights:
        of_airport = expected[flight.origin]
        of_airport["flights"] += times
        of_airport["delay"] += times * flight.delay
        of_airport["late"] += times * (flight.delay > LATE_MINUTES)
    sent = len(flights) * times
    if processed != sent:
        raise StreambenchError(f"{processed:,} messages were processed, but {sent:,} were sent")
    for airport in sorted({*expected, *kept}):
        if not _same(expected.get(airport), kept.get(airport)):
            raise StreambenchError(
                f"{airport}: the input has {expected.get(airport)}, the job kept {kept.get(airport)}"
            )


def _same(expected: dict[str, float] | None, kept: dict[str, float] | None) -> bool:
    if expected is None or kept is None:
        return False
    # Delays of one's own input may be fractions, whose sum depends on the order.
    return all(abs(expected[name] - kept[name]) <= 1e-6 * max(1.0, abs(expected[name])) for name in expected)
