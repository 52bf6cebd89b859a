"""The standing of a job that does not move: what a panel shows of it is what was."""

from __future__ import annotations

from typing import Any

import pytest

import streambench as sb
from streambench.debug import Session
from streambench.debug.view.panel_state import PanelState, PanelStateReader
from tests.debug.control.test_hot_swap import words
from tests.debug.control.test_time_travel import Counter, session_of
from tests.debug.terminal.test_terminal_view import Shown


def frame_of(session: Session) -> PanelState:
    return PanelStateReader(Shown(session)).take()


def test_in_the_past_a_partition_that_was_not_read_by_then_is_at_its_begin() -> None:
    session, _ = session_of(Counter, {"mem.in": {n: [{"key": "a"}] * 3 for n in range(2)}})
    assert session.step(6) == 6
    for position, expected in ((0, [("0", 3), ("0", 3)]), (1, [("1", 2), ("0", 3)]), (6, [("3", 0)] * 2)):
        session.goto(position)
        shown = frame_of(session).snapshot.partitions
        assert [(each.position, each.lag) for each in shown] == expected
    session.stop()


def test_a_swap_with_its_init_is_seen_where_the_job_stands() -> None:
    class New(Counter):
        def init(self, context: sb.TaskContext) -> None:
            super().init(context)
            self.seen = 99
            self.store.put("new", 1)

    session, _ = session_of(Counter, words("abc"))
    session.watch("seen", "self.seen")
    session.step(2)
    reader = PanelStateReader(Shown(session))

    def shown() -> tuple[list[Any], list[str]]:
        standing = reader.take().standing
        assert standing is not None
        return [each.key for each in standing.entries.shown], [each.value for each in standing.watches]

    assert shown() == (["a", "b"], ["2"])
    session.swap(New, init=True)
    assert shown() == (["a", "b", "new"], ["99"])
    session.undo()
    assert shown() == (["a", "b", "new"], ["2"])
    session.stop()


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_that_its_task_changes_is_shown_as_it_was_read(fails: bool) -> None:
    class Changing(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if fails and envelope.offset == "1":
                raise ValueError

    session, _ = session_of(Changing, words("ab"))
    if fails:
        with pytest.raises(sb.TaskError) as failed:
            session.step(2)
        of_error = session.message_of(failed.value)
        assert of_error is not None and of_error.message == {"key": "b"}
    else:
        session.step(2)
    assert session.message is not None and session.message.message == {"key": "b"}
    shown = frame_of(session).message
    assert shown is not None and shown.line == '{"key": "b"}'
    session.stop()


def test_a_watch_that_has_changed_stays_marked_when_it_is_read_again() -> None:
    session, _ = session_of(inputs=words("ab"))
    reader = PanelStateReader(Shown(session))

    def marked() -> list[str]:
        standing = reader.take().standing
        assert standing is not None
        return [each.name for each in standing.watches if each.changed]

    session.watch("key", "store['a']")
    assert marked() == []
    session.step()
    assert marked() == ["key"]
    reader.standing.search = "a"  # read again, where it stands
    assert marked() == ["key"]
    session.watch("other", "position")
    assert marked() == ["key"]
    session.step()
    assert marked() == ["other"]
