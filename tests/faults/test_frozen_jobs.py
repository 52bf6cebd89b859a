"""A job that freezes at any step is replaced by its next start, and is refused when it goes on."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import job
from tests.faults.job import found, missing
from tests.faults.steps import Steps
from tests.frozen import Freezing, Frozen
from tests.surroundings import SOAK

MESSAGES = 12 if SOAK else 3
SAMPLES = None if SOAK else 12
FENCED = {"FencedError", "ReplacedError", "SupersededError"}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_job_that_freezes_loses_and_doubles_nothing(
    tmp_path: Path, guarantee: str, monkeypatch: pytest.MonkeyPatch, progress: Callable[[], None]
) -> None:
    monkeypatch.setattr(job, "LEASE_MS", 100)
    template, whole = tmp_path / "template", tmp_path / "whole"
    job.prepare(template, MESSAGES)
    shutil.copytree(template, whole)
    with Freezing(0) as steps:
        job.run(whole, guarantee, Steps())
    undisturbed = found(whole, guarantee)
    outcomes: dict[str, int] = {}
    every = range(1, steps.count + 1)
    for at in every if SAMPLES is None else sorted(random.Random(7).sample(every, SAMPLES)):
        directory = tmp_path / "run"
        shutil.copytree(template, directory)
        progress()
        frozen = Frozen(at, lambda where=directory: job.run(where, guarantee, Steps()))  # type: ignore[misc]
        job.run(directory, guarantee, Steps())
        outcome = frozen.thaw()
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        job.run(directory, guarantee, Steps())
        there = found(directory, guarantee)
        if guarantee == "exactly-once":
            assert there == undisturbed, f"step {at}: {outcome}"
        else:
            assert not missing(there.outputs, undisturbed.outputs), f"step {at}: {outcome}"
            assert (there.state, there.offsets) == (undisturbed.state, undisturbed.offsets), (
                f"step {at}: {outcome}"
            )
        shutil.rmtree(directory)
    # One that has not begun, or has ended, is not in the way of another.
    assert set(outcomes) <= {"done", "LockLostError", *FENCED, "CheckpointError"}, outcomes
    assert sum(outcomes.get(each, 0) for each in FENCED) > 0
