"""The end of an exactly-once job: what is committed, what is dropped, and what the notebook says of it."""

from __future__ import annotations

import pytest

from tests.magics.conftest import Shell

CONFIG = """%%streamconfig once
systems.log.samza.factory=log
systems.log.path=streams
systems.log.samza.offset.default=oldest
systems.log.samza.key.serde=string
systems.log.samza.msg.serde=json
stores.s.changelog=log.s-changelog
stores.s.key.serde=string
stores.s.msg.serde=json
task.processing.guarantee=exactly-once
task.inputs=log.in
"""

TASK = """%%streamtask Once
class Once:
    def init(self, context):
        self.s = context.store("s")

    def process(self, envelope, collector, coordinator):
        self.s["n"] = self.s.get("n", 0) + 1
        if envelope.message == "bad":
            raise ValueError("cannot count this")
        collector.send("log.out", self.s["n"], key=envelope.key)
"""

AGAIN = "nothing since its last checkpoint is committed: {} messages come again with its next start"


@pytest.fixture
def once(ip_empty: Shell) -> Shell:
    """A shell with the exactly-once job ``Once``, which has processed eight of nine messages and committed
    the first two. The ninth fails it."""
    ip_empty.run(CONFIG)
    ip_empty.run(TASK)
    ip_empty.run("%stream streams create log.in log.out --config once")
    ip_empty.run('%stream send log.in --from ["a","b","c","d","e","f","g","h","bad"] --config once')
    ip_empty.run("%stream create Once --config once")
    ip_empty.run("%stream step 2")
    ip_empty.run("%stream commit")
    ip_empty.run("%stream step 6")
    return ip_empty


def sent(ip: Shell) -> int:
    """The number of outputs that can be read."""
    ip.run("%stream peek log.out --config once")
    return len(ip.value)


@pytest.mark.parametrize(
    ("lines", "dropped"),
    [
        ([], ""),
        (["break message == 'bad'", "run", "wait"], ""),
        (["back 3"], ""),
        (["back 3", "swap", "step"], "; its branch is dropped"),
    ],
    ids=["paused", "at a breakpoint", "in the past", "in a branch"],
)
def test_stop_now_commits_nothing_and_drops_what_was_held(
    once: Shell, lines: list[str], dropped: str
) -> None:
    for line in lines:
        once.run(f"%stream {line}")
    assert once.run("%stream stop --now") == (
        f"Once is abandoned: {AGAIN.format(6)}, and 6 held outputs are dropped{dropped}"
    )
    assert sent(once) == 2
    once.run("%stream step")
    once.run("%stream state")
    assert [row["value"] for row in once.value] == ["3"]


def test_stop_now_closes_a_failed_job_and_counts_what_comes_again(once: Shell) -> None:
    once.fails("%stream step")
    assert once.run("%stream stop --now") == (
        f"Once has failed: {AGAIN.format(6)}, and 6 held outputs are dropped"
    )
    assert sent(once) == 2


def test_a_job_that_is_created_again_says_what_its_stop_committed(once: Shell) -> None:
    said = once.run("%stream create Once --config once").splitlines()
    assert said[1:] == [
        "it replaces the former Once, which was stopped: 6 messages are committed, and 6 held outputs are "
        "sent"
    ]
    assert sent(once) == 8
    once.run("%stream stop")
    assert once.run("%stream create Once").splitlines()[1:] == ["it replaces the former Once"]


def test_a_job_that_was_abandoned_is_replaced_as_such(once: Shell) -> None:
    once.run("%stream stop --now")
    assert once.run("%stream create Once").splitlines()[1:] == [
        "it replaces the former Once, which was abandoned: nothing since its last checkpoint is committed"
    ]


def test_a_rewind_says_what_becomes_of_the_stores(once: Shell) -> None:
    once.run("%stream stop")
    for where, stores in [
        ("oldest", "begin empty"),
        ("log.in.0@1", "stay as its last checkpoint has them"),
        ("upcoming", "stay as its last checkpoint has them"),
    ]:
        assert f"the stores of Once {stores}\n" in once.run(f"%stream rewind {where}")
    once.run("%stream checkpoints --history")
    commit = next(row["commit"] for row in once.value if row["commit"])
    assert "the stores of Once are those of that commit\n" in once.run(f"%stream rewind {commit}")
    once.run("%stream rewind oldest")
    once.run("%stream step")
    once.run("%stream state")
    assert [row["value"] for row in once.value] == ["1"]


def test_a_handle_follows_a_job_that_is_created_again(once: Shell) -> None:
    handle = once.run("%stream job Once") and once.value
    once.run("%stream create Once --config once")
    assert handle.status == "new"
    once.fails("%stream step")
    assert handle.session.position == 0


def test_a_swapped_cell_leaves_replays_as_they_are(once: Shell) -> None:
    once.run("%stream rewind oldest")
    once.run("%stream record kept")
    once.run("%stream step 3")
    once.run("%stream stop")
    once.run("%stream step")
    once.run("%stream replay kept Other --task Once")
    said = once.run(TASK.replace("Once\n", "Once --swap\n", 1)).splitlines()
    assert any(line.startswith("Once: live now, state kept") for line in said)
    assert "Other, a replay, keeps its code: %stream swap Other gives it this one" in said
    assert once.run("%stream swap").splitlines()[-1].startswith("Once: live now")


def test_a_comparison_that_fails_names_no_swap_that_was_not_made(once: Shell) -> None:
    once.run(
        TASK.replace("streamtask Once", "streamtask Broken")
        .replace("class Once", "class Broken")
        .replace('self.s = context.store("s")', "raise OSError('no')")
    )
    shown = once.fails("%stream compare Broken")
    assert "Once itself is as it was. Mend the task and run its cell." in shown
    assert "--undo" not in shown
