"""The arrow key held: steps back in a history, where tasks keep much in memory, or where there are many
partitions. By the CPU time of the thread that moves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import streambench as sb
from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.debug.view.panel_state import PanelStateReader

from .container import fill_log, log_job
from .data import PARTITIONS, messages
from .report import Figure

_MESSAGES = 100_000
_STEPS = 100
_OBJECTS = 250_000
_ROWS = 100_000
_TEXTS = 700_000
_MANY = 1_000


class Row:
    """An object with two attributes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text = str(number)


class Holding(sb.StreamTask):
    """Keeps its part of many values in an attribute, and changes one of them with each message."""

    def init(self, context: sb.TaskContext) -> None:
        self.seen = 0
        self.values: Any = self.made()

    def made(self) -> Any:
        return {}

    def change(self, number: int) -> None:
        self.values[number % 100] = number

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        self.seen += 1
        self.change(self.seen * 7)


class Objects(Holding):
    """250,000 objects in all, in dicts."""

    def made(self) -> Any:
        return {number: Row(number) for number in range(_OBJECTS // PARTITIONS)}

    def change(self, number: int) -> None:
        self.values[number % len(self.values)].number += 1


class Rows(Holding):
    """100,000 dicts in all, in dicts."""

    def made(self) -> Any:
        return {number: {"a": number, "b": str(number)} for number in range(_ROWS // PARTITIONS)}

    def change(self, number: int) -> None:
        self.values[number % len(self.values)]["a"] += 1


class Texts(Holding):
    """700,000 texts in all, in dicts: 100 MB."""

    def made(self) -> Any:
        return {number: f"{number:100}" for number in range(_TEXTS // PARTITIONS)}

    def change(self, number: int) -> None:
        self.values[number % len(self.values)] = f"{number:100}"


_HELD: dict[str, type[Holding]] = {
    "250,000 objects": Objects,
    "100,000 dicts": Rows,
    "700,000 texts": Texts,
}


class _Shown:
    """A job that a panel shows."""

    name = "bench"
    busy_at = ""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.snapshot = session.snapshot

    @property
    def state(self) -> str:
        return self.session.state


def measure(directory: Path) -> Iterator[Figure]:
    """The time of the first step back and of those that follow, without a look at attributes and with one."""
    config = log_job(directory / "back")
    fill_log(config, messages(_MESSAGES).partitions)
    for name, task in _HELD.items():
        session = _at_end(config, task)
        yield _held(f"{name} in attributes", session, session.back)
        session.go_live()
        session.watch("seen", "self.seen")

        def step(session: Session = session) -> None:
            session.back()
            session.watches()

        yield _held(f"{name} in attributes, and a watch of self", session, step)
        session.abandon()
    config = log_job(directory / "many").with_values({"job.name": "many"})
    every = messages(_MESSAGES).all
    fill_log(config, [every[number::_MANY] for number in range(_MANY)])
    session = _at_end(config, Holding)
    view = PanelStateReader(_Shown(session))

    def step_shown() -> None:
        session.back()
        view.take()

    yield _held(f"{_MANY:,} partitions, and the panel's view", session, step_shown)
    session.abandon()


def _at_end(config: sb.Config, task: type[sb.StreamTask]) -> Session:
    session = Session(Container(config.with_values({"job.name": task.__name__}), task, remember_choices=100))
    session.start()
    session.run("caught-up")
    session.wait()
    return session


def _held(what: str, session: Session, step: Callable[[], object]) -> Figure:
    first = milliseconds(step)
    following = [milliseconds(step) for _ in range(_STEPS)]
    note = f"the first {first:.0f} ms; {max(following):.0f} ms at most"
    return Figure(f"history: back again, {what}", statistics.median(following), "ms", 100, True, note)


def milliseconds(move: Callable[[], object]) -> float:
    """The CPU time of this thread that a move takes."""
    began = time.thread_time()
    move()
    return (time.thread_time() - began) * 1e3
