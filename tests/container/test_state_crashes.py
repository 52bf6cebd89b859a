"""Whatever befalls a job, each start finds the state that belongs to where it goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import streambench as sb
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.testing import ManualClock
from tests.container.stateful import CHANGELOG, Job, held, snapshots, with_systems

MESSAGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "1", "2", "3"])), min_size=1, max_size=6
)


class Killed(Exception):
    """The process is dead from here on."""


def killed(*arguments: Any, **named: Any) -> None:
    raise Killed


def damage(path: Path, how: str, at: float) -> None:
    """Do something to a snapshot. ``at``: where, as a part of its size."""
    data = bytearray(path.read_bytes())
    place = int(len(data) * at)
    offset, commit = path.name.removeprefix("snapshot-").split("-")
    if how == "torn":
        path.write_bytes(data[:place])
    elif how == "flipped" and data:
        data[place] ^= 0x10
        path.write_bytes(data)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "gone":
        path.unlink()
    elif how == "longer":
        path.write_bytes(data + data)
    elif how in ("later", "earlier"):
        moved = max(0, int(offset) + (1 if how == "later" else -1))
        os.replace(path, path.with_name(f"snapshot-{moved:020d}-{commit}"))


class StateMachine(RuleBasedStateMachine):
    """A job whose streams and files are in a directory of its own, and which is made and ended by rules."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="streambench-state-"))
        self.clock = ManualClock()
        self.messages: list[tuple[str, str]] = []
        self.container: Any = None
        self.expires = False
        self.backed_up: list[tuple[str, str]] | None = None

    def start(self) -> None:
        self.container = self.job.container()
        self.check_that_the_changelog_leads_to_the_state()

    def check_that_the_changelog_leads_to_the_state(self) -> None:
        """Compare the bytes of the store with those that all of the changelog leads to."""
        [task] = self.container.tasks
        last = self.container.runtime.checkpoints.read_last().get(task.name)
        committed = 0 if last is None else int(last.changelogs.get("s", 0))
        expected: dict[bytes, bytes] = {}
        for offset, time_ms, key, value in self.job.changelog_rows():
            if offset >= committed:
                break
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = (pack(">q", time_ms) if self.expires else b"") + value
        found: dict[bytes, bytes] = {}
        for keys, values in task.stores["s"].batches():
            found.update(zip(keys, values, strict=True))
        assert found == expected

    def files(self) -> list[Path]:
        return snapshots(self.directory)

    def compacted_to(self) -> int:
        found: list[int] = []
        ssp = sb.SystemStreamPartition(CHANGELOG.system, CHANGELOG.stream, 0)
        with_systems(
            self.job.config, lambda systems: found.append(int(systems.admin("log").compacted_to(ssp) or 0))
        )
        return found[0]

    def check_that_the_state_belongs_to_the_position(self) -> None:
        """Compare the store with what the messages so far lead to."""
        [offset] = [*self.container.tasks[0].offsets().values()] or ["-1"]
        expected: dict[str, str] = {}
        for key, message in self.messages[: int(offset) + 1]:
            expected.update({key: message}) if message else expected.pop(key, None)
        assert held(self.container) == expected

    def rewind_to_one(self, data: st.DataObject) -> None:
        self.container.abandon()
        manager = checkpoint_manager(self.job.config, "job-1")
        [(task, kept)] = manager.history().items()
        least = self.compacted_to()
        possible = [each for each in kept if int(each.changelogs.get("s", least)) >= least]
        manager.rewind({task: data.draw(st.sampled_from(possible))}, now_ms=0)
        manager.close()
        self.start()

    def compact_up_to_the_last_commit(self) -> None:
        """Compact as though nothing before the last commit were of use: neither snapshots nor commits."""
        [committed] = self.container.runtime.checkpoints.read_last().values()
        if "s" in committed.changelogs:
            ssp = sb.SystemStreamPartition(CHANGELOG.system, CHANGELOG.stream, 0)
            with_systems(
                self.job.config,
                lambda systems: systems.admin("log").keep_from({ssp: committed.changelogs["s"]}),  # type: ignore[attr-defined]
            )
            self.job.compact()

    def take_copy(self) -> None:
        self.container.abandon()
        self.backed_up = list(self.messages)
        shutil.rmtree(self.directory / "copy", ignore_errors=True)
        shutil.copytree(self.directory / "log", self.directory / "copy")
        self.start()

    def bring_copy_back(self) -> None:
        """Bring the copy back; snapshots that were written since stay where they are."""
        assert self.backed_up is not None
        self.container.abandon()
        kept = {path: path.read_bytes() for path in self.files()}
        shutil.rmtree(self.directory / "log")
        shutil.copytree(self.directory / "copy", self.directory / "log")
        for path in self.files():
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(data)
        self.messages = list(self.backed_up)
        self.clock.advance(1)
        self.start()

    def teardown(self) -> None:
        if self.container is not None:
            self.container.abandon()
        shutil.rmtree(self.directory)


