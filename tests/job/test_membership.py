"""Members of a group agree on rounds, late ones and slow coordinators included."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from streambench.job.membership import Assignment, Membership, Rebalance, living
from streambench.planning.model import JobModel

NOTHING = JobModel("job", ())


def settle(members: list[str], former: Mapping[str, list[str]]) -> Assignment:
    return Assignment(1, NOTHING, {})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def joined(directory: Path, *, rebalance_s: float = 0.05, session_s: float = 60) -> Membership:
    member = Membership(directory, session_s=session_s, rebalance_s=rebalance_s)
    member.join()
    return member


def current(member: Membership) -> Rebalance:
    found = member.round()
    assert found is not None
    return found


def test_who_was_late_is_not_waited_for_once_more_when_another_one_joins(directory: Path) -> None:
    first, slow = joined(directory), joined(directory)
    first.tick(settle)
    first.ready(1)
    while current(first).shares is None:
        first.tick(settle)
    assert current(first).late == [slow.name]
    third = Membership(directory, session_s=60, rebalance_s=3600)
    patient = Membership(directory, session_s=60, rebalance_s=3600)
    patient.name = first.name
    third.join()
    patient.tick(settle)
    assert (current(first).number, current(first).members, current(first).late) == (
        2,
        [first.name, third.name],
        [slow.name],
    )
    first.ready(2)
    third.ready(2)
    patient.tick(settle)
    assert current(first).shares is not None
    # It belongs to the group again once it is ready.
    slow.ready(2)
    patient.tick(settle)
    assert (current(first).number, current(first).members, current(first).late) == (
        3,
        [first.name, slow.name, third.name],
        [],
    )


def test_a_coordinator_that_asks_for_long_is_not_missed(directory: Path) -> None:
    session_s = 0.3
    first = joined(directory, session_s=session_s)
    first.tick(settle)
    first.ready(1)
    present: list[bool] = []

    def settle_slowly(members: list[str], former: Mapping[str, list[str]]) -> Assignment:
        # For as long as several sessions: it is seen alive, and shows that five times in each.
        file = directory / "members" / f"{first.name}.member"
        versions = {file.stat().st_mtime_ns}
        while len(versions) < 15:
            versions.add(file.stat().st_mtime_ns)
            present.append(bool(living(directory / "members", 60)))
            threading.Event().wait(0.01)
        return settle(members, former)

    began = time.monotonic()
    first.tick(settle_slowly)
    assert time.monotonic() - began > session_s
    assert all(present)
    assert current(first).shares is not None


def test_what_cannot_be_settled_now_is_settled_at_a_later_tick(directory: Path) -> None:
    only = joined(directory)
    only.tick(settle)
    only.ready(1)
    only.tick(lambda members, former: None)
    assert (current(only).number, current(only).shares) == (1, None)
    only.tick(settle)
    assert (current(only).number, current(only).shares is None) == (1, False)


def test_a_round_is_read_once(directory: Path) -> None:
    first, second = joined(directory), joined(directory)
    assert second.round() is None
    first.tick(settle)
    begun = second.round()
    assert second.round() is begun
    first.ready(1)
    second.ready(1)
    first.tick(settle)
    settled = second.round()
    assert settled != begun
    assert settled == first.round()
