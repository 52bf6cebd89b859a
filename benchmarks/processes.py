"""``streambench run`` with one container and with two, each in a process of its own: wall time and CPU time
from the command to its end, start of Python included."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import streambench as sb

from .container import fill_log, log_job
from .cost import least_costs
from .data import messages
from .report import Figure
from .tasks import JsonCount

_LONG = 4_000_000  # one container takes about ten seconds for them


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratio of the best rounds."""
    count = max(count, _LONG)
    task = f"{JsonCount.__module__}.{JsonCount.__qualname__}"
    job = log_job(directory / "log").with_values({"task.class": task, "task.commit.ms": None})
    fill_log(job, messages(count).partitions)
    numbers = itertools.count()
    best = least_costs(
        {
            "one": lambda: _run(job, 1, directory / f"{next(numbers)}.properties"),
            "two": lambda: _run(job, 2, directory / f"{next(numbers)}.properties"),
        },
        rounds,
    )
    name = f"run, two containers / one, by wall time, {count:,} messages"
    note = f"{best['two']}; one {best['one']}"
    yield Figure(name, best["one"].wall / best["two"].wall, "x", aim=1.7, note=note)


def _run(job: sb.Config, containers: int, file: Path) -> None:
    """The whole job under a name of its own, from its oldest message to its newest."""
    values = {**job, "job.name": file.stem, "job.container.count": containers}
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    command = [sys.executable, "-m", "streambench", "run", str(file), "--until", "caught-up", "--json"]
    subprocess.run(command, check=True, cwd=Path(__file__).resolve().parent.parent, stdout=subprocess.DEVNULL)
