"""Whatever befalls a job, each start finds the state that belongs to where it goes on."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streambench.planning.checkpoint_managers import checkpoint_manager
from tests.container.stateful import Job, held

MESSAGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "1", "2", "3"])), min_size=1, max_size=6
)


class Killed(Exception):
    """The process is dead from here on."""


def killed(*arguments: Any, **named: Any) -> None:
    raise Killed


class JobMachine(RuleBasedStateMachine):
    """The state is a function of the messages that were processed: that of the first ``n``, whenever the next
    one is number ``n``."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="streambench-state-"))
        self.messages: list[tuple[str, str]] = []
        self.container: Any = None

    @initialize(
        engine=st.sampled_from(["memory", "rocksdb"]),
        cache=st.sampled_from([(0, 500), (2, 1), (3, 2), (1_000, 500)]),
        guarantee=st.sampled_from(["at-least-once", "exactly-once"]),
    )
    def begin(self, engine: str, cache: tuple[int, int], guarantee: str) -> None:
        self.job = Job(
            self.directory,
            {
                "stores.s.factory": engine,
                "stores.s.object.cache.size": cache[0],
                "stores.s.write.batch.size": cache[1],
                "stores.s.changelog.min.compaction.lag.ms": 0,
                "task.checkpoint.history": 3,
                "task.processing.guarantee": guarantee,
            },
        )
        self.start()

    def start(self) -> None:
        self.container = self.job.container()

    @rule(messages=MESSAGES)
    def send(self, messages: list[tuple[str, str]]) -> None:
        self.job.send(*messages)
        self.messages.extend(messages)

    @rule(n=st.integers(1, 8))
    def step(self, n: int) -> None:
        self.container.step(n)

    @rule()
    def commit(self) -> None:
        self.container.commit()

    @rule()
    def stop(self) -> None:
        self.container.stop()
        self.start()

    @rule()
    def crash(self) -> None:
        self.container.abandon()
        self.start()

    @rule(where=st.sampled_from(["before the changelog", "before the checkpoint", "after the checkpoint"]))
    def crash_in_a_commit(self, where: str) -> None:
        container = self.container
        if where == "before the changelog":
            container.runtime.outbox.commit = killed
        elif where == "before the checkpoint":
            container.runtime.checkpoints.write = container.runtime.checkpoints.commit = killed
        else:
            container.runtime.task_stores.committed = killed
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

    @rule()
    def compact(self) -> None:
        self.container.commit()
        self.container.runtime.task_stores._retain_changelogs(self.container.runtime.checkpoints)
        self.job.compact()

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        self.container.abandon()
        manager = checkpoint_manager(self.job.config, "job-1")
        [(task, kept)] = manager.history().items()
        manager.rewind({task: data.draw(st.sampled_from(kept))}, now_ms=0)
        manager.close()
        self.start()

    @precondition(lambda self: self.container is not None)
    @invariant()
    def the_state_belongs_to_the_position(self) -> None:
        [offset] = [*self.container.tasks[0].offsets().values()] or ["-1"]
        expected: dict[str, str] = {}
        for key, message in self.messages[: int(offset) + 1]:
            expected.update({key: message}) if message else expected.pop(key, None)
        assert held(self.container) == expected

    def teardown(self) -> None:
        if self.container is not None:
            self.container.abandon()
        shutil.rmtree(self.directory)


JobMachine.TestCase.settings = settings(
    max_examples=max(10, settings().max_examples // 5), stateful_step_count=15
)
TestJobs = JobMachine.TestCase

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
