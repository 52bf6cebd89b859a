"""Cost of a history, and of going back in it: a job that counts in a store, sends, and keeps attributes.
Speed by the CPU time of the best round; moves by that of the thread, the median of random ones."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import orjson

import streambench as sb
from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.debug.view.entries import first_entries

from . import back
from .back import milliseconds
from .container import fill_log, in_turns, log_job
from .data import messages
from .report import Figure

_MOVES = 15
_UNBOUNDED_MB = 8_000
STORE = {"stores.n.factory": "memory", "stores.n.msg.serde": "json", "stores.n.changelog": "none"}
_runs = itertools.count()


class Counting(sb.StreamTask):
    """Counts by user in a store, sends every tenth count, and keeps the last numbers as attributes."""

    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("n")
        self.seen = 0
        self.last: dict[int, int] = {}

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        row = orjson.loads(envelope.message)
        count = (self.store.get(row["user"]) or 0) + 1
        self.store.put(row["user"], count)
        self.seen += 1
        self.last[row["n"]] = count
        if self.seen % 10 == 0:
            collector.send("bench.out", b"%d" % count, key=row["user"].encode())


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The speed with a history, its size, and the time that moves take."""
    config = log_job(directory / "log").with_values(STORE)
    fill_log(config, messages(count).partitions)
    runs = {
        "off": partial(_run, config, 0),
        "on": partial(_run, config, 256),
    }
    best = in_turns(runs, rounds, count)
    note = f"{best['on']:.0f} ns, {best['off']:.0f} without"
    yield Figure("history: on / off, messages per second", best["off"] / best["on"], "x", 0.5, note=note)
    session = _session(config, _UNBOUNDED_MB)
    for reached in sorted({min(count, 100_000), count}):
        session.run(reached - session.position)
        session.wait()
        yield from _moves(session)
    session.abandon()
    yield from back.measure(directory)


def _moves(session: Session) -> Iterator[Figure]:
    """Random moves, each with all that a panel shows of it; and looks at attributes, which have tasks run."""
    chance = random.Random(7)
    gone, stepped, looked = [], [], []

    def go(move: Callable[[], object]) -> float:
        def go_and_look() -> None:
            move()
            first_entries(session)
            session.offsets()
            session.effects(session.position - 1)

        return milliseconds(go_and_look)

    for _ in range(_MOVES):
        target = chance.randrange(1, session.latest)
        gone.append(go(partial(session.goto, target)))
        looked.append(milliseconds(session.attributes))
        stepped.append(go(session.back))
    session.go_live()
    history = session.history
    assert history is not None
    where = f"in {session.latest:,} messages"
    yield _figure(f"goto anywhere {where}", gone, 1_000)
    yield _figure(f"back one step {where}", stepped, 100)
    yield _figure(f"a look at attributes anywhere {where}", looked, 1_000)
    yield Figure(f"history: memory per message {where}", history.size / session.latest, "bytes")


def _figure(what: str, times: list[float], aim: float) -> Figure:
    note = f"{max(times):.0f} ms at most"
    return Figure(f"history: {what}", statistics.median(times), "ms", aim, True, note)


def _session(config: sb.Config, megabytes: int) -> Session:
    named = config.with_values({"job.name": f"history-{next(_runs)}"})
    session = Session(Container(named, Counting), history=megabytes)
    session.start()
    return session


def _run(config: sb.Config, megabytes: int) -> float:
    """Seconds of CPU that a job takes for all its messages."""
    session = _session(config, megabytes)
    began = time.process_time()
    session.container.run("caught-up")
    seconds = time.process_time() - began
    session.stop()
    return seconds
