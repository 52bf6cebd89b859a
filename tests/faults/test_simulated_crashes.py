"""The duplicates that a simulated crash names are those that a real one at the same step leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.debug import crash_everywhere
from streambench.debug.control.session import Session
from streambench.debug.crash.crash import Crash
from streambench.task import StreamTask
from streambench.testing import ManualClock
from tests.faults import job
from tests.faults.job import found
from tests.faults.test_every_step import GUARANTEES, Campaign
from tests.surroundings import SOAK

CHANGES = ("write", "pwrite", "link", "fsync")

Sent = Mapping[tuple[str, int, str], list[Any]]


@pytest.fixture(scope="module", params=GUARANTEES)
def campaign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """Crashes of a job whose outputs are written at once: none of them dies in a buffer."""
    config = job.config

    def without_linger(directory: Path, guarantee: str) -> Config:
        return config(directory, guarantee).with_values({"systems.log.linger.ms": 0})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "config", without_linger)
        yield Campaign(tmp_path_factory.mktemp("simulated"), request.param)


@pytest.fixture(scope="module")
def session(campaign: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The same job, run to its end without a crash."""
    made, _ = prepared(tmp_path_factory.mktemp("session"), campaign)
    run_to_end(made)
    yield made
    made.abandon()


def prepared(directory: Path, campaign: Campaign) -> tuple[Session, type[StreamTask]]:
    """A session of the job, and its task class."""
    job.prepare(directory / "run", job_messages(campaign))
    clock = ManualClock()
    task = job.task(clock)
    container = Container(job.config(directory / "run", campaign.guarantee), task, clock=clock)
    return Session(container), task


def run_to_end(session: Session) -> None:
    session.start()
    session.run("caught-up")
    session.wait()


def job_messages(campaign: Campaign) -> int:
    return int(max(campaign.undisturbed.offsets.values())) + 1


def twice(there: Sent, undisturbed: Sent) -> Counter[tuple[str, str, Any]]:
    """The outputs that are there more often than in an undisturbed run."""
    return bag(there) - bag(undisturbed)


def bag(outputs: Sent) -> Counter[tuple[str, str, Any]]:
    return Counter(
        (f"log.{stream}", key, message)
        for (stream, _, key), messages in outputs.items()
        for message in messages
    )


def simulated(crash: Crash) -> Counter[tuple[str, str, Any]]:
    assert (crash.outputs_new, crash.outputs_lost, crash.differs, crash.error) == ((), (), {}, None)
    return Counter((each.stream, each.key, each.message) for each in crash.outputs_twice)


def died(campaign: Campaign, step: int) -> Counter[tuple[str, str, Any]]:
    """The outputs that are twice after a crash at a step, and a start that runs to the end."""
    campaign.begin()
    assert campaign.dies(step)
    campaign.goes_on(f"died at step {step}")
    return twice(found(campaign.directory, campaign.guarantee).outputs, campaign.undisturbed.outputs)


def test_a_crash_between_two_messages_leaves_what_was_foretold(campaign: Campaign, session: Session) -> None:
    begins = [at for at, name in enumerate(campaign.steps, start=1) if name == "process"]
    assert len(begins) == session.latest
    # It dies as the next message is handed over.
    for position, step in list(enumerate(begins))[1 :: 1 if SOAK else 2]:
        session.goto(position)
        assert died(campaign, step) == simulated(session.crash()), f"after {position}"


def test_a_crash_inside_a_commit_leaves_what_was_foretold(campaign: Campaign, session: Session) -> None:
    assert session.history is not None
    positions = {event.position for event in session.history.events() if event.kind == "commit"}
    begins = [at for at, name in enumerate(campaign.steps, start=1) if name == "process"]
    inside = 0
    for position in sorted(positions):
        steps = campaign.steps[
            begins[position - 1] : begins[position] - 1 if position < len(begins) else None
        ]
        if "commit" not in steps or position == len(begins):
            continue
        # The first change of the disk after the last output: nothing of the commit is there yet.
        last = max((at for at, name in enumerate(steps) if name == "send"), default=0)
        after = next(
            at for at in range(last, len(steps)) if steps[at] in ("write", "pwrite", "link", "fsync")
        )
        session.goto(position)
        step = begins[position - 1] + 1 + after
        assert died(campaign, step) == simulated(session.crash(inside_commit=True)), f"inside {position}"
        inside += 1
    assert inside


def test_every_step_is_safe_under_exactly_once_only(campaign: Campaign, session: Session) -> None:
    report = crash_everywhere(session)
    assert report.steps == session.latest
    if campaign.guarantee == "exactly-once":
        assert str(report) == f"{report.steps} steps: all safe (exactly-once)"
    else:
        assert report.safe < report.steps


def test_a_recording_has_the_verdict_of_its_job(campaign: Campaign, session: Session, tmp_path: Path) -> None:
    recorded, task = prepared(tmp_path, campaign)
    recorded.record(tmp_path / "run.recording")
    run_to_end(recorded)
    report = crash_everywhere(recorded)
    recorded.stop()
    again = crash_everywhere(tmp_path / "run.recording", task=task)
    assert str(again) == str(report)
    assert again == report == crash_everywhere(session)
