"""``%stream back``, ``forward``, ``goto``, ``live`` and ``changed``."""

from __future__ import annotations

import re

import pytest

from streambench.debug.view.panel_state import PanelStateReader
from streambench.errors import ContainerStateError, StreambenchError
from streambench_magics.errors import MagicError
from streambench_magics.panel.render import panel_html
from tests.magics.conftest import Shell

TASK = """%%streamtask Tally
def init(context):
    context.user.seen = 0

def process(envelope, collector, coordinator, context):
    context.user.seen += 1
    context.metrics.counter("counted").inc()
    counts = context.store("counts")
    found = counts.get(envelope.message) or {"n": 0, "late": 1}
    counts.put(envelope.message, {"n": found["n"] + 1, "late": 1})
    collector.send("mem.seen", {"seen": context.user.seen}, key="all")
"""

CONFIG = """%%streamconfig tallied
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
task.inputs=mem.words
stores.counts.factory=memory
stores.counts.key.serde=string
stores.counts.msg.serde=json
stores.counts.changelog=none
"""


@pytest.fixture
def tally(ip_empty: Shell) -> Shell:
    """A shell with the job ``Tally``, which has processed five words."""
    ip_empty.run(TASK)
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.words --partitions 1")
    ip_empty.run('%stream send mem.words --from ["a", "b", "a", "c", "a", "b"]')
    ip_empty.run("%stream create Tally --config tallied")
    ip_empty.run("%stream step 5")
    return ip_empty


def test_back_shows_the_message_with_what_it_did(tally: Shell) -> None:
    assert tally.run("%stream back 2").splitlines() == [
        "Tally is at 3 of 5, in the past (%stream live returns to 5)",
        "     3  mem.words.0@2  (round robin: nothing else was there)",
        "        message  a",
        "        counts[a]  n 1 -> 2",
        '        -> mem.seen  {"seen": 3}',
    ]


def test_gauges_that_are_no_numbers_are_shown_as_text(tally: Shell) -> None:
    noted = 'context.metrics.gauge("status").set("<i>late</i>" if context.user.seen % 2 else None)'
    tally.run(TASK.replace("    counts =", f"    {noted}\n    counts ="))
    tally.run("%stream swap Tally")
    tally.run("%stream step")
    tally.run("job = %stream job Tally")
    assert tally.run("%stream metrics --match status").split()[-1] == "-"
    tally.run("%stream send mem.words a")
    tally.run("%stream step")
    assert tally.run("%stream metrics --match status").split()[-1] == "<i>late</i>"
    assert ".status = <i>late</i>\n" in f"{tally.names['job'].metrics!r}\n"
    html = panel_html(PanelStateReader(tally.magics.bench.job("Tally")).take())
    assert "&lt;i&gt;late&lt;/i&gt;" in html and "<i>late" not in html


def test_metrics_in_the_past_are_those_of_the_position(tally: Shell) -> None:
    assert tally.run("%stream metrics --match counted").split()[-1] == "5"
    tally.run("%stream back 2")
    assert tally.run("%stream metrics --match counted").split()[-1] == "3"
    text = tally.run("%stream metrics --match s")
    assert re.search(r"container.processed +3\n", text) and re.search(r"\.task\.process-calls +3\n", text)
    assert "more are known at the newest position only: " in text
    assert "known at the newest position only: producers.sends" in tally.run("%stream metrics --match sends")
    tally.run("job = %stream job Tally")
    assert tally.names["job"].metrics["container.processed"] == 3
    assert "no metric has nope in its name" in tally.run("%stream metrics --match nope")


def test_a_message_of_a_run_has_a_note_in_the_place_of_its_rule(tally: Shell) -> None:
    tally.run('%stream send mem.words --from ["d", "e"]')
    tally.run("%stream run --until caught-up")
    tally.run("%stream wait")
    assert tally.run("%stream back").splitlines()[1] == (
        "     7  mem.words.0@6  (no reason is recorded: it was chosen at full speed, or long ago)"
    )
    session = tally.magics.bench.job("Tally").session
    assert session.explanation is None
    tally.run("%stream goto 4")
    assert str(session.explanation.winner) == "mem.words.0@3"


