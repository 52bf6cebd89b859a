"""Every byte flipped and cut, every file deleted: what is read is intact, or a named error; nothing is lost
without a word.

The outcomes by kind of file are a table: a change in it is a change in what the log promises.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from streambench.errors import CheckpointError
from tests.faults.damage import JOB, Change, Judge, changes, run
from tests.surroundings import SOAK

GUARANTEES = ("at-least-once", "exactly-once")

INTACT, EARLIER, ERROR = "intact", "earlier commit", "named error"

#: What may come of a change to a file of a stream, of all outcomes that are right. The locks hold nothing,
#: and what was forced to the disk
#: is only known in addition; of the producers' files only the last is of use; a fence or a number to keep
#: that is gone is written again.
OUTCOMES = {
    ("segment", "flip"): {
        INTACT,
        ERROR,
    },  # a letter of a checksum in upper case, the end mark of a segment that others follow
    ("segment", "cut"): {INTACT, ERROR},
    ("segment", "delete"): {ERROR},
    ("producers", "flip"): {INTACT, ERROR},
    ("producers", "cut"): {INTACT, ERROR},
    ("producers", "delete"): {INTACT, ERROR},
    ("index", "flip"): {INTACT},
    ("index", "cut"): {INTACT},
    ("index", "delete"): {INTACT},
    ("recovery-point.json", "flip"): {INTACT},
    ("recovery-point.json", "cut"): {INTACT},
    ("recovery-point.json", "delete"): {INTACT},
    ("stream.json", "flip"): {INTACT, ERROR},
    ("stream.json", "cut"): {ERROR},
    ("stream.json", "delete"): {ERROR},
    ("partitions.json", "flip"): {INTACT, ERROR},
    ("partitions.json", "cut"): {ERROR},
    ("partitions.json", "delete"): {ERROR},
    ("fence.json", "delete"): {INTACT},
    ("keep.json", "delete"): {INTACT},
    (".lock", "delete"): {INTACT},
    (".partitions.lock", "delete"): {INTACT},
    ("checkpoints", "flip"): {INTACT, ERROR},
    ("checkpoints", "cut"): {INTACT, ERROR},
    ("checkpoints", "delete"): {INTACT, EARLIER, ERROR},
}


def kind_of(path: Path) -> str:
    if "_jobs" in path.parts:
        return "checkpoints"
    if re.fullmatch(r"\d{20}", path.stem):
        return {".arrow": "segment", ".index": "index", ".json": "producers"}[path.suffix]
    return path.name


@pytest.fixture(scope="module", params=GUARANTEES)
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    # What is judged is read by this process: no power is lost.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        return Judge(tmp_path_factory.mktemp("damage"), request.param)


def test_whatever_is_damaged_is_intact_or_told(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    chosen = list(changes(judge.directory))
    if not SOAK:
        deleted = [each for each in chosen if each.kind == "delete"]
        others = [each for each in chosen if each.kind != "delete"]
        chosen = deleted + others[::997] + random.Random(11).sample(others, 250)
    seen: Counter[tuple[str, str, str]] = Counter()
    for number, change in enumerate(chosen):
        outcome = judge.judge(change, repair=change.kind == "delete" or number % 7 == 0)
        assert not outcome.startswith("WRONG"), f"{change}: {outcome}"
        seen[kind_of(change.path), change.kind, outcome] += 1
    wrong = {each for each in seen if each[2] not in OUTCOMES.get(each[:2], {INTACT, ERROR})}
    assert not wrong, wrong
    for file, kind in (
        ("segment", "flip"),
        ("segment", "cut"),
        ("segment", "delete"),
        ("checkpoints", "flip"),
    ):
        assert seen[file, kind, ERROR], f"or nothing was tried: {seen}"


def test_outputs_of_a_commit_whose_record_is_gone_are_not_written_twice(judge: Judge) -> None:
    if judge.guarantee == "at-least-once":
        last = sorted((judge.directory / "_jobs" / JOB).glob("g3/c0/*.json"))[-1]
        assert judge.judge(Change(last, "delete")) == EARLIER
        return
    last = sorted((judge.directory / "_jobs" / JOB).glob("g3/c0/*.json"))[-1]
    last.unlink()
    try:
        with pytest.raises(CheckpointError, match=rf"{last} is missing, .* streambench checkpoints --rewind"):
            run(judge.directory, judge.guarantee)
    finally:
        for part in ("_jobs", "clicks", "counts", f"{JOB}-state-changelog"):
            judge.restore(judge.directory / part)
