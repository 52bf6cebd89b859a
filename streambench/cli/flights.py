"""Flights: the input of the demo, and its task."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator

LATE_MINUTES = 15
"""A flight that leaves later than this counts as late, as US statistics have it."""

WORSE = SystemStream("log", "worse")

_MISSING = ("", "NA", "NaN", "null", None)
_DATE = "%Y/%m/%d %H:%M"


class Delays(StreamTask):
    """Keeps, per airport, how many flights left, with how much delay, and how many of them late; reports in
    every window which got worse."""

    def init(self, context: TaskContext) -> None:
        self.airports = context.store("airports")
        self.means: dict[str, float] = {}
        self.touched: set[str] = set()

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        airport, delay = envelope.key, envelope.message["delay"]
        so_far = self.airports.get(airport) or {"flights": 0, "delay": 0, "late": 0}
        so_far["flights"] += 1
        so_far["delay"] += delay
        so_far["late"] += delay > LATE_MINUTES
        self.airports.put(airport, so_far)
        self.touched.add(airport)

    def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for airport in sorted(self.touched):
            now = self.airports.get(airport)
            mean = now["delay"] / now["flights"]
            before = self.means.get(airport)
            if before is not None and mean > before:
                report = {
                    "airport": airport,
                    "mean_delay": mean,
                    "before": before,
                    "late_share": now["late"] / now["flights"],
                }
                collector.send(OutgoingMessageEnvelope(WORSE, report, key=airport))
            self.means[airport] = mean
        self.touched.clear()


class Flight(NamedTuple):
    """A row of the input: when it left, from where, with how many minutes of delay, and all that the row
    says."""

    date: datetime
    origin: str
    delay: float
    row: dict[str, Any]


def read_flights(path: Path) -> tuple[list[Flight], int]:
    """The flights of a file of JSON lines or CSV (``.gz`` or not), and how many rows were left out: cancelled
    flights have no delay.

    Needed are ``date``, ``delay`` and ``origin``. Raises ConfigError that names file and line where a row
    cannot be used.
    """
    flights, without_delay = [], 0
    for line, row in _rows(path):
        try:
            if row.get("delay") in _MISSING:
                without_delay += 1
                continue
            # A row that is shorter than the header has no value there.
            missing = next((name for name in ("date", "origin") if row.get(name) is None), None)
            if missing is not None:
                raise ConfigError(
                    f"{path.name}, line {line}: there is no '{missing}'; a flight has date, delay and origin"
                )
            delay = float(row["delay"])
            if not math.isfinite(delay):
                raise ValueError(f"a delay of {row['delay']} minutes cannot be added up")
            row["delay"] = int(delay) if delay.is_integer() else delay
            flights.append(Flight(_date(str(row["date"])), str(row["origin"]), row["delay"], row))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path.name}, line {line}: {error}") from None
    if not flights:
        raise ConfigError(f"{path.name} has no flights with a delay")
    return sorted(flights, key=lambda flight: flight.date), without_delay


def replayed(flights: list[Flight], times: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, message and timestamp (milliseconds) of the flights, ``times`` times over, each time with dates
    moved on by their whole span."""
    span = timedelta(days=(flights[-1].date - flights[0].date).days + 1)
    for replay in range(times):
        for flight in flights:
            date = flight.date + span * replay
            row = flight.row | {"date": date.strftime(_DATE)}
            yield flight.origin.encode(), orjson.dumps(row), int(date.timestamp() * 1000)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    line = 0
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            if ".csv" in path.suffixes:
                reader = csv.DictReader(file)
                # A row may go over several lines.
                yield from ((reader.line_num, row) for row in reader)
                return
            for line, text in enumerate(file, start=1):
                if text.strip():
                    row = orjson.loads(text)
                    if not isinstance(row, dict):
                        raise ConfigError(f"{path.name}, line {line}: a flight is a JSON object")
                    yield line, row
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path.name}, line {line}: not JSON: {error}") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def _date(text: str) -> datetime:
    """Without a time zone; one that is given is taken into account, so that dates with and without can be put
    in order."""
    try:
        return datetime.strptime(text, _DATE)
    except ValueError:
        date = datetime.fromisoformat(text)
        return date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None)