class JobMachine(StateMachine):
    """The state is a function of the messages that were processed: that of the first ``n``, whenever the next
    one is number ``n``. At a start and at a commit it is what the changelog leads to, snapshots or not."""

    @initialize(
        engine=st.sampled_from(["memory", "rocksdb"]),
        cache=st.sampled_from([(0, 500), (2, 1), (3, 2), (1_000, 500)]),
        guarantee=st.sampled_from(["at-least-once", "exactly-once"]),
        snapshot_changes=st.sampled_from([1, 1, 2, 5, 0]),
        deletions_kept_ms=st.sampled_from([0, 86_400_000]),
        ttl_ms=st.sampled_from([0, 0, 20]),
    )
    def begin(
        self,
        engine: str,
        cache: tuple[int, int],
        guarantee: str,
        snapshot_changes: int,
        deletions_kept_ms: int,
        ttl_ms: int,
    ) -> None:
        self.is_in_memory, self.expires = engine == "memory", ttl_ms > 0
        self.job = Job(
            self.directory,
            {
                "stores.s.factory": engine,
                "stores.s.object.cache.size": cache[0],
                "stores.s.write.batch.size": cache[1],
                "stores.s.changelog.min.compaction.lag.ms": 0,
                "stores.s.changelog.delete.retention.ms": deletions_kept_ms,
                "stores.s.snapshot.changes": snapshot_changes,
                "stores.s.ttl.ms": ttl_ms,
                "task.checkpoint.history": 3,
                "task.processing.guarantee": guarantee,
            },
            self.clock,
        )
        self.start()

    @rule(messages=MESSAGES)
    def send(self, messages: list[tuple[str, str]]) -> None:
        self.job.send(*messages)
        self.messages.extend(messages)

    @rule(n=st.integers(1, 8))
    def step(self, n: int) -> None:
        self.container.step(n)

    @rule(ms=st.integers(1, 15))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def commit(self) -> None:
        self.container.commit()
        self.check_that_the_changelog_leads_to_the_state()

    @rule()
    def stop(self) -> None:
        self.container.stop()
        self.start()

    @rule()
    def crash(self) -> None:
        self.container.abandon()
        self.start()

    @rule(
        where=st.sampled_from(
            [
                "before the changelog",
                "before the checkpoint",
                "after the checkpoint",
                "before the snapshot",
                "in the snapshot",
                "after the snapshot",
            ]
        )
    )
    def crash_in_a_commit(self, where: str) -> None:
        container = self.container
        stores = container.runtime.task_stores
        if where == "before the changelog":
            container.runtime.outbox.commit = killed
        elif where == "before the checkpoint":
            container.runtime.checkpoints.write = container.runtime.checkpoints.commit = killed
        elif where == "after the checkpoint":
            stores.committed = killed
        elif where == "before the snapshot":
            stores._snapshots.write_due = killed
        elif where == "after the snapshot":
            stores._retain_changelogs = killed
            stores._keep_at_ns = 0
        elif files := self.files():
            left = files[0].with_name(f".{files[0].name}.1.00000000")
            left.write_bytes(files[0].read_bytes()[:-30])
        container.step(3)
        try:
            container.commit()
        except Killed:
            container.abandon()
        else:
            container.stop()
        self.start()

    @rule()
    def lose_the_files(self) -> None:
        self.container.abandon()
        shutil.rmtree(self.directory / "log" / "_jobs" / "job-1" / "stores", ignore_errors=True)
        self.start()

    @rule(
        how=st.sampled_from(["torn", "flipped", "empty", "gone", "later", "earlier", "longer"]),
        at=st.floats(0, 1, exclude_max=True),
        data=st.data(),
    )
    def damage_a_snapshot(self, how: str, at: float, data: st.DataObject) -> None:
        if files := self.files():
            damage(data.draw(st.sampled_from(files)), how, at)

    @rule()
    def be_replaced_and_go_on(self) -> None:
        if not self.is_in_memory:
            return  # one process cannot have the files twice
        late = self.container
        late.commit()
        self.start()
        self.container.step(4)
        self.container.commit()
        stores = late.runtime.task_stores
        for store in stores._snapshots._stores.values():
            store._newest = None
        stores.write_last_snapshots()
        late.abandon()
        self.check_that_the_changelog_leads_to_the_state()

    @rule()
    def compact(self) -> None:
        self.container.commit()
        self.container.runtime.task_stores._retain_changelogs(self.container.runtime.checkpoints)
        self.job.compact()

    @rule()
    def compact_more_than_snapshots_and_older_commits_bear(self) -> None:
        self.container.commit()
        self.compact_up_to_the_last_commit()

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        self.rewind_to_one(data)

    @rule()
    def back_up(self) -> None:
        self.take_copy()

    @precondition(lambda self: self.backed_up is not None)
    @rule()
    def bring_the_copy_back_but_not_the_snapshots(self) -> None:
        self.bring_copy_back()

    @precondition(lambda self: self.container is not None and not self.expires)
    @invariant()
    def the_state_belongs_to_the_position(self) -> None:
        self.check_that_the_state_belongs_to_the_position()