def test_forward_ends_live_at_the_newest_position(tally: Shell) -> None:
    tally.run("%stream back 2")
    assert tally.run("%stream forward").startswith("Tally is at 4 of 5")
    assert tally.run("%stream forward 7").startswith("Tally is live, at 5\n     5  mem.words.0@4")


def test_goto_takes_a_position_or_a_message(tally: Shell) -> None:
    assert tally.run("%stream goto 1").startswith("Tally is at 1 of 5")
    assert tally.run("%stream goto Tally mem.words.0@3").startswith("Tally is at 4 of 5")
    assert "not in the history, which reaches from 0 to 5" in tally.fails("%stream goto 9")


def test_back_until_a_condition_held(tally: Shell) -> None:
    shown = tally.run("""%stream back --until "store['a']['n'] == 1" """)
    assert shown.startswith("Tally is at 2 of 5")
    assert tally.run("%stream back --until \"message == 'z'\"").startswith(
        "Tally: there is no message before 2 at which message == 'z' held"
    )


def test_a_step_in_the_past_follows_what_was_recorded(tally: Shell) -> None:
    tally.run("%stream goto 0")
    assert tally.run("%stream step").startswith("Tally is at 1 of 5")
    with pytest.raises(ContainerStateError, match="%stream live"):
        tally.run("%stream commit")
    assert tally.run("%stream live").startswith("Tally is live, at 5")
    assert tally.run("%stream step").startswith("     6  mem.words.0@5")


def test_changed_lists_the_changes_of_a_key(tally: Shell) -> None:
    assert tally.run("%stream changed counts a").splitlines() == [
        "#  message        before -> after",
        "5  mem.words.0@4  n 2 -> 3                  %stream goto 5",
        "3  mem.words.0@2  n 1 -> 2                  %stream goto 3",
        '1  mem.words.0@0  - -> {"n": 1, "late": 1}  %stream goto 1',
    ]
    cells = re.findall(r"<t[hd]\b[^>]*>([^<]*)", tally.value._repr_html_())
    assert cells[4::5] == ["its content", "a", "a", "a"]
    assert tally.run("%stream changed counts z") == (
        "counts[z] has not changed since the job was started here, up to 5"
    )


def test_changed_lists_what_a_message_wrote_and_took_back(tally: Shell) -> None:
    tally.run(TASK.replace("Tally\n", "Tally --swap\n", 1) + "    counts['t'] = 1\n    del counts['t']\n")
    tally.run("%stream step")
    assert tally.run("%stream changed counts t").splitlines() == [
        "#  message        before -> after",
        "6  mem.words.0@5  - -> 1 -> - within the message  %stream goto 6",
    ]


def test_changed_lists_the_newest_and_counts_the_others(tally: Shell) -> None:
    shown = tally.run("%stream changed counts a --limit 1").splitlines()
    assert shown[1].startswith("5  mem.words.0@4  n 2 -> 3") and len(shown) == 3
    assert shown[2] == "2 older changes: --limit 3 shows all"
    assert len(tally.value.source) == 3


def test_diff_shows_everything_that_differs_between_two_positions(tally: Shell) -> None:
    assert tally.run("%stream diff 3 5").splitlines() == [
        "what       name               3 -> 5",
        "state      counts[a]          n 2 -> 3",
        'state      counts[c]          - -> {"n": 1, "late": 1}',
        "attribute  context.user.seen  3 -> 5",
        "offset     mem.words.0        2 -> 4",
        'output     mem.seen           4: key all  {"seen": 4}',
        'output     mem.seen           5: key all  {"seen": 5}',
    ]
    assert "<td" in tally.value._repr_html_() and tally.value.source.after == 5
    tally.run("%stream back 2")
    assert tally.run("%stream diff Tally 2").splitlines()[0].endswith("2 -> 3")
    assert tally.run("%stream diff 2 2") == "2 and 2 are alike"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("diff", "the following arguments are required"),
        ("diff Tally", "one or two positions, in figures; usage: %stream diff"),
        ("diff 1 two", "'two' is no position .a number."),
        ("diff 1 2 3", "one or two positions, in figures; usage: %stream diff"),
        ("diff 1 99", "position 99 is not in the history"),
        ("diff Other 1 2", "there is no job Other"),
        ("changed counts a --limit 0", "'0' is not a number of 1 or more"),
    ],
)
def test_what_cannot_be_compared_says_why(tally: Shell, line: str, said: str) -> None:
    with pytest.raises(StreambenchError, match=said):
        tally.run(f"%stream {line}")


