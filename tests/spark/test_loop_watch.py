"""A watch beside a container: the time of its partitions, and the message that takes long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streambench.debug.control.busy import Busy
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.spark import loop_watch
from streambench.spark.loop_watch import LoopWatch

IN = [SystemStreamPartition("log", "in", number) for number in (0, 1)]


class Watched:
    """A container at a message, and its clock."""

    busy_s = 0.0

    def __init__(self) -> None:
        self.now = 0.0
        self.current_input: IncomingMessageEnvelope | None = None
        self.status = SimpleNamespace(initialising="")
        self.said: list[tuple[str, float]] = []
        container: Any = self
        self.watch = LoopWatch(
            container,
            {IN[0]: "Partition 0"},
            lambda what, s: self.said.append((what, s)),
            now=lambda: self.now,
        )

    def at(self, seconds: float, partition: int | None) -> None:
        """Look, so many seconds after the last look."""
        self.now += seconds
        self.current_input = (
            None if partition is None else IncomingMessageEnvelope(IN[partition], "8", None, b"")
        )
        self.watch.look()


def test_the_time_between_two_looks_is_that_of_the_partition_at_work() -> None:
    watched = Watched()
    for seconds, partition in ((5.0, None), (0.1, 0), (0.3, 1), (0.1, 0), (0.5, None), (0.2, 1)):
        watched.at(seconds, partition)
    assert watched.watch.seconds_by_partition == {IN[0]: 0.2, IN[1]: 0.5}


def test_a_message_that_takes_long_is_named_with_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(
        loop_watch, "busy_with",
        lambda container, driver: Busy(watched.now, IN[0], "8", "k2", "/jobs/late.py", 6, "time.sleep(60)"),
    )  # fmt: skip
    for _ in range(12):
        watched.at(0.5, 0)
    said = "Partition 0 at log.in.0@8 key k2, late.py line 6: time.sleep(60)"
    assert watched.said == [(said, 5.0), (said, 6.0)]


def test_an_init_that_takes_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(loop_watch, "busy_with", lambda container, driver: None)
    watched.status.initialising = "Partition 0"
    for _ in range(7):
        watched.at(1.0, None)
    assert watched.said == [("the init of Partition 0", 5.0), ("the init of Partition 0", 6.0)]
    watched.status.initialising = ""
    watched.at(1.0, None)
    assert len(watched.said) == 2
