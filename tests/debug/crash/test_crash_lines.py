"""The text of simulated crashes."""

from __future__ import annotations

from streambench.debug.crash.crash_lines import crash_lines
from tests.debug.control.test_time_travel import session_of
from tests.debug.crash.test_crash import NEVER, Counting, Forgetful, of


def test_a_crash_names_the_swap_of_the_code_that_runs_again() -> None:
    session, _ = session_of(Counting, of("a", "b", "commit", "a", "b"), NEVER)
    session.step(1)
    session.swap(Forgetful)
    session.step(1)
    crash = session.crash()
    lines = crash_lines(crash)
    assert (crash.swapped, bool(crash.differs)) == ((1,), True)
    assert lines[-3] == "what comes again runs with the code of position 2: it was swapped after 1"
    session.swap(Counting)
    session.undo()
    assert session.crash().swapped == (1,)
    session.swap(Counting)
    session.step(2)
    session.commit()
    session.step(1)
    assert session.crash().swapped == ()
    session.stop()
