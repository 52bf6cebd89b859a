"""Somebody else acts between any two steps of a start, a claim, a commit or a read: no commit is lost, and
none is made twice.

Every commit adds one to the count of a task, going on from what its holder read. So the counts in the end are
the numbers of commits that were reported as successful, whoever made them, or something is wrong.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streambench.checkpoint import record_log
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.errors import CheckpointError, FencedError
from tests.checkpoint.samples import CLICKS, at

KEEP = 1
ASSIGNMENT = {0: ["a"], 1: ["b"]}


class Actor:
    """A process at the journal. ``commits`` counts, for all actors together, what was reported as successful.
    """

    def __init__(self, directory: Path, commits: Counter[str]) -> None:
        self.manager = JournalCheckpointManager(directory, "job-1", keep=KEEP)
        self.commits = commits
        self.task = "a"
        self.count = 0
        self.unknown = False

    def start(self) -> None:
        self.manager.open_generation(ASSIGNMENT, now_ms=0)

    def rewind(self) -> None:
        """To where the job is anyway."""
        self.manager.rewind({}, now_ms=0)

    def claim(self, task: str = "a") -> None:
        last = self.manager.last_generation()
        assert last is not None
        self.manager.claim(last.number, "ab".index(task), now_ms=0)
        self.task = task
        self.read()

    def read(self) -> None:
        checkpoint = self.manager.read_last().get(self.task)
        self.count = int(checkpoint.offsets[CLICKS]) if checkpoint else 0

    def read_no_less_than_there_was(self) -> None:
        before = self.commits[self.task]
        self.read()
        assert before <= self.count <= self.commits[self.task]

    def commit(self) -> None:
        self.count += 1
        try:
            self.manager.write({self.task: at(self.count)})
        except CheckpointError as error:
            assert "not known" in str(error)
            self.unknown = True
        else:
            self.commits[self.task] += 1

    def claim_and_commit(self) -> None:
        self.claim()
        self.commit()

    def claim_and_commit_the_other(self) -> None:
        self.claim("b")
        self.commit()

    def commit_often(self) -> None:
        for _ in range(3 * KEEP):
            self.commit()

    def claim_and_commit_often(self) -> None:
        self.claim()
        self.commit_often()

    def start_and_commit(self) -> None:
        self.start()
        self.claim_and_commit()

    def start_often(self) -> None:
        for _ in range(3 * KEEP):
            self.start_and_commit()

    def start_often_and_claim_nothing(self) -> None:
        for _ in range(3 * KEEP):
            self.start()


class InterruptedOs:
    """``os``, whose n-th call lets somebody else act first."""

    def __init__(self, at: int, intrusion: Callable[[], None]) -> None:
        self.calls = 0
        self._at = at
        self._intrusion = intrusion

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("open", "fsync", "link", "rename", "unlink", "mkdir", "listdir", "stat", "pread"):
            return real

        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                self._intrusion()
            return real(*arguments)

        return call


def used(directory: Path, commits: Counter[str]) -> None:
    """A job with a few generations behind it, in the last of which one container of two was claimed."""
    actor = Actor(directory, commits)
    for _ in range(2):
        actor.start_and_commit()
    actor.manager.close()


@pytest.mark.parametrize(
    "intrusion",
    [
        Actor.start,
        Actor.claim_and_commit,
        Actor.claim_and_commit_the_other,
        Actor.claim_and_commit_often,
        Actor.commit_often,
        Actor.start_and_commit,
        Actor.start_often,
        Actor.start_often_and_claim_nothing,
    ],
)
@pytest.mark.parametrize(
    ("prepare", "step"),
    [
        (None, Actor.start),
        (None, Actor.rewind),
        (None, Actor.claim_and_commit),
        (None, Actor.claim_and_commit_the_other),
        (None, Actor.read_no_less_than_there_was),
        (Actor.claim, Actor.commit),
    ],
)
def test_whoever_acts_in_between_no_commit_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[Actor], None] | None,
    step: Callable[[Actor], None],
    intrusion: Callable[[Actor], None],
) -> None:
    interrupted_at = 0
    interrupted = True
    template, template_commits = tmp_path / "template", Counter[str]()
    used(template, template_commits)
    while interrupted:
        interrupted_at += 1
        directory = tmp_path / "job-1"
        shutil.copytree(template, directory)
        commits = Counter(template_commits)
        actor, intruder = Actor(directory, commits), Actor(directory, commits)
        if intrusion is Actor.commit_often:
            intruder.claim()
        if prepare is not None:
            prepare(actor)

        def intrude(intruder: Actor = intruder) -> None:
            with suppress(FencedError):
                intrusion(intruder)

        with monkeypatch.context() as patched:
            patched.setattr(record_log, "os", proxy := InterruptedOs(interrupted_at, intrude))
            with suppress(FencedError):
                step(actor)
        interrupted = proxy.calls >= interrupted_at
        for each in (intruder, actor):
            if each.manager._claim is not None:
                with suppress(FencedError):
                    each.commit()
            each.manager.close()
        last = Actor(directory, commits)
        last.start()
        found = {task: int(each.offsets[CLICKS]) for task, each in last.manager.read_last().items()}
        if actor.unknown:
            assert intrusion in (Actor.start_often, Actor.start_often_and_claim_nothing), (
                "nobody else makes so many starts meanwhile"
            )
            commits[actor.task] += found.get(actor.task, 0) == commits[actor.task] + 1
            commits = +commits
        assert found == dict(commits), f"interrupted before call {interrupted_at}"
        last.claim_and_commit()
        last.manager.close()
        shutil.rmtree(directory)
    assert interrupted_at > 5


def test_a_zombie_commits_nothing_while_its_generation_is_being_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What closed its container is deleted too; it must not take the number that this sets free for its own.
    """

    def remove_last_first(directory: Path, ignore_errors: bool) -> None:
        record_log.os.listdir(directory)
        for path in sorted(directory.rglob("*.json"), reverse=True):
            record_log.os.unlink(path)

    interrupted_at = 0
    interrupted = True
    while interrupted:
        interrupted_at += 1
        directory = tmp_path / str(interrupted_at)
        commits = Counter[str]()
        used(directory, commits)
        zombie, starter = Actor(directory, commits), Actor(directory, commits)
        zombie.claim_and_commit()
        starter.start_and_commit()
        before = Counter(commits)

        def intrude(zombie: Actor = zombie) -> None:
            with suppress(FencedError):
                zombie.commit()

        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", remove_last_first)
            patched.setattr(record_log, "os", proxy := InterruptedOs(interrupted_at, intrude))
            starter.start()
        interrupted = proxy.calls >= interrupted_at
        assert commits == before, f"interrupted before call {interrupted_at}"
        assert int(starter.manager.read_last()["a"].offsets[CLICKS]) == commits["a"]
        for each in (zombie, starter):
            each.manager.close()
    assert interrupted_at > 5
