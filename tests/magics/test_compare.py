"""``%stream crash``, and what else runs messages again to compare."""

from __future__ import annotations

from tests.magics.conftest import Shell
from tests.magics.test_time import tally

__all__ = ["tally"]


def test_crash_says_what_a_kill_would_do_here(tally: Shell) -> None:
    tally.run("%stream commit")
    tally.run("%stream step")
    assert tally.run("%stream crash").splitlines() == [
        "a kill -9 at 6 (simulated: nothing has changed)",
        "the job starts again from the commit at 5; 1 message comes again: mem.words.0@5",
        "mem.seen gets a message that was not sent before",
        '        6  -> mem.seen  {"seen": 1}',
        "state differs when they have come again: counts 3 keys",
        '        counts[a]  {"n": 3, "late": 1} -> -',
        "        counts[b]  n 2 -> 1",
        '        counts[c]  {"n": 1, "late": 1} -> -',
        "a crash takes what tasks keep in attributes, and stores without a changelog",
        "not safe (at-least-once)",
    ]
    assert tally.run("%stream wait").startswith("Tally is paused: 6 messages processed")


def test_crash_everywhere_gives_a_verdict_and_its_first_steps(tally: Shell) -> None:
    shown = tally.run("%stream crash --everywhere").splitlines()
    assert shown[0].endswith(
        "5 steps: 0 safe. After 1 mem.seen gets a message twice (at-least-once). "
        "Most of all: after 5 mem.seen gets 5 messages twice"
    )
    assert shown[1].strip() == "After 1 mem.seen gets a message twice; %stream goto 1, then %stream crash"
    assert shown[-1].strip() == "... and 1 more step"


def test_crash_inside_a_commit_needs_one_there(tally: Shell) -> None:
    assert "no task was committed at 5" in tally.fails("%stream crash --inside-commit")
    tally.run("%stream commit")
    inside = tally.run("%stream crash --inside-commit")
    assert inside.startswith("a kill -9 at 5, before the commit there is done")
    assert "mem.seen gets 5 messages twice" in inside
