"""One task class, unchanged, in a test, in a notebook, on the command line and on Spark: the same outputs,
state and checkpoints."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from streambench import debug
from streambench.spark import deploy
from streambench.testing import run_job
from tests.conftest import CHECKOUT
from tests.integration import tasks
from tests.integration.conftest import Workplace
from tests.magics.conftest import Shell

FLIGHTS = 5_000
PARTITIONS = 4

JOB = f"""\
job.name=delays
task.class=tasks.py:Delays
task.inputs=log.flights
stores.airports.changelog=log.airports
systems.log.streams.delays.partitions={PARTITIONS}
systems.log.streams.arrivals.partitions=3
"""

Rows = Mapping[int, list[tuple[Any, Any]]]


class Outcome:
    """Results of a job that must not depend on its runner.

    The order in one output partition is decided by the input alone where one task writes to it; where several
    do, the order of each of them is. A changelog's last values are the state; how many there are depends on
    when commits were.
    """

    def __init__(self, delays: Rows, arrivals: Rows, changelog: Rows, checkpoints: Any) -> None:
        self.delays = {partition: rows for partition, rows in delays.items() if rows}
        self.arrivals: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for partition, rows in arrivals.items():
            for key, message in rows:
                self.arrivals[partition, message["from"]].append((key, message))
        self.state = {
            partition: {key: list(value) for key, value in rows} for partition, rows in changelog.items()
        }
        self.checkpoints = checkpoints


@pytest.fixture
def filled(place: Workplace) -> Workplace:
    """A job and its input: flights by airport."""
    import gzip

    lines = gzip.decompress((CHECKOUT / "notebooks" / "data" / "flights.jsonl.gz").read_bytes()).splitlines(
        keepends=True
    )
    (place.directory / "flights.jsonl").write_bytes(b"".join(lines[:FLIGHTS]))
    place.configure(JOB)
    place.command("streams", "create", "log.flights", "--partitions", str(PARTITIONS), "-c", "job.properties")
    place.command(
        "send", "log.flights", "--input", "flights.jsonl", "--key-field", "origin", "-c", "job.properties"
    )
    return place


def outcome(place: Workplace) -> Outcome:
    return Outcome(
        *(place.read(f"log.{stream}") for stream in ("delays", "arrivals", "airports")), place.checkpoints()
    )


def in_memory(place: Workplace) -> Outcome:
    """By run_job, on what was sent, with the same properties but for where the streams are."""
    config = {
        key: value
        for key, value in place.config.items()
        if key not in ("systems.log.samza.factory", "systems.log.path")
    }
    run = run_job(tasks.Delays, config, {"log.flights": place.read("log.flights")})
    return Outcome(
        *(run.outputs[f"log.{stream}"] for stream in ("delays", "arrivals", "airports")), run.checkpoints
    )


def by_steps(place: Workplace, shell: Shell) -> None:
    """In a notebook, message by message at first."""
    with contextlib.chdir(place.directory):
        shell.run("%stream create delays --config job.properties")
        shell.run("%stream step")
        shell.run("%stream step 9")
        shell.run("%stream commit")
        shell.run(f"%stream step {FLIGHTS}")
        shell.run("%stream stop")


def with_breakpoints_and_a_recording(place: Workplace, shell: Shell) -> None:
    """In a notebook, with stops of each kind, and everything recorded."""
    with contextlib.chdir(place.directory):
        shell.run("%stream create delays --config job.properties")
        shell.run("%stream record all.recording")
        shell.run("%stream break \"message['delay'] > 300\" --once")
        shell.run("%stream break \"key == 'LAX' and after\" --on state --hits 20 --once")
        shell.run("%stream break \"output.key == 'JFK'\" --on output --once")
        stops = []
        for _ in range(4):
            shell.run("%stream run --until caught-up")
            shell.run("%stream wait")
            session = shell.run("%stream job delays") and shell.value.session
            stops.append(session.stopped_at and session.stopped_at.breakpoint.on)
        shell.run("%stream stop")
    assert sorted(filter(None, stops)) == ["message", "output", "state"]
    replayed = debug.open(place.directory / "all.recording")
    assert (replayed.position, replayed.stores()) == (FLIGHTS, session.stores())
    replayed.abandon()


def there_and_back(place: Workplace, shell: Shell) -> None:
    """In a notebook, with looks at the past, a branch that is dropped, and code that is exchanged."""
    with contextlib.chdir(place.directory):
        shell.run("%stream create delays --config job.properties")
        shell.run("%stream run --messages 2000")
        shell.run("%stream wait")
        shell.run("%stream back 700")
        shell.run("%%streamtask Empty\ndef process(envelope, collector, coordinator):\n    pass")
        session = shell.run("%stream job delays") and shell.value.session
        session.swap(shell.names["Empty"])
        session.step(10)
        shell.run("%stream live")
        session.swap(session.container.factory)
        shell.run("%stream run --until caught-up")
        shell.run("%stream wait")
        shell.run("%stream goto 10")
        shell.run("%stream live")
        shell.run("%stream stop")


def by_command(place: Workplace, shell: Shell) -> None:
    place.command("run", "job.properties", "--until", "caught-up")


def by_command_in_parts(place: Workplace, shell: Shell) -> None:
    place.command("run", "job.properties", "--messages", "1234")
    (place.directory / "job.properties").write_text(
        (place.directory / "job.properties").read_text() + "job.container.count=2\n"
    )
    place.command("run", "job.properties", "--until", "caught-up")


def on_spark(place: Workplace, shell: Shell) -> None:
    deploy(place.config.with_values({"job.container.count": 2}), master="local[2]")


def from_the_notebook_to_spark(place: Workplace, shell: Shell) -> None:
    with contextlib.chdir(place.directory):
        shell.run("%stream create delays --config job.properties")
        shell.run("%stream run --messages 2500")
        shell.run("%stream wait")
        shell.run("%stream deploy --master local[2]")


WAYS = [
    by_steps, with_breakpoints_and_a_recording, there_and_back, by_command, by_command_in_parts, on_spark,
    from_the_notebook_to_spark,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_same_task_does_the_same_everywhere(
    filled: Workplace,
    way: Callable[[Workplace, Shell], None],
    ip_empty: Shell,
    request: pytest.FixtureRequest,
) -> None:
    if "spark" in way.__name__:
        request.getfixturevalue("spark")
    way(filled, ip_empty)
    found, expected = outcome(filled), in_memory(filled)
    assert sum(map(len, expected.delays.values())) == FLIGHTS
    assert found.delays == expected.delays
    assert found.arrivals == expected.arrivals
    assert found.state == expected.state
    assert found.checkpoints == expected.checkpoints


def test_the_notebooks_own_task_does_the_same_too(filled: Workplace, ip_empty: Shell) -> None:
    source = Path(tasks.__file__).read_text()
    ip_empty.run(f"%%streamtask Delays --class Delays\n{source}")
    with contextlib.chdir(filled.directory):
        ip_empty.run("%stream create delays --task Delays --config job.properties")
        ip_empty.run(f"%stream step {FLIGHTS}")
        ip_empty.run("%stream stop")
    found, expected = outcome(filled), in_memory(filled)
    assert (found.delays, found.arrivals, found.state) == (expected.delays, expected.arrivals, expected.state)
