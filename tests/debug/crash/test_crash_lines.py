"""The text of simulated crashes."""

from __future__ import annotations

from streambench.debug.crash.crash_lines import crash_lines, report_lines
from streambench.debug.crash.crash_report import CrashStep, Report
from tests.debug.control.test_time_travel import session_of
from tests.debug.crash.test_crash import EXACTLY_ONCE, NEVER, Counting, Forgetful, crashed, of


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


def test_several_outputs_that_are_not_sent_again_are_no_single_one() -> None:
    lines = crash_lines(crashed(Forgetful, ("a", "commit", "a", "b"), EXACTLY_ONCE))
    assert "mem.out gets 2 messages less: not sent again" in lines


def test_only_at_least_once_are_outputs_out_before_the_commit() -> None:
    unsafe = (CrashStep(position=3, inside_commit=True, new={"mem.out": 1}),)
    by_guarantee = {
        each: report_lines(Report(0, 3, each, unsafe))[-1] for each in ("at-least-once", "exactly-once")
    }
    assert "(outputs are out, the checkpoint is not written)" in by_guarantee["at-least-once"]
    assert "not safe inside the commit (before it is done) at 3" in by_guarantee["exactly-once"]
