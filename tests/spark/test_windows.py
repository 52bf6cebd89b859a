"""Windows of a job that is deployed again and again: they count on from one deployment to the next."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.container import container as containers
from streambench.container.timers import WindowsLeft
from streambench.spark import plan
from streambench.spark.plan import make_plan, open_generation
from streambench.spark.result import DeployedContainer
from streambench.spark.worker import Report, RunContainers, Shipment
from tests.container.counting import EVERY, STEP_MS, Counts, Time, counted, job, put


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A job whose deployments have the tests' own clock."""
    for module in (containers, plan):
        monkeypatch.setattr(module, "SystemClock", lambda: Time.clock)
    return job(tmp_path)


def deploy(config: Config) -> Report:
    """Run container 0 as a deployment does, in this process."""
    planned = make_plan(config, Counts)
    shipment = Shipment(
        config,
        Counts,
        model=planned.model,
        ends=planned.ends,
        directories={},
        sources={},
        progress=None,
        names={},
    )
    run = RunContainers(pickle.dumps(shipment))
    run.generation = open_generation(planned)
    report = run.run(0)
    assert report.failure is None
    return report


def test_ten_deployments_count_the_same_windows_as_one_run(config: Config) -> None:
    for _ in range(10):
        put(config, 10)
        deploy(config)
    assert counted(config) == [EVERY] * (100 // EVERY)


def test_a_deployment_has_something_to_do_when_a_window_is_due(config: Config) -> None:
    put(config, 3)
    assert deploy(config).windows_left == WindowsLeft(3, EVERY * STEP_MS)
    Time.clock.advance((EVERY - 3) * STEP_MS - 1)
    assert make_plan(config, Counts).idle
    Time.clock.advance(1)
    assert not make_plan(config, Counts).idle
    assert deploy(config).windows_left.has_run
    assert counted(config) == [3]
    assert make_plan(config, Counts).idle


def test_of_rounds_only_messages_since_the_last_window_are_told() -> None:
    first, second = WindowsLeft(3, 1000), WindowsLeft(2, 1000)
    assert first.then(second).messages == 5
    assert not first.then(WindowsLeft(0, 1000, has_run=True))
    assert DeployedContainer(number=0, tasks=(), offsets={}).windows_left == WindowsLeft()