class SnapshotMachine(StateMachine):
    """As ``JobMachine``, with what makes snapshots and their changelog drift apart in few steps."""

    @initialize(snapshot_changes=st.integers(1, 4), exactly_once=st.booleans())
    def begin(self, snapshot_changes: int, *, exactly_once: bool) -> None:
        values = {
            "stores.s.factory": "memory",
            "stores.s.changelog.min.compaction.lag.ms": 0,
            "stores.s.changelog.delete.retention.ms": 0,
            "stores.s.snapshot.changes": snapshot_changes,
            "task.checkpoint.history": 3,
            "task.processing.guarantee": "exactly-once" if exactly_once else "at-least-once",
        }
        self.job = Job(self.directory, values, self.clock)
        self.start()
        self.process([(key, "0") for key in "abcd"])

    @rule(messages=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "1", "2"])), max_size=4))
    def process(self, messages: list[tuple[str, str]]) -> None:
        self.job.send(*messages)
        self.messages.extend(messages)
        self.container.run("caught-up")
        self.container.commit()
        self.check_that_the_changelog_leads_to_the_state()

    @rule(key=st.sampled_from("abcd"))
    def delete(self, key: str) -> None:
        self.process([(key, "")])

    @rule(messages=MESSAGES)
    def process_without_a_commit(self, messages: list[tuple[str, str]]) -> None:
        self.job.send(*messages)
        self.messages.extend(messages)
        self.container.run("caught-up")

    @rule(is_clean=st.booleans())
    def restart(self, *, is_clean: bool) -> None:
        self.container.stop() if is_clean else self.container.abandon()
        self.start()

    @rule(is_clean=st.booleans())
    def compact_and_restart(self, *, is_clean: bool) -> None:
        self.container.commit()
        self.compact_up_to_the_last_commit()
        self.restart(is_clean=is_clean)

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        self.rewind_to_one(data)

    @rule()
    def back_up(self) -> None:
        self.take_copy()

    @precondition(lambda self: self.backed_up is not None)
    @rule()
    def bring_the_copy_back(self) -> None:
        self.bring_copy_back()

    @rule(one=MESSAGES, other=MESSAGES)
    def bring_a_copy_back_and_go_another_way(
        self, one: list[tuple[str, str]], other: list[tuple[str, str]]
    ) -> None:
        self.container.commit()
        self.take_copy()
        self.process(one)
        self.restart(is_clean=True)
        self.bring_copy_back()
        self.process(other)
        self.restart(is_clean=False)

    @precondition(lambda self: self.files())
    @rule(
        how=st.sampled_from(["torn", "flipped", "gone", "later", "earlier"]),
        at=st.floats(0, 1, exclude_max=True),
        which=st.integers(0, 3),
    )
    def damage_a_snapshot_and_restart(self, how: str, at: float, which: int) -> None:
        files = self.files()
        damage(files[which % len(files)], how, at)
        self.restart(is_clean=False)

    @precondition(lambda self: self.container is not None)
    @invariant()
    def the_state_belongs_to_the_position(self) -> None:
        self.check_that_the_state_belongs_to_the_position()


JobMachine.TestCase.settings = SnapshotMachine.TestCase.settings = settings(
    max_examples=max(6, settings().max_examples // 5), stateful_step_count=15
)
TestJobs = JobMachine.TestCase
TestSnapshots = SnapshotMachine.TestCase

_VICTIM = """
import sys
from pathlib import Path
from tests.container.stateful import Job, held

container = Job(Path(sys.argv[1]), {"stores.s.write.batch.size": 2,
                                    "task.processing.guarantee": sys.argv[2]}).container()
container.run("caught-up")
print("caught up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_killed_process_leaves_files_that_go_back_to_its_last_commit(
    guarantee: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, {"stores.s.write.batch.size": 2, "task.processing.guarantee": guarantee})
    job.send(
        *((f"k{at}", "1") for at in range(50)),
        "commit",
        *((f"k{at}", str(at % 2 or "")) for at in range(10, 60)),
    )
    process = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, str(tmp_path), guarantee],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"caught up\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = job.container()
    assert held(again) == {f"k{at}": "1" for at in range(50)}
    assert again.metrics.snapshot()["store-s.entries-restored"] == 0
    again.run("caught-up")
    assert held(again) == {f"k{at}": "1" for at in [*range(10), *range(11, 60, 2)]}
    again.stop()
