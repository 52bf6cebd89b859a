"""``%stream crash``, ``compare`` and ``shrink``."""

from __future__ import annotations

from pathlib import Path

from tests.magics.commands.test_rewind import summed
from tests.magics.commands.test_time import CONFIG, TASK, tally
from tests.magics.conftest import Shell

__all__ = ["summed", "tally"]

NEWER = TASK.replace("Tally", "Newer").replace("+ 1, ", '+ (2 if envelope.message == "c" else 1), ')
FAILING = TASK.replace("Tally", "Failing").replace(
    "    counts = ", '    if envelope.message == "c":\n        raise ValueError("no c")\n    counts = '
)


def test_crash_says_what_a_kill_would_do_here(tally: Shell) -> None:
    tally.run("%stream commit")
    tally.run("%stream step")
    assert tally.run("%stream crash").splitlines() == [
        "a kill -9 at 6 (simulated: nothing has changed)",
        "the job starts again from the commit at 5; 1 message comes again: mem.words.0@5",
        "mem.seen gets a message not sent before",
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
    assert shown[1:] == ["        not safe after 1, 2, 3, 4 and 1 more: %stream goto 1, %stream crash"]


def test_an_interrupted_crash_everywhere_prints_the_verdicts_so_far(tally: Shell) -> None:
    armed = "    if armed and envelope.offset == '2':\n        raise KeyboardInterrupt\n"
    tally.names["armed"] = False
    tally.run(
        TASK.replace("Tally", "Armed").replace(
            "    context.user.seen += 1\n", armed + "    context.user.seen += 1\n"
        )
    )
    tally.run("%stream create Armed --config tallied")
    tally.run("%stream step 5")
    tally.names["armed"] = True
    shown = tally.run("%stream crash --everywhere").splitlines()
    assert shown[-2:] == [
        "interrupted: 2 of 5 steps looked at: 0 safe. After 1 mem.seen gets a message twice (at-least-once). "
        "Most of all: after 2 mem.seen gets 2 messages twice",
        "        not safe after 1, 2: %stream goto 1, %stream crash",
    ]


def test_a_job_that_is_compared_names_its_task(tally: Shell) -> None:
    tally.run("%stream create counted --task Tally --config tallied")
    said = tally.fails("%stream compare counted Tally")
    assert "counted is a job: name its task, Tally" in said


def test_crash_inside_a_commit_needs_one_there(tally: Shell) -> None:
    assert "no task was committed at 5" in tally.fails("%stream crash --inside-commit")
    tally.run("%stream commit")
    inside = tally.run("%stream crash --inside-commit")
    assert inside.startswith("a kill -9 at 5, before the commit there is done")
    assert "mem.seen gets 5 messages twice" in inside


def test_a_task_of_a_file_is_compared(tally: Shell) -> None:
    Path("newer_tally.py").write_text("class Newer:\n    def process(self, *_):\n        pass\n")
    shown = tally.run("%stream compare Tally newer_tally.py:Newer")
    assert shown.startswith("5 messages through Tally and newer_tally.py:Newer: 0 alike, 5 differ")


def test_compare_runs_the_last_messages_through_two_tasks(tally: Shell) -> None:
    tally.run(NEWER)
    expected = [
        "5 messages through Tally and Newer: 4 alike, 1 differs; first at 4: counts[c] n 1 -> 2",
        "     4  mem.words.0@3  c",
        "                     Tally  Newer",
        "        -> mem.seen      5      5",
        "state at the end, Tally -> Newer: 1 key differs",
        "        counts[c]  n 1 -> 2",
    ]
    assert tally.run("%stream compare Tally Newer").splitlines() == expected
    assert tally.run("%stream compare Newer").splitlines()[0] == expected[0].replace(
        "Tally and", "Tally as it runs and"
    )
    assert tally.run("%stream compare Tally Newer --last 1").startswith(
        "1 message through Tally and Newer: equal"
    )
    assert tally.run("%stream wait").startswith("Tally is paused: 5 messages processed")


def test_streams_are_read_from_their_system_while_a_replay_is_open(summed: Shell) -> None:
    for line in ("commit", "record sum.recording", "step", "stop", "replay sum.recording"):
        summed.run(f"%stream {line}")
    shown = summed.run("%stream compare Sum Sum --over log.numbers")
    assert shown.startswith("10 messages through Sum and Sum: equal")
    summed.run("%stream peek log.numbers")
    assert [each["message"] for each in summed.value] == list(range(10))


def test_compare_reads_a_stream_or_a_range_of_it(tally: Shell) -> None:
    tally.run(NEWER)
    shown = tally.run("%stream compare Tally Newer --over mem.words")
    assert shown.startswith("6 messages through Tally and Newer: 5 alike, 1 differs; first at 4: counts[c]")
    shown = tally.run("%stream compare Tally Newer --over mem.words.0@0..2")
    assert shown.startswith("3 messages through Tally and Newer: equal")


def test_compare_runs_a_task_with_two_configurations(tally: Shell) -> None:
    tally.run(CONFIG.replace("tallied", "batched") + "task.consumer.batch.size=2\n")
    shown = tally.run("%stream compare tallied batched --over mem.words")
    assert shown.startswith("6 messages through tallied and batched: equal")
    tally.names["variable"] = dict(tally.magics.bench.config("batched"))
    shown = tally.run("%stream compare tallied variable --over mem.words")
    assert shown.startswith("6 messages through tallied and variable: equal")


def test_compare_shows_where_a_task_fails(tally: Shell) -> None:
    tally.run(FAILING)
    shown = tally.run("%stream compare Tally Failing").splitlines()
    assert shown[0].endswith("3 alike, 1 differs; first at 4: Partition 0 failed at mem.words.0@3: "
                             "ValueError: no c")  # fmt: skip
    assert shown[3].split() == ["processed", "5", "3"]


def test_compare_names_what_is_missing(tally: Shell) -> None:
    assert "there is no task and no configuration Other; there is Tally" in tally.fails(
        "%stream compare Tally Other"
    )
    assert "unrecognized arguments: Tally" in tally.fails("%stream compare Tally Tally Tally")
    assert "give one of them" in tally.fails("%stream compare Tally Tally --last 3 --over mem.words")
    assert "Newer" not in tally.completions("%stream compare T")
    assert "Tally" in tally.completions("%stream compare T")


def recorded_until_it_fails(tally: Shell) -> None:
    tally.run(FAILING)
    tally.run("%stream create Failing --config tallied")
    tally.run("session = (get_ipython().magics_manager.registry['StreamMagics'].bench.job('Failing'))")
    tally.run("session.start(); session.session.record('long.recording')")
    tally.fails("%stream step 10")


def test_shrink_writes_the_fewest_messages_that_fail(tally: Shell) -> None:
    recorded_until_it_fails(tally)
    shown = tally.run("%stream shrink long.recording").splitlines()
    assert shown[-2:] == [
        "1 message of 4 still fails alike: long.small.recording",
        "        mem.words.0@3  c",
    ]
    assert Path("long.small.recording").is_file()


def test_shrink_replaces_no_file_that_is_no_recording(tally: Shell) -> None:
    recorded_until_it_fails(tally)
    Path("mine.py").write_text("print('mine')")
    shown = tally.fails("%stream shrink long.recording --to mine.py")
    assert "cannot save to mine.py: there is a file of that name, which is no recording" in shown
    assert Path("mine.py").read_text() == "print('mine')"
