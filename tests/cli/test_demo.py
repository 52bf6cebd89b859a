"""The demo: flights counted here and on Spark, and checked; and what it says to input that it cannot use."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.job.project import CHECKOUT, Project

FLIGHTS = CHECKOUT / "notebooks" / "data" / "flights.jsonl.gz"

ROWS: list[dict[str, Any]] = [
    {"date": "2001/01/01 06:10", "delay": 66, "origin": "DTW", "destination": "LAS"},
    {"date": "2001/01/01 07:00", "delay": -5, "origin": "LAS", "destination": "OAK"},
    {"date": "2001/01/02 07:30", "delay": 16, "origin": "LAS", "destination": "PHX"},
    {"date": "2001/01/02 09:00", "delay": "NA", "origin": "LAS", "destination": "PHX"},
    {"date": "2001-01-01T05:00Z", "delay": 15, "origin": "DTW", "destination": "PHX"},
]


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def as_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_lines(path: Path, rows: list[Any]) -> Path:
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.usefixtures("spark")
def test_the_demo_counts_every_flight_once(project: Project) -> None:
    said = plain(project.ok("demo", "--times", "1", "--directory", "shown"))
    assert "sent 20,000 flights to log.flights, 12 partitions" in said
    assert "processed 10,000 here, and stopped" in said
    assert "processed 10,000 on Spark" in said
    assert "every flight counted exactly once: 20,000 flights, 220 airports" in said
    # What it leaves behind can be looked at, as it says.
    rows = project.ok("checkpoints", "-c", "shown/delays.properties", "--json").splitlines()
    assert sum(int(json.loads(row)["next"]) for row in rows) == 20_000
    assert {json.loads(row)["lag"] for row in rows} == {0}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["mine.csv", "mine.jsonl", "mine.jsonl.gz"])
def test_flights_of_ones_own_are_counted_without_the_cancelled_ones(project: Project, name: str) -> None:
    path = project.directory / name
    as_csv(path, ROWS) if ".csv" in path.suffixes else as_lines(path, ROWS)
    said = plain(project.ok("demo", "--input", name, "--times", "3", "--directory", "shown"))
    assert "sent 12 flights (1 without a delay left out)" in said
    assert "12 flights, 2 airports" in said
    kept: dict[str, Any] = {}
    for line in project.ok(
        "peek", "-c", "shown/delays.properties", "log.airports-changelog", "--limit", "1000", "--json"
    ).splitlines():
        row = json.loads(line)
        kept[row["key"]] = row["message"]
    assert kept == {
        "DTW": {"flights": 6, "delay": 243, "late": 3},
        "LAS": {"flights": 6, "delay": 33, "late": 3},
    }


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (
            "no.jsonl",
            '{"date": "2001/01/01 06:10", "delay": 1, "origin": "DTW"}\n{"date"\n',
            "no.jsonl, line 2: not JSON",
        ),
        ("list.jsonl", "[1, 2]\n", "list.jsonl, line 1: a flight is a JSON object"),
        (
            "lacks.jsonl",
            '{"date": "2001/01/01 06:10", "delay": 1}\n',
            "lacks.jsonl, line 1: there is no 'origin'",
        ),
        (
            "word.csv",
            "date,delay,origin\n2001/01/01 06:10,soon,DTW\n",
            "word.csv, line 2: could not convert string to float: 'soon'",
        ),
        ("date.csv", "date,delay,origin\n2001/01/01 06:10,1,DTW\nyesterday,2,DTW\n", "date.csv, line 3: "),
        ("nan.csv", "date,delay,origin\n2001/01/01 06:10,inf,DTW\n", "nan.csv, line 2: "),
        ("short.csv", "date,delay,origin\n2001/01/01 06:10,1\n", "short.csv, line 2: there is no 'origin'"),
        (
            "list.jsonl",
            '{"date": "2001/01/01 06:10", "delay": [1], "origin": "DTW"}\n',
            "list.jsonl, line 1: ",
        ),
        (
            "split.csv",
            'date,delay,origin,note\n2001/01/01 06:10,1,DTW,"a\nb"\n2001/01/01 06:10,x,DTW,c\n',
            "split.csv, line 4: ",
        ),
        ("empty.csv", "", "empty.csv has no flights"),
        ("gone.jsonl", None, "gone.jsonl"),
    ],
)
def test_unusable_input_is_named_by_file_and_line_and_nothing_is_written(
    project: Project, name: str, text: str | None, error: str
) -> None:
    if text is not None:
        (project.directory / name).write_text(text)
    before = {path.name for path in project.directory.iterdir()}
    assert error in project.fails("demo", "--input", name, "--directory", "shown")
    assert {path.name for path in project.directory.iterdir()} == before


def test_a_file_that_is_not_compressed_as_its_name_says_is_named(project: Project) -> None:
    (project.directory / "mine.jsonl.gz").write_text("{}")
    assert "mine.jsonl.gz" in project.fails("demo", "--input", "mine.jsonl.gz", "--directory", "shown")
    (project.directory / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 1000)[:-9])
    assert "cut.jsonl.gz" in project.fails("demo", "--input", "cut.jsonl.gz", "--directory", "shown")
    assert not (project.directory / "shown").exists()


def test_the_demo_never_empties_a_directory_that_it_did_not_make(project: Project) -> None:
    (project.directory / "precious").mkdir()
    (project.directory / "precious" / "file").write_text("mine")
    assert "give another --directory" in project.fails("demo", "--times", "1", "--directory", "precious")
    assert (project.directory / "precious" / "file").read_text() == "mine"
    assert [path.name for path in (project.directory / "precious").iterdir()] == ["file"]
