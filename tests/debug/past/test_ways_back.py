"""Ways back in the history: which of them run code again, and how many messages."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import streambench as sb
from streambench.debug.control.session import Session
from streambench.debug.history.changes import Contents
from streambench.errors import TaskError
from tests.debug.control.test_time_travel import Counter, session_of, shown


@pytest.fixture
def near_waypoints(one_block: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history has one block, and waypoints are close to each other."""
    monkeypatch.setattr("streambench.debug.past.way._NEAR", 20)
    monkeypatch.setattr("streambench.debug.past.way._FAR", 100)
    monkeypatch.setattr("streambench.debug.past.way._AGAIN_S", 100)


class Noting(Counter):
    """Notes each message in a list that no position brings back, and raises at one if it is there already."""

    noted: ClassVar[list[str]] = []
    raises = ""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.offset == self.raises and envelope.offset in self.noted:
            raise ValueError("not twice")
        self.noted.append(envelope.offset)
        super().process(envelope, collector, coordinator)


def noting(raises: str = "") -> tuple[Session, dict[int, Any]]:
    """A session at its seventh message, and what each position showed."""
    Noting.noted.clear()
    Noting.raises = raises
    session, _ = session_of(Noting, {"mem.in": {0: [{"key": key} for key in "abcabca"]}})
    seen = {0: shown(session)}
    while session.step():
        seen[session.position] = shown(session)
    return session, seen


@pytest.mark.usefixtures("near_waypoints")
def test_the_past_runs_no_code_before_attributes_are_looked_at() -> None:
    session, seen = noting()
    noted = list(Noting.noted)
    for position in (6, 5, 6, 2, 3, 0):
        session.goto(position)
        assert (session.stores(), session.offsets()) == (seen[position][0], seen[position][2])
        assert len(session.outputs()) == len(seen[position][3])
        assert session.watches() == {}
    assert Noting.noted == noted
    session.goto(3)
    assert session.attributes()["Partition 0"]["seen"] == 3
    assert Noting.noted == noted + noted[:3]
    session.stop()


@pytest.mark.usefixtures("near_waypoints")
def test_a_watch_of_attributes_has_each_step_back_run_the_task() -> None:
    session, _ = noting()
    session.watch("seen", "self.seen")
    session.watch("key", "message['key']")
    assert session.back(2) == 5
    assert len(Noting.noted) > 7
    assert session.watches() == {"seen": 5, "key": "b"}
    session.stop()


@pytest.mark.usefixtures("near_waypoints")
def test_a_task_that_raises_when_it_runs_again_still_shows_its_stores() -> None:
    session, seen = noting(raises="2")
    session.watch("seen", "self.seen")
    assert session.back(2) == 5
    assert session.stores() == seen[5][0]
    assert "not twice" in str(session.watches()["seen"])
    with pytest.raises(TaskError, match="not twice"):
        session.attributes()
    assert session.goto(2) == 2
    assert shown(session) == seen[2]
    session.stop()


class Large(Counter):
    """Keeps its messages in objects, and counts how many it is given in all."""

    given = 0
    own: ClassVar[Any] = dict

    def init(self, context: sb.TaskContext) -> None:
        super().init(context)
        self.rows = {number: SimpleNamespace(seen=[]) for number in range(10)}
        self.more = type(self).own()

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        Large.given += 1
        self.rows[self.seen % 10].seen.append(envelope.message["key"])
        super().process(envelope, collector, coordinator)


def seen_by_large(task: type[Large]) -> tuple[Session, dict[int, Any]]:
    """A session at its newest position, and the attributes at each."""
    session, _ = session_of(task, {"mem.in": {0: [{"key": "abcd"[each % 4]} for each in range(300)]}})
    seen = {0: session.attributes()["Partition 0"]["rows"]}
    while session.step():
        seen[session.position] = session.attributes()["Partition 0"]["rows"]
    history = session.history
    assert history is not None and len(history.blocks) == 1
    return session, seen


@pytest.mark.usefixtures("near_waypoints")
def test_steps_back_that_look_at_attributes_run_few_messages_again() -> None:
    session, seen = seen_by_large(Large)
    most = []
    for position in range(299, 100, -1):
        Large.given = 0
        assert session.back() == position
        assert session.attributes()["Partition 0"]["rows"] == seen[position]
        most.append(Large.given)
    assert most[0] == 299
    # Then all of them twice: once from the far waypoint on, in parts, and at the next one.
    assert sorted(most[1:])[:180] <= [20] * 180
    assert sum(each > 100 for each in most[1:]) <= 1
    for position in (160, 150, 155, 170, 120, 299, 250, 254, 253):
        session.goto(position)
        assert session.attributes()["Partition 0"]["rows"] == seen[position]
    session.stop()


@pytest.mark.usefixtures("near_waypoints")
@pytest.mark.parametrize("large_s", [0.0, 100.0])
def test_a_first_look_goes_over_all_objects_once(large_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    session, seen = seen_by_large(Large)
    monkeypatch.setattr("streambench.debug.past.way._LARGE_S", large_s)
    found: list[int] = []
    keep = Contents._keep

    def noted(contents: Contents, *args: Any) -> bool:
        before = len(contents._objects)
        known = keep(contents, *args)
        found.append(len(contents._objects) - before)
        return known

    monkeypatch.setattr(Contents, "_keep", noted)
    session.goto(250)
    assert session.attributes()["Partition 0"]["rows"] == seen[250]
    assert max(found) == sum(found)
    session.stop()


class LargeWithState(Large):
    """Keeps an object whose state cannot be looked at."""

    own = itertools.count


@pytest.mark.usefixtures("near_waypoints")
def test_objects_that_hide_their_state_have_all_messages_run_again() -> None:
    session, seen = seen_by_large(LargeWithState)
    for position in (299, 298, 50, 49):
        Large.given = 0
        session.goto(position)
        assert session.attributes()["Partition 0"]["rows"] == seen[position]
        assert Large.given == position
    session.stop()


@pytest.mark.usefixtures("near_waypoints")
def test_waypoints_take_no_memory_that_the_history_may_not_have() -> None:
    session, seen = seen_by_large(Large)
    assert session.history is not None
    session.history.limit = session.history.size
    for position in (299, 298):
        Large.given = 0
        session.goto(position)
        assert session.attributes()["Partition 0"]["rows"] == seen[position]
        assert Large.given == position
    session.stop()
