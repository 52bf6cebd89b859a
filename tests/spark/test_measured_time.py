"""The time of messages, as the history of rounds has it."""

from __future__ import annotations

import pytest

from streambench.model import SystemStreamPartition
from streambench.spark.history import ContainerRun, Run
from streambench.spark.measured_time import measured_time

IN = [SystemStreamPartition("log", "in", number) for number in (0, 1, 2)]


def round_of(*partitions: tuple[int, int, float], attempt: int = 0) -> Run:
    """A round with one container: per partition its number, messages and seconds."""
    container = ContainerRun(
        container=0,
        messages=sum(messages for _, messages, _ in partitions),
        seconds=sum(seconds for *_, seconds in partitions),
        attempt=attempt,
        offsets={},
        partition_messages={str(IN[number]): messages for number, messages, _ in partitions},
        partition_seconds={str(IN[number]): seconds for number, _, seconds in partitions},
    )
    return Run(generation=1, began_ms=0, master="local[2]", containers=[container])


def test_each_partition_has_the_time_that_its_messages_took() -> None:
    found = measured_time([round_of((0, 1000, 100.0), (1, 1000, 10.0))] * 2)
    assert found is not None and found.rounds == 2
    assert found.of(IN[0], 10) == pytest.approx(1.0, rel=0.01)
    assert found.of(IN[1], 10) == pytest.approx(0.1, rel=0.01)
    assert found.of(IN[2], 10) == pytest.approx(0.55, rel=0.01)  # never read: the average


def test_a_look_or_two_say_less_than_the_average() -> None:
    found = measured_time([round_of((0, 10_000, 10.0), (1, 1, 0.05), (2, 100, 0.0))])
    assert found is not None
    assert 0.001 < found.of(IN[1], 1) < 0.002
    assert 0.0005 < found.of(IN[2], 1) < 0.001


def test_only_the_last_ten_rounds_with_figures_count() -> None:
    old, new = round_of((0, 1000, 90.0)), round_of((0, 1000, 1.0))
    found = measured_time([old] * 5 + [new] * 10 + [round_of()] * 3)
    assert found is not None and found.rounds == 10
    assert found.of(IN[0], 1000) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(
    "rounds",
    [[], [round_of()], [round_of((0, 1000, 0.4))] * 2, [round_of((0, 1000, 50.0), attempt=1)]],
    ids=["none", "without figures", "too short", "started again"],
)
def test_rounds_that_say_too_little_are_no_measure(rounds: list[Run]) -> None:
    assert measured_time(rounds) is None