def test_a_job_that_has_not_started_has_no_history(tally: Shell) -> None:
    tally.run("%stream create Tally")
    with pytest.raises(MagicError, match="it has no history; %stream step begins one"):
        tally.run("%stream back")


def test_a_cell_swaps_the_code_of_a_live_job(tally: Shell) -> None:
    other = TASK.replace("Tally\n", "Tally --swap\n", 1).replace('"late": 1})', '"late": 2})')
    assert tally.run(other).splitlines() == [
        "Tally is a task",
        "replayed the last 5 messages through both: 2 alike, 3 differ; first at 1: counts[a] late 1 -> 2",
        "Tally: live now, state kept; %stream swap --undo takes it back",
    ]
    assert tally.run("%stream step").startswith("     6  mem.words.0@5")
    assert (
        tally.run("%stream changed counts b")
        .splitlines()[1]
        .startswith("6  mem.words.0@5  n 1 -> 2, late 1 -> 2")
    )
    assert tally.run("%stream swap --undo") == "Tally has its former code again, with its current state"
    assert tally.run("%stream swap --undo") == "Tally: there is no swap to take back"


def test_a_swap_whose_code_fails_in_the_replay_is_a_warning(tally: Shell) -> None:
    bad = TASK.replace("Tally\n", "Tally --swap\n", 1).replace(
        "coordinator, context):", "coordinator, context):\n    assert envelope.offset != '2'", 1
    )
    lines = tally.run(bad).splitlines()
    assert lines[1].startswith(
        "replayed the last 5 messages through both: the new code failed at number 3; before it 2 alike, "
        "0 differ: "
    )
    assert "failed at mem.words.0@2: " in lines[1]
    assert lines[3] == (
        "warning: this code failed at 3, mem.words.0@2. Tally is past that message, and its next one is "
        "another; but where one like it comes, the job fails: swap mended code, %stream swap --init "
        "Tally where the code needs other attributes, or %stream swap --undo Tally"
    )


def test_undo_in_the_past_shows_the_state_of_the_former_code(tally: Shell) -> None:
    tally.run(TASK.replace('"n"] + 1', '"n"] + 10'))
    tally.run("%stream goto 2")
    tally.run("%stream swap --replay 0")
    assert "counts[a]  n 1 -> 11" in tally.run("%stream step")
    assert tally.run("%stream swap --undo").splitlines()[:5] == [
        "Tally has its former code again, and the state that this code makes here",
        "Tally is at 3 of 5, in the past (%stream live returns to 5)",
        "     3  mem.words.0@2  (round robin: nothing else was there)",
        "        message  a",
        "        counts[a]  n 1 -> 2",
    ]


def test_code_swapped_in_the_past_begins_a_branch(tally: Shell) -> None:
    tally.run(TASK.replace('"n"] + 1', '"n"] + 10'))
    tally.run("%stream goto 2")
    assert tally.run("%stream swap --replay 0") == (
        "Tally: a branch begins at 2, state kept; %stream swap --undo takes it back"
    )
    assert tally.run("%stream step").splitlines() == [
        "Tally is at 3 of 5, in the past in a branch: its outputs are held (%stream live returns to 5)",
        "     3  mem.words.0@2  (round robin: nothing else was there)",
        "        message  a",
        "        counts[a]  n 1 -> 11",
        '        -> mem.seen  {"seen": 3}  held until the branch is adopted',
    ]
    refused = tally.fails("%stream adopt")
    assert "outputs of the messages after 2 are out already" in refused
    assert "%stream live drops the branch, and %stream swap there gives its code to" in refused
    assert "\nTally is live, at 5" in tally.run("%stream live")


def test_a_swap_of_a_task_without_a_live_job_says_so(tally: Shell) -> None:
    tally.run("%stream stop")
    assert tally.run(TASK.replace("Tally\n", "Tally --swap\n", 1)).endswith(
        "no job of Tally is live: the next start of one takes this code"
    )


