"""Cost of the debugger while a job runs: a session that is not used, a recording, a breakpoint. Ratios,
by the CPU time of the best round."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import streambench as sb
from streambench.container.container import Container
from streambench.debug.control.session import Session

from .container import fill_log, in_turns, log_job
from .data import messages
from .history import STORE, Counting
from .report import Figure

_NEVER = "message is None"
_runs = itertools.count()


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of a job that counts in a store, with each part of the debugger and without it."""
    config = log_job(directory / "log").with_values(STORE)
    recording = directory / "bench.recording"
    fill_log(config, messages(count).partitions)
    runs: dict[str, Callable[[], float]] = {
        "alone": partial(_alone, config),
        "unused": partial(_session, config, 0),
        "history": partial(_session, config, 256),
        "recording": partial(_session, config, 256, prepare=partial(_record, recording)),
        "breakpoint": partial(_session, config, 256, prepare=_break),
        "state": partial(_session, config, 256, prepare=partial(_break, on="state")),
    }
    best = in_turns(runs, rounds, count)
    yield _ratio("a session that is not used / the container alone", best, "unused", "alone", 0.98)
    yield _ratio("a session with its history / the container alone", best, "history", "alone", None)
    yield _ratio("a session that records / one that does not", best, "recording", "history", 0.6)
    yield Figure("debugger: a recording per message", recording.stat().st_size / count, "bytes")
    yield _ratio("a breakpoint by an expression of messages / none", best, "breakpoint", "history", 0.5)
    yield _ratio("a breakpoint by an expression of state / none", best, "state", "history", None)


def _ratio(name: str, best: dict[str, float], one: str, other: str, aim: float | None) -> Figure:
    note = f"{best[one]:.0f} ns, {best[other]:.0f} without"
    return Figure(f"debugger: {name}", best[other] / best[one], "x", aim, note=note)


def _alone(config: sb.Config) -> float:
    container = Container(_named(config), Counting, remember_choices=100)
    container.start()
    began = time.process_time()
    container.run("caught-up")
    seconds = time.process_time() - began
    container.stop()
    return seconds


def _session(
    config: sb.Config, megabytes: int, prepare: Callable[[Session], object] = lambda session: None
) -> float:
    """Seconds of CPU that a session takes for all messages of a job, on its own thread."""
    session = Session(Container(_named(config), Counting, remember_choices=100), history=megabytes)
    prepare(session)
    session.start()
    began = time.process_time()
    session.run("caught-up")
    session.wait()
    seconds = time.process_time() - began
    session.stop()
    return seconds


def _record(path: Path, session: Session) -> None:
    session.record(path, mb=100_000)


def _break(session: Session, on: str = "message") -> None:
    session.break_on(_NEVER if on == "message" else "after == -1", on=on)


def _named(config: sb.Config) -> sb.Config:
    # A name of its own: a job of the same name would go on from the checkpoints of the run before.
    return config.with_values({"job.name": f"debugger-{next(_runs)}"})
