"""A crash at every step of a job in turn: what the next start makes of it equals an undisturbed run, or
misses nothing of it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from tests.conftest import CHECKOUT
from tests.faults import job
from tests.faults.job import found, missing
from tests.faults.steps import Killed, Steps
from tests.surroundings import SOAK

GUARANTEES = ("at-least-once", "exactly-once")
MESSAGES = 12 if SOAK else 3


class Campaign:
    """Crashes of one job under one guarantee, each of them in a directory of its own."""

    def __init__(self, directory: Path, guarantee: str) -> None:
        self.guarantee = guarantee
        self.template = directory / "template"
        job.prepare(self.template, MESSAGES)
        self.directory = directory / "run"
        self.begin()
        steps = Steps()
        job.run(self.directory, guarantee, steps)
        self.steps = steps.names
        self.undisturbed = found(self.directory, guarantee)

    def begin(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(self.template, self.directory)

    def dies(self, at: int, *, torn: bool = False, guarantee: str | None = None) -> bool:
        """Run, and die at a step; whether it came to that."""
        try:
            job.run(self.directory, guarantee or self.guarantee, Steps(at, torn=torn))
        except Killed:
            return True
        return False

    def goes_on(self, what: str) -> None:
        """Start again, to the end, and judge."""
        job.run(self.directory, self.guarantee, Steps())
        self.judge(what)

    def judge(self, what: str) -> None:
        there = found(self.directory, self.guarantee)
        if self.guarantee == "exactly-once":
            assert there == self.undisturbed, what
        else:
            assert not missing(there.outputs, self.undisturbed.outputs), what
            assert (there.state, there.offsets) == (self.undisturbed.state, self.undisturbed.offsets), what
        kept = [
            path for path in self.directory.rglob("_jobs/**/*.json") if not path.read_bytes().endswith(b"}\n")
        ]
        assert not kept, f"{what}: effects that were applied are not kept"


@pytest.fixture(scope="module", params=GUARANTEES)
def campaign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return Campaign(tmp_path_factory.mktemp("faults"), request.param)


def test_the_job_does_all_that_a_crash_could_get_wrong(campaign: Campaign) -> None:
    steps = Counter(campaign.steps)
    assert (
        min(
            steps[name] for name in ("init", "process", "window", "send", "commit", "link", "fsync", "pwrite")
        )
        > 1
    )
    assert len(campaign.undisturbed.outputs) == 8
    assert set(campaign.undisturbed.offsets.values()) == {str(MESSAGES - 1)}
    if campaign.guarantee == "exactly-once":
        assert steps["ftruncate"] > 1


def test_a_crash_at_every_step(campaign: Campaign, progress: Callable[[], None]) -> None:
    # For each day, the first step of each kind and every eighth one.
    every = 1 if SOAK else 8
    for at, name in enumerate(campaign.steps, start=1):
        if at % every and name in campaign.steps[: at - 1]:
            continue
        for torn in (False, True) if name in ("write", "pwrite") else (False,):
            progress()
            campaign.begin()
            assert campaign.dies(at, torn=torn)
            campaign.goes_on(f"died at step {at} ({name}{', torn' if torn else ''})")


def test_one_crash_after_another(campaign: Campaign, progress: Callable[[], None]) -> None:
    """Whoever starts after a crash dies as well, again and again, at steps that chance chooses."""
    chance = random.Random(7)
    for _ in range(200 if SOAK else 5):
        progress()
        campaign.begin()
        deaths = []
        while len(deaths) < 20:
            deaths.append(chance.randrange(1, len(campaign.steps)))
            if not campaign.dies(deaths[-1]):
                break
        campaign.goes_on(f"died at steps {deaths}")


def test_a_crash_after_which_the_guarantee_is_another(
    campaign: Campaign, progress: Callable[[], None]
) -> None:
    """The last commit of a run that was exactly once is finished by one that is not, and the other way round.
    """
    chance = random.Random(8)
    other = GUARANTEES[1 - GUARANTEES.index(campaign.guarantee)]
    for _ in range(300 if SOAK else 10):
        progress()
        campaign.begin()
        first, second = (chance.randrange(1, len(campaign.steps)) for _ in range(2))
        campaign.dies(first)
        campaign.dies(second, guarantee=other)
        job.run(campaign.directory, campaign.guarantee, Steps())
        there = found(campaign.directory, campaign.guarantee)
        what = f"died at {first}, then ({other}) at {second}"
        assert not missing(there.outputs, campaign.undisturbed.outputs), what
        assert (there.state, there.offsets) == (campaign.undisturbed.state, campaign.undisturbed.offsets), (
            what
        )


def test_a_real_kill_9(campaign: Campaign, progress: Callable[[], None]) -> None:
    steps = range(1, len(campaign.steps) + 1)
    chosen = steps if SOAK else random.Random(9).sample(steps, 2)
    with _processes() as killed:
        for at in chosen:
            progress()
            campaign.begin()
            assert killed(campaign, at) == -signal.SIGKILL
            campaign.goes_on(f"killed at step {at}")


@contextmanager
def _processes() -> Iterator[Callable[[Campaign, int], int]]:
    """Gives what runs the job of a campaign in a process that dies at a step, and returns its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.job"],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None

    def killed(campaign: Campaign, at: int) -> int:
        process.stdin.write(orjson.dumps([str(campaign.directory), campaign.guarantee, at]) + b"\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    with process:
        yield killed


def test_what_is_missing_is_found() -> None:
    assert missing({"a": [1]}, {"a": [1, 2], "b": [3]}) == {"a": [2], "b": [3]}
