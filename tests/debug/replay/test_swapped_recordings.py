"""Recordings and captures of jobs whose code was swapped."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import streambench as sb
from streambench import debug
from streambench.container.container import Container
from streambench.debug import Recording
from streambench.debug.control.session import Session
from streambench.debug.replay.replay import code_note, codes_of
from streambench.errors import TaskError
from streambench.recording.file import read_header, read_rows
from streambench.recording.values import packed, unpacked
from tests.container.test_failure_capture import GOOD, config_of, put
from tests.debug.control.test_hot_swap import EXACTLY_ONCE
from tests.debug.control.test_time_travel import Counter, messages, session_of, shown
from tests.surroundings import SOAK


class Other(Counter):
    """Does the same under another name."""


class Twice(Counter):
    """Counts each message twice, and begins to count at 100."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = 100

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        self.seen += 1
        self.store.put("twice", self.seen)


def swapped(tmp_path: Path, **options: Any) -> tuple[Path, dict[int, Any]]:
    """A recording of 14 messages: from 4 on with other code, from 7 on after its init, from 10 on the first
    code again; and what each position showed, after a swap."""
    session, _ = session_of(config={"task.window.ms": 10, "task.commit.ms": 20}, **options)
    session.record(tmp_path / "run.recording")
    seen = {0: shown(session)}
    for position in range(1, 15):
        session.step()
        if position in (4, 7):
            session.swap(Twice, init=position == 7)
        elif position == 10:
            session.swap(Counter)
        seen[position] = shown(session)
    session.stop_recording()
    return tmp_path / "run.recording", seen


def test_each_message_of_a_swapped_job_runs_with_the_code_that_ran_it(tmp_path: Path) -> None:
    path, seen = swapped(tmp_path)
    assert [(each.position, each.code.name, each.init) for each in Recording.read(path).codes] == [
        (4, "Twice", False), (7, "Twice", True), (10, "Counter", False),
    ]  # fmt: skip
    session = debug.open(path)
    assert shown(session) == seen[14]
    for position in (13, 10, 9, 7, 6, 4, 3, 0, 5, 14):
        session.goto(position)
        assert (position, shown(session)) == (position, seen[position])
    stepped = debug.open(path, at_end=False)
    for position in range(1, 15):
        stepped.step()
        assert (position, shown(stepped)) == (position, seen[position])


class Quiet(Counter):
    """Asks for no commit."""

    commits_after = 1_000


class QuietTwice(Twice):
    commits_after = 1_000


