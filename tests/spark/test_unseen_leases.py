"""Leases of jobs in Kafka that cannot be seen, or that two deployments take at the same moment."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streambench import Config
from streambench.checkpoint.api import Generation, LeaseHolder
from streambench.errors import StreamSystemError
from streambench.job import running as job_running
from streambench.job import starting, waits
from streambench.job.run import run
from streambench.job.running import JobRunningError
from streambench.spark import TakenOverError, rounds, running
from streambench.spark.rounds import Deployment
from streambench.spark.running import DeploymentLock
from streambench.spark.shared_session import SharedSession
from tests.spark.conftest import Job

OTHER = LeaseHolder("other", "deploy", 1, "host", 0)


class Ignore:
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None: ...


class Leases:
    """A group of leases. ``others``: those that are there once this process holds one."""

    directory: Path | None = None
    lease_s = 10.0
    is_lease_refused = False

    def __init__(
        self, *, is_seen: bool, is_taken: bool = True, others: list[LeaseHolder] | None = None
    ) -> None:
        self._is_seen = is_seen
        self._is_taken = is_taken
        self._others = others or []
        self.held: list[LeaseHolder] = []

    def take_lease(self, work: str) -> str:
        if self._is_taken:
            self.held = [LeaseHolder("own", "deploy", 2, "host", 1), *self._others]
        return "own"

    def lease_holders(self) -> list[LeaseHolder]:
        if not self._is_seen:
            raise StreamSystemError("not allowed")
        return self.held

    def close(self) -> None:
        self.held = []


def lock_of(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> DeploymentLock:
    for module in (running, job_running):
        monkeypatch.setattr(module, "checkpoint_manager", lambda config, job, is_quiet=False: leases)
    return DeploymentLock(Config({}), "job-1", "refuse")


def test_leases_that_may_not_be_seen_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job_running._warn_of_unseen.cache_clear()
    lock = lock_of(Leases(is_seen=False), monkeypatch)
    with caplog.at_level(logging.WARNING):
        lock.check()
        lock.acquire()
        lock.check()
    assert [each.getMessage() for each in caplog.records] == [
        "job-1: it is not known if another process works for it: not allowed"
    ]


def test_a_lease_that_is_not_taken_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(starting, "_SEEN_WITHIN_S", 0.2)
    lock = lock_of(Leases(is_seen=True, is_taken=False), monkeypatch)
    with caplog.at_level(logging.WARNING):
        lock.acquire()
    assert [each.getMessage() for each in caplog.records] == [
        "job-1: other starts of the job do not see this one: its lease was not taken within 0.2 s"
    ]


def test_a_lease_that_may_not_be_taken_is_warned_of_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leases = Leases(is_seen=True, is_taken=False)
    leases.is_lease_refused = True
    with caplog.at_level(logging.WARNING):
        lock_of(leases, monkeypatch).acquire()
    [warning] = [each.getMessage() for each in caplog.records]
    assert warning.startswith(
        "job-1: other starts of the job do not see this one: the user of the job may not join"
    )


def test_a_wait_for_the_own_lease_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Leases):
        """The lease is there when its holder has been told that it waits."""

        def lease_holders(self) -> list[LeaseHolder]:
            return self.held if shown else []

    shown: list[str] = []
    monkeypatch.setattr(waits, "_SHOWN_AFTER_S", 0.0)
    with waits.showing_waits(shown.append):
        lock_of(Late(is_seen=True), monkeypatch).acquire()
    assert shown == ["job-1: waiting until the broker shows other starts of the job that it runs here"]


def test_of_two_that_see_each_other_the_older_one_waits_for_the_younger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refused(Leases):
        """Another lease is there, until it was seen some times."""

        def lease_holders(self) -> list[LeaseHolder]:
            found = super().lease_holders()
            self.held = found[:1] if self.seen > 3 else found
            self.seen += 1
            return found

        seen = 0

    leases = Refused(is_seen=True, others=[LeaseHolder("younger", "deploy", 1, "host", 2)])
    lock = lock_of(leases, monkeypatch)
    lock.acquire()
    assert (lock.leased_as, lock.lock_path, leases.seen > 3) == ("own", "", True)
    assert lock.holders == ["own"]


def test_a_start_waits_for_a_lease_of_a_process_that_died_taking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Passing(waits.Wait):
        """A wait in which time passes by its pauses alone."""

        def pause(self, seconds: float) -> None:
            nonlocal now
            now += seconds

    class Late(Leases):
        """The other process died while it joined. Its lease ends twice the time of a lease later."""

        def lease_holders(self) -> list[LeaseHolder]:
            return super().lease_holders()[: 2 if now < 2 * self.lease_s else 1]

    lock = lock_of(Late(is_seen=True, others=[OTHER]), monkeypatch)
    monkeypatch.setattr(job_running, "_is_left", lambda holder: True)
    monkeypatch.setattr(job_running, "Wait", Passing)
    monkeypatch.setattr(job_running, "time", SimpleNamespace(monotonic=lambda: now))
    lock.acquire()
    assert (lock.holders, 20 <= now < 21) == (["own"], True)


@pytest.mark.parametrize("own", [0, 2])
def test_a_waiting_deployment_learns_of_a_newer_generation(
    job: Job, monkeypatch: pytest.MonkeyPatch, own: int
) -> None:
    """``own``: the last one that it has opened itself."""

    class Taken(Leases):
        """Its broker is away for a moment; another start begins when it was looked at some times."""

        looks = 0

        def last_generation(self) -> Generation:
            self.looks += 1
            if self.looks == 2:
                raise StreamSystemError("away")
            return Generation(2 if self.looks < 5 else 3, {})

    taken = Taken(is_seen=True)
    lock_of(taken, monkeypatch)
    monkeypatch.setattr(running, "_NEWER_S", 0.001)
    monkeypatch.setattr(rounds, "LOOK_S", 0.001)
    waiting = Deployment(job.config, Ignore, SharedSession(None, None), "refuse", {}, goes_on=True)
    run(job.config, task=Ignore)
    with closing(waiting):
        waiting._generation = own
        with pytest.raises(TakenOverError, match="job-1 was taken over by a newer start of the job"):
            waiting.rounds(600)
    assert taken.looks >= 5


def test_a_deployment_that_is_refused_holds_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases(is_seen=True, others=[OTHER])
    lock = lock_of(leases, monkeypatch)
    lock.check()
    with pytest.raises(
        JobRunningError,
        match=r"is being deployed by process 1 on host.*; if it was killed, its lease ends within 20 s of",
    ):
        lock.acquire()
    assert leases.held == []
    lock.check()
