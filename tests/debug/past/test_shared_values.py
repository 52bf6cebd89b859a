"""Globals and class attributes that code changes when it runs again."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import streambench as sb
from streambench.debug.past.shared_values import SharedValues
from tests.debug.control.test_time_travel import session_of

seen: list[str] = []
count = 0
limit = 3


def note(offset: str) -> None:
    global count
    count += 1
    seen.append(offset)


class Sharing(sb.StreamTask):
    """Keeps offsets in a global and in an attribute of its class."""

    total = 0
    names: ClassVar[dict[str, int]] = {}

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        note(envelope.offset)
        type(self).total += limit
        self.names[envelope.offset] = 1


class Own(sb.StreamTask):
    """Keeps what it has seen in itself, and reads a global."""

    def init(self, context: sb.TaskContext) -> None:
        self.seen: list[str] = []

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen.append(envelope.offset * limit)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "changed what no position brings back" in each]


def test_values_that_changed_are_named() -> None:
    before = SharedValues(Sharing)
    assert before.changed() == []
    note("0")
    Sharing.total += 1
    assert sorted(before.changed()) == ["Sharing.total", "the global count", "the global seen"]


def test_a_look_at_attributes_that_changes_them_names_them_once(caplog: pytest.LogCaptureFixture) -> None:
    session, _ = session_of(Sharing, {"mem.in": {0: [{"key": "a"}] * 4}})
    session.step(4)
    for _ in range(2):
        session.back(1)
        session.attributes()
    (warning,) = warnings(caplog)
    for name in ("Sharing.total", "the global count", "the global seen"):
        assert name in warning
    session.stop()


def test_a_task_that_keeps_to_itself_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    session, _ = session_of(Own, {"mem.in": {0: [{"key": "a"}] * 4}})
    session.step(4)
    session.back(2)
    session.attributes()
    assert not warnings(caplog)
    session.stop()
