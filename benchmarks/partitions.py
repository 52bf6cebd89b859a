"""Cost of a message where there are many partitions, each with a task of its own: an empty task, by the
CPU time of the best round."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import streambench as sb
from streambench.system.memory import memory_streams

from .container import fill_log, in_turns, run_job
from .data import messages
from .report import Figure
from .tasks import Empty

_COUNTS = (1, 100, 1000)
_AIM = 1.5


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The cost of a message with 100 and with 1,000 partitions, and with one that is busy among 1,000, as a
    ratio to that with one."""
    for kind in ("memory", "log"):
        runs = {
            str(partitions): partial(run_job, _job(kind, partitions, count, directory), Empty, count)
            for partitions in _COUNTS
        }
        runs["busy"] = partial(run_job, _job(kind, _COUNTS[-1], count, directory, busy=1), Empty, count)
        best = in_turns(runs, rounds, count)
        shutil.rmtree(directory / "streams", ignore_errors=True)
        for partitions in _COUNTS[1:]:
            note = f"{best[str(partitions)]:.0f} ns, {best['1']:.0f} with one"
            ratio = best[str(partitions)] / best["1"]
            yield Figure(
                f"a message of {partitions:,} partitions / of one, {kind}", ratio, "x", _AIM, True, note
            )
        note = f"{best['busy']:.0f} ns"
        yield Figure(
            f"a message of one busy among {_COUNTS[-1]:,} / of one, {kind}",
            best["busy"] / best["1"],
            "x",
            _AIM,
            True,
            note,
        )


def _job(kind: str, partitions: int, count: int, directory: Path, busy: int | None = None) -> sb.Config:
    """A job on a system of its own, whose one stream holds all the messages, in all partitions or only in the
    first ``busy``."""
    busy = partitions if busy is None else busy
    system = f"{kind}{partitions}of{busy}"
    stream = sb.SystemStream(system, "in")
    config = sb.Config(
        {
            "task.inputs": str(stream),
            f"systems.{system}.samza.offset.default": "oldest",
            f"systems.{system}.samza.factory": kind,
            f"systems.{system}.path": directory / "streams" / system if kind == "log" else None,
            "task.checkpoint.system": "file" if kind == "log" else None,
            "task.checkpoint.path": directory / "streams" / "checkpoints",
        }
    )
    every = messages(count).all
    dealt = [every[number::busy] if number < busy else [] for number in range(partitions)]
    if kind == "log":
        fill_log(config, dealt, stream)
        return config
    streams = memory_streams(system)
    streams.partitions.pop(stream, None)
    streams.create(stream, partitions)
    for number, of_partition in enumerate(dealt):
        streams.of(stream)[number].fields = [
            field for message in of_partition for field in (None, message, None)
        ]
    return config
