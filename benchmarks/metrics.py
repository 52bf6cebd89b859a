"""Cost of metrics: an empty task in memory, without metrics and with them. Ratios, by the CPU
time of the best round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import streambench as sb
from streambench.system.memory import memory_streams

from .container import IN, in_turns, run_job
from .data import PARTITIONS, messages
from .report import Figure
from .tasks import Empty

_JOB = {
    "task.inputs": str(IN),
    "systems.bench.samza.offset.default": "oldest",
    "systems.bench.samza.factory": "memory",
}

_REPORTERS = {
    "metrics.reporters": "s,l,p",
    "metrics.reporter.s.class": "snapshot",
    "metrics.reporter.s.stream": "bench.metrics",
    "metrics.reporter.l.class": "log",
    "metrics.reporter.p.class": "prometheus",
    **{f"metrics.reporter.{name}.interval": "0.1" for name in "slp"},
}

_RUNS: Mapping[str, Mapping[str, str]] = {
    "off": {"metrics.timer.enabled": "false"},
    "sampled": {},
    "reporters": _REPORTERS,
    "timed": {"metrics.timer.enabled": "true"},
}


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of a job that is measured and one that is not."""
    streams = memory_streams(IN.system)
    streams.partitions.pop(IN, None)
    streams.create(IN, PARTITIONS)
    for number, of_partition in enumerate(messages(count).partitions):
        streams.of(IN)[number].fields = [field for message in of_partition for field in (None, message, None)]
    runs = {
        name: partial(run_job, sb.Config({**_JOB, **settings}), Empty, count)
        for name, settings in _RUNS.items()
    }
    best = in_turns(runs, rounds, count)
    note = f"{best['off']:.0f} ns without"
    yield Figure(
        "metrics: calls timed now and then (the default) / none",
        best["sampled"] / best["off"],
        "x",
        1.05,
        True,
        note,
    )
    yield Figure(
        "metrics: three reporters, ten times a second / none",
        best["reporters"] / best["off"],
        "x",
        1.1,
        True,
        note,
    )
    yield Figure(
        "metrics: every call and choice timed / none",
        best["timed"] / best["off"],
        "x",
        note=f"{best['timed']:.0f} ns",
    )
