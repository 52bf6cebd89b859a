"""Jobs on real data as it came: missing values, odd values, lines that are no text. Whatever runs them,
pandas finds the same totals."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import streambench as sb
from streambench.spark import deploy
from streambench.testing import run_job
from tests.conftest import CHECKOUT
from tests.integration import tasks
from tests.integration.conftest import Workplace
from tests.surroundings import only_soak

TWO = pytest.param("two containers", marks=only_soak("tests/job/ runs jobs of two containers"))
RUNNERS = ["one container", TWO, "spark"]
NOT_TEXT = [b"\xff\xfe\x00", b"GET /caf\xe9 HTTP/1.1"]

SERDES = {"systems.log.samza.key.serde": "string", "systems.log.samza.msg.serde": "json"}

FILES = """\
systems.files.samza.factory=file
systems.files.samza.offset.default=oldest
"""


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> str:
    """The way in which a job is run."""
    chosen: str = request.param
    if chosen == "spark":
        request.getfixturevalue("spark")
    return chosen


def run(config: sb.Config, runner: str) -> int:
    """Run a job until it has caught up; how many messages it processed."""
    if runner == "spark":
        return deploy(config.with_values({"job.container.count": 2})).messages
    return sb.run(
        config.with_values({"job.container.count": 2 if runner == "two containers" else 1})
    ).messages


@pytest.fixture(scope="module")
def weather(real_streams: Path) -> pd.DataFrame:
    return pd.read_csv(real_streams / "weather.csv.gz")


def expected_months(weather: pd.DataFrame) -> dict[str, tuple[int, int, float]]:
    """Per airport and month: hours, those with a temperature, and their mean."""
    groups = weather.groupby(["origin", "month"])["temp"]
    table = pd.DataFrame({"hours": groups.size(), "measured": groups.count(), "mean": groups.mean()})
    return {
        f"{origin}-{month}": (int(row.hours), int(row.measured), row["mean"])
        for (origin, month), row in table.iterrows()
    }


def months(kept: dict[str, dict[str, Any]]) -> dict[str, tuple[int, int, Any]]:
    return {
        month: (each["hours"], each["measured"], pytest.approx(each["sum"] / each["measured"]))
        for month, each in kept.items()
    }


def weather_by_airport(real_streams: Path, directory: Path) -> None:
    """The file as three partitions, one per airport, one of them compressed."""
    head, *lines = gzip.decompress((real_streams / "weather.csv.gz").read_bytes()).splitlines(keepends=True)
    directory.mkdir()
    for number, airport in enumerate((b"EWR", b"JFK", b"LGA")):
        rows = b"".join([head, *(line for line in lines if line.startswith(airport))])
        name, content = (
            (f"{number}.csv.gz", gzip.compress(rows)) if airport == b"JFK" else (f"{number}.csv", rows)
        )
        (directory / name).write_bytes(content)


def test_temperatures_of_csv_files_by_airport_and_month(
    place: Workplace, real_streams: Path, weather: pd.DataFrame, runner: str
) -> None:
    weather_by_airport(real_streams, place.directory / "weather")
    config = place.configure(
        FILES + "systems.files.path=.\nsystems.files.samza.msg.serde=json\n"
        "task.class=tasks.py:Weather\ntask.inputs=files.weather\nstores.months.changelog=log.months\n"
    )
    assert run(config, runner) == len(weather) == 26_115
    kept = {
        month: each for partition in place.last("log.months").values() for month, each in partition.items()
    }
    expected = expected_months(weather)
    assert months(kept) == expected
    missing = sum(each["hours"] - each["measured"] for each in kept.values())
    assert missing == weather["temp"].isna().sum() == 1
    assert run(config, runner) == 0


def test_one_compressed_file_is_read_where_it_lies(
    place: Workplace, real_streams: Path, weather: pd.DataFrame
) -> None:
    config = place.configure(
        FILES
        + f"systems.files.path={real_streams}\nsystems.files.samza.msg.serde=json\n"
          f"systems.files.key.field=origin\n"
        "task.class=tasks.py:Weather\ntask.inputs=files.weather\nstores.months.changelog=log.months\n"
    )
    # Stopped in the midst of the file, and gone on with by another container.
    assert sb.run(config, 10_000).messages == 10_000
    assert sb.run(config).messages == len(weather) - 10_000
    assert months(place.last("log.months")[0]) == expected_months(weather)


def test_the_weather_by_the_log_and_by_run_job_is_the_same(
    place: Workplace, real_streams: Path, weather: pd.DataFrame, runner: str
) -> None:
    rows = pd.read_csv(real_streams / "weather.csv.gz", dtype=str, keep_default_na=False).to_dict("records")
    lines = place.directory / "weather.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = place.configure(
        "task.class=tasks.py:Weather\ntask.inputs=log.weather\nstores.months.changelog=log.months\n"
    )
    place.command("streams", "create", "log.weather", "--partitions", "3", "-c", "job.properties")
    place.command(
        "send", "log.weather", "--input", str(lines), "--key-field", "origin", "-c", "job.properties"
    )
    sent = place.read("log.weather")
    assert run(config, runner) == len(rows)
    # What is in memory only, and never on the disk.
    here = run_job(tasks.Weather, SERDES | {"stores.months.changelog": "log.months"}, {"log.weather": sent})
    kept = {partition: dict(changes) for partition, changes in here.outputs["log.months"].items()}
    assert place.last("log.months") == kept
    assert months(
        {month: each for partition in kept.values() for month, each in partition.items()}
    ) == expected_months(weather)


@pytest.fixture(scope="module")
def requests(real_streams: Path) -> pd.DataFrame:
    """The web log by its columns. What stands before the first quote has blanks between it, what stands
    behind the request too."""
    lines = pd.Series(gzip.decompress((real_streams / "weblog.log.gz").read_bytes()).decode().splitlines())
    parts = lines.str.split('"', n=2)
    answer = parts.str[2].str.split()
    table = pd.DataFrame(
        {
            "path": parts.str[1].str.split().str[1],
            "status": answer.str[0].str[0] + "xx",
            "bytes": answer.str[1],
        }
    )
    hour = parts.str[0].str.split("[").str[1].str[:14].str.replace(":", " ")
    return table.assign(hour=hour, bytes=pd.to_numeric(table["bytes"], errors="coerce"))


def test_a_web_log_in_which_some_lines_are_no_text(
    place: Workplace, real_streams: Path, requests: pd.DataFrame, runner: str
) -> None:
    lines = gzip.decompress((real_streams / "weblog.log.gz").read_bytes()).splitlines()
    folder = place.directory / "weblog"
    folder.mkdir()
    (folder / "0.log").write_bytes(b"\n".join([*lines[:2_000], NOT_TEXT[0], *lines[2_000:4_000]]) + b"\n")
    (folder / "1.log.gz").write_bytes(gzip.compress(b"\n".join([NOT_TEXT[1], *lines[4_000:]])))
    config = place.configure(
        FILES
        + "systems.files.path=.\nsystems.files.samza.msg.serde=string\ntask.class=tasks.py:WebLog\n"
          "task.inputs=files.weblog\n"
        "stores.paths.changelog=log.paths\nstores.hours.changelog=log.hours\n"
        "task.drop.deserialization.errors=true\n"
    )
    # What cannot be decoded counts as processed: it is passed over.
    assert run(config, runner) == len(lines) + len(NOT_TEXT)
    paths: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for partition in place.last("log.paths").values():
        for path, (hits, size) in partition.items():
            paths[path] += hits
            sizes[path] += size
    hours: dict[str, Counter[str]] = {}
    for partition in place.last("log.hours").values():
        for hour, counts in partition.items():
            hours.setdefault(hour, Counter()).update(counts)
    by_path = requests.groupby("path")["bytes"]
    assert len(requests) == sum(paths.values()) == 10_000
    assert paths == by_path.size().to_dict()
    assert sizes == by_path.sum().astype(int).to_dict()
    by_hour = requests.groupby(["hour", "status"]).size()
    assert hours == {hour: by_hour[hour].to_dict() for hour in by_hour.index.levels[0]}
    assert run(config, runner) == 0


def test_a_line_that_is_no_text_stops_the_job_and_is_named(place: Workplace, real_streams: Path) -> None:
    lines = gzip.decompress((real_streams / "weblog.log.gz").read_bytes()).splitlines(keepends=True)
    (place.directory / "weblog.log").write_bytes(b"".join([*lines[:100], NOT_TEXT[0] + b"\n", *lines[100:]]))
    config = place.configure(
        FILES
        + "systems.files.path=.\nsystems.files.samza.msg.serde=string\ntask.class=tasks.py:WebLog\n"
          "task.inputs=files.weblog\n"
        "stores.paths.changelog=log.paths\nstores.hours.changelog=log.hours\n"
    )
    with pytest.raises(sb.SerdeError, match=r"files\.weblog\.0"):
        sb.run(config)
    assert (
        run(config.with_values({"task.drop.deserialization.errors": "true"}), "one container")
        == len(lines) + 1
    )
    assert sum(hits for hits, _ in place.last("log.paths")[0].values()) == 10_000


def test_flights_find_their_time_zone_in_a_table_that_is_read_first(
    place: Workplace, real_streams: Path, runner: str
) -> None:
    flights = CHECKOUT / "notebooks" / "data" / "flights.jsonl.gz"
    config = place.configure(
        FILES
        + f"systems.files.streams.airports.path={real_streams / 'airports.csv'}\n"
          f"systems.files.samza.msg.serde=json\n"
        "systems.files.streams.airports.samza.bootstrap=true\n"
        "task.class=tasks.py:Zones\ntask.inputs=log.flights\ntask.broadcast.inputs=files.airports#0\n"
        "systems.log.streams.zones.partitions=3\n"
    )
    (place.directory / "flights.jsonl").write_bytes(gzip.decompress(flights.read_bytes()))
    place.command("streams", "create", "log.flights", "--partitions", "4", "-c", "job.properties")
    place.command(
        "send", "log.flights", "--input", "flights.jsonl", "--key-field", "origin", "-c", "job.properties"
    )
    run(config, runner)
    table = pd.read_json(flights, lines=True).merge(
        pd.read_csv(real_streams / "airports.csv")[["faa", "tzone"]],
        left_on="origin",
        right_on="faa",
        how="left",
    )
    expected = (
        table.assign(tzone=table["tzone"].fillna("unknown")).groupby("tzone")["delay"].agg(["size", "sum"])
    )
    rows = [
        (key, value["zone"], value["delay"])
        for partition in place.read("log.zones").values()
        for key, value in partition
    ]
    assert all(key == zone for key, zone, _ in rows)
    found = (
        pd.DataFrame(rows, columns=["key", "tzone", "delay"]).groupby("tzone")["delay"].agg(["size", "sum"])
    )
    assert found.to_dict() == expected.to_dict()
    assert found["size"].sum() == 20_000