@pytest.mark.parametrize("line", ["crash", "commit", "run", "record x.recording"])
def test_what_is_refused_in_a_branch_names_magics_alone(tally: Shell, line: str) -> None:
    tally.run("%stream back 3")
    tally.run("%stream swap")
    said = tally.fails(f"%stream {line}")
    assert "%stream live" in said
    assert "()" not in said and "session." not in said


def test_what_cannot_be_adopted_names_the_magics_that_lead_there(tally: Shell) -> None:
    assert "%stream back or %stream goto first, then %stream swap begins one" in tally.fails("%stream adopt")
    tally.run("%stream back 1")
    assert "in the past, %stream swap begins one, then %stream step" in tally.fails("%stream adopt")


def test_a_branch_that_is_left_behind_is_said_to_be_dropped(tally: Shell) -> None:
    dropped = "the branch is dropped; %stream swap begins one again\n"
    tally.run("%stream goto 3")
    tally.run("%stream swap")
    assert not tally.run("%stream step").startswith(dropped)
    assert tally.run("%stream back 3").startswith(dropped)
    tally.run("%stream swap")
    assert tally.run("%stream live").startswith(dropped)
    assert not tally.run("%stream live").startswith(dropped)


def test_a_step_until_a_condition_looks_at_the_next_message_first(tally: Shell) -> None:
    tally.run("%stream goto 3")
    step = "%stream step --until message == 'c'"
    first = tally.run(step)
    assert "Tally is at 3 of 5" in first and "Tally is paused at 3: message is 'c'" in first
    assert tally.run(step).startswith("Tally is live, at 5")
    tally.run("%stream goto 3")
    assert "Tally is paused at 3: message is 'c'" in tally.run(step)


def test_to_wait_for_a_job_in_the_past_says_where_it_stands(tally: Shell) -> None:
    assert tally.run("%stream goto 3") == tally.run("%stream wait")


@pytest.mark.parametrize("way", ["forward", "step", "goto 5"])
def test_a_stop_that_is_left_behind_is_not_told_again(tally: Shell, way: str) -> None:
    tally.run("%stream goto 1")
    assert "Tally is paused at 3: message is 'c'" in tally.run("%stream step --until message == 'c'")
    assert "is paused at" not in tally.run(f"%stream {way}")
    tally.run("%stream live")
    assert tally.run("%stream wait") == "Tally is paused: 5 messages processed, after message 5, 1 left"


@pytest.mark.parametrize("line", ["step --until nope", "run --until )", "back --until nope", "goto nowhere"])
def test_what_is_mistyped_does_not_pause_a_job_that_runs(tally: Shell, line: str) -> None:
    tally.run("%stream run")
    tally.fails(f"%stream {line}")
    assert tally.magics.bench.job("Tally").state == "running"


@pytest.mark.parametrize(
    "line",
    [
        "goto 99", "goto mem.words.0@99", "diff 0 99", "state nope", "state nope --changed", "changed nope a",
        "back --until error", "adopt",
    ],
)  # fmt: skip
def test_what_is_wrong_does_not_pause_a_job_that_runs(tally: Shell, line: str) -> None:
    tally.run("%stream run")
    tally.fails(f"%stream {line}")
    assert tally.magics.bench.job("Tally").state == "running"
    assert tally.run("%stream live") == "Tally is live, and running"


def test_watches_are_shown_in_the_past(tally: Shell) -> None:
    tally.run("%stream watch n=context.user.seen")
    assert tally.run("%stream goto 2").splitlines()[-1] == "        n = 2"
    assert tally.run("%stream step").splitlines()[-1] == "        n = 3"
    assert tally.run("%stream back 2").splitlines()[-1] == "        n = 1"
    assert tally.run("%stream forward").splitlines()[-1] == "        n = 2"
    assert tally.run("%stream goto 0").splitlines()[-1] == "        n = 0"


def test_watches_are_not_evaluated_for_positions_that_are_not_shown(tally: Shell) -> None:
    seen = tally.names["seen"] = list[int]()
    tally.run("%stream watch n=seen.append(context.user.seen)")
    tally.run("%stream goto 0")
    seen.clear()
    session = tally.magics.bench.job("Tally").session
    assert session is not None
    runs = list[int]()
    session._run_again_for_watches = lambda: runs.append(session.position)
    tally.run("%stream step --until offset == '3'")
    assert (runs, seen) == ([3], [3])
