"""When the process of a container that died is started again."""

from __future__ import annotations

import pytest

from streambench.config import Config
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.errors import ConfigError
from streambench.job.cumulative_counts import CumulativeCounts
from streambench.job.restarts import Restarts
from streambench.job.result import ContainerRun


def test_what_was_counted_before_a_process_died_is_counted_with_the_rest() -> None:
    tally, run = CumulativeCounts(), ContainerRun(0, 5, {}, 1.0, "caught-up", ErrorCounts(undecodable=1))
    assert tally.of(run) == run
    tally.add(7, ErrorCounts(undecodable=2, dead_letters=2))
    assert (tally.of(run).messages, tally.of(run).passed_over) == (
        12,
        ErrorCounts(undecodable=3, dead_letters=2),
    )


def pauses(restarts: Restarts, *deaths: float) -> list[float | None]:
    """The pauses after deaths at these moments; None where it is left dead."""
    after = [restarts.after_death("was killed", now) for now in deaths]
    return [None if each is None else each.pause_s for each in after]


def test_the_pause_doubles_and_there_is_an_end() -> None:
    assert pauses(Restarts(0, 3, 10, 0.5), 1, 2, 3, 4) == [0.5, 1, 2, None]


def test_a_container_that_has_run_for_a_while_counts_from_the_beginning() -> None:
    assert pauses(Restarts(0, 2, 10, 0.5), 1, 2, 12, 13, 14) == [0.5, 1, 0.5, 1, None]


def test_zero_is_never_and_negative_is_always_with_bounded_pauses() -> None:
    assert pauses(Restarts(0, 0, 10, 0.5), 1) == [None]
    assert pauses(Restarts(0, -1, 10, 0.5), *range(1000))[-1] == 30


def test_the_defaults_are_those_of_samza() -> None:
    restarts = Restarts.of(Config(), 1)
    assert pauses(restarts, *range(9))[-1] is None
    assert restarts.done == 8
    assert (
        str(Restarts.of(Config(), 1).after_death("was killed", 0))
        == "container 1: was killed; it is started again in 0.2 s (1 of 8)"
    )


def test_a_negative_pause_is_an_error_that_names_the_key() -> None:
    with pytest.raises(ConfigError) as told:
        Restarts.of(Config({"cluster-manager.container.retry.delay.ms": -1}), 0)
    assert told.value.key == "cluster-manager.container.retry.delay.ms"