@pytest.mark.parametrize("seed", range(100 if SOAK else 3))
def test_a_recording_holds_what_the_code_of_an_adopted_branch_did(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "run.recording"
    config = {**EXACTLY_ONCE, "task.window.ms": 10, "task.commit.ms": -1}
    session, bench = session_of(Quiet, messages(40, seed), config)
    session.record(path)
    for _ in range(3):
        for _ in range(3):
            bench.clock.advance(chance.choice([0, 10]))
            session.step(chance.randrange(3))
            init = chance.random() < 0.5
            session.swap(chance.choice([Quiet, QuietTwice]), init=init)
            if not init and chance.random() < 0.5:
                session.undo()
        session.step(chance.randrange(1, 4))
        session.goto(chance.randrange(session.latest))
        session.swap(QuietTwice, init=chance.random() < 0.5)
        session.step(chance.randrange(3))
        session.swap(Quiet)
        session.adopt()
    session.step()
    expected = {}
    for position in range(session.latest + 1):
        session.goto(position)
        expected[position] = shown(session)
    session.go_live()
    session.stop_recording()
    recording = Recording.read(path)
    assert read_header(path)["version"] == 2
    replay = debug.open(path)
    for position in chance.sample(range(len(recording) + 1), len(recording) + 1):
        replay.goto(position)
        assert (position, shown(replay)) == (position, expected[position])
    shorter = recording.only(range(len(recording)))
    shorter.save(tmp_path / "saved.recording")
    assert Recording.read(tmp_path / "saved.recording").codes == recording.codes
    assert read_header(tmp_path / "saved.recording")["version"] == 1
    session.stop()


def test_swaps_that_were_recorded_without_numbers_are_counted(tmp_path: Path) -> None:
    path, _ = swapped(tmp_path)
    found = Recording.read(path)
    rows = []
    for row in read_rows(path):
        if row.kind == "code":
            values = unpacked(row.message or b"")
            del values["number"]
            row = replace(row, message=packed(values))
        rows.append(row)
    assert read_header(path)["version"] == 1
    assert Recording(found.header, rows).codes == found.codes


def test_a_replay_of_a_swapped_job_says_which_code_runs(tmp_path: Path) -> None:
    recording = Recording.read(swapped(tmp_path)[0])
    begin = "the code was swapped after 4, 7, 10 of the messages"
    assert code_note(recording) == f"{begin}: each message runs with the code that ran it"
    assert code_note(recording, Other) == (
        f"{begin}: all of them run with Other as it is now; recorded_source=True runs each with its own, "
        "if you trust it"
    )


def test_several_swaps_at_one_position_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "run.recording"
    session, _ = session_of(Quiet, messages(8, 1), {"task.commit.ms": -1})
    session.record(path)
    session.step(3)
    session.swap(QuietTwice)
    session.undo()
    session.step(2)
    session.stop_recording()
    session.stop()
    assert code_note(Recording.read(path)).startswith("the code was swapped after 3 of the messages:")


def test_code_of_a_file_that_was_swapped_runs_only_where_it_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording.read(swapped(tmp_path)[0])
    monkeypatch.setattr("streambench.recording.header._factories", {})  # as in another process
    assert [code.__name__ for code, _ in codes_of(recording)[1]] == ["Twice", "Twice", "Counter"]
    changed = replace(recording.header.task, source="")
    monkeypatch.setattr("streambench.debug.replay.replay.code_of", lambda _: changed)
    assert codes_of(recording) == (Counter, [])


class Fragile(sb.StreamTask):
    """Counts from 0 on, and fails at a bad message."""

    def init(self, context: Any) -> None:
        self.seen = 0

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen += 1
        if envelope.message.get("bad"):
            raise ValueError("a bad message")


class FromHundred(Fragile):
    """Begins to count at 100."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = 100


def captured(tmp_path: Path, swapped_for: Any, *, undone: bool = False) -> tuple[int, Recording]:
    """The number that a failed task had counted, after a swap with ``init`` at its second message, and the
    capture of it."""
    config = config_of(tmp_path)
    put(config, "log.in", *GOOD, {"key": "c", "bad": True})
    session = Session(Container(config, Fragile))
    session.start()
    session.step(2)
    session.swap(swapped_for, init=True)
    if undone:
        session.step()
        session.undo()
    with pytest.raises(TaskError) as raised:
        session.step(1_000)
    (task,) = session.container.tasks
    counted = task.task.seen
    session.abandon()
    return counted, Recording.read(str(raised.value).rpartition(" ")[2])


@pytest.mark.parametrize("swapped_for", [Fragile, FromHundred])
def test_a_capture_has_a_swap_with_init_for_the_same_code_too(tmp_path: Path, swapped_for: Any) -> None:
    counted, recording = captured(tmp_path, swapped_for)
    assert [(each.position, each.code.name, each.init) for each in recording.codes] == [
        (2, swapped_for.__name__, True)
    ]
    assert not recording.notes
    opened = debug.open(recording)
    with pytest.raises(TaskError):
        opened.step()
    (task,) = opened.container.tasks
    assert task.task.seen == counted


@pytest.mark.parametrize("swapped_for", [Fragile, FromHundred])
def test_a_capture_notes_that_a_swap_was_undone(tmp_path: Path, swapped_for: Any) -> None:
    _, recording = captured(tmp_path, swapped_for, undone=True)
    assert [(each.position, each.code.name) for each in recording.codes] == [
        (2, swapped_for.__name__), (3, "Fragile"),
    ]  # fmt: skip
    note = "a swap was undone after 3 of the messages: a replay keeps what its init() made"
    assert recording.notes == [note]
