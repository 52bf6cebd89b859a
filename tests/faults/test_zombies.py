"""A holder that is thought dead and is not: it loses the race for the next record, and what it has committed
is there once."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.checkpoint.pending_writes import PendingWrites
from streambench.config import Config
from streambench.errors import CheckpointError, ConfigError, ReplacedError, SupersededError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.rows import Rows
from streambench.system.api import SystemProducer
from streambench.system.log import open_log
from streambench.system.producers_applier import ProducersApplier
from streambench.system.systems import Systems
from tests.job.project import Project

OUT = SystemStreamPartition("log", "out", 0)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    with open_log(tmp_path) as streams:
        streams.create("out")
    return Config({"job.name": "job", "systems.log.samza.factory": "log", "systems.log.path": tmp_path})


def outputs(config: Config) -> list[bytes]:
    with open_log(config["systems.log.path"]) as streams:
        return [
            value for batch in streams.partition("out", 0).read(0) for value in batch["value"].to_pylist()
        ]


class Holder:
    """Somebody who holds a container and commits outputs; what it applies may wait (``apply`` false)."""

    def __init__(self, config: Config, generation: int, container: int = 0, *, apply: bool = True) -> None:
        self.manager = checkpoint_manager(config, "job-1")
        assert isinstance(self.manager, JournalCheckpointManager)
        self.waiting: list[PendingWrites] = []
        self._producer = Systems(config).producer("log", MetricsRegistry())
        self.applier = (
            ProducersApplier(self._producer_of) if apply else _Sleeping(self._producer_of, self.waiting)
        )
        self.manager.claim(generation, container, now_ms=0)

    def commit(self, *values: bytes, task: str = "a") -> None:
        rows = Rows(OUT, [None] * len(values), list(values))
        self.manager.commit(lambda ends: {task: Checkpoint({OUT: values[-1].decode()})}, [rows], self.applier)

    def wake(self) -> None:
        """Apply at last what was committed."""
        for effects in self.waiting:
            ProducersApplier(self._producer_of).apply(effects)

    def _producer_of(self, system: str) -> SystemProducer:
        return self._producer


class _Sleeping(ProducersApplier):
    def __init__(self, producer_of: object, waiting: list[PendingWrites]) -> None:
        super().__init__(producer_of)  # type: ignore[arg-type]
        self._waiting = waiting

    def apply(self, effects: PendingWrites) -> None:
        self._waiting.append(effects)
        raise TimeoutError("asleep")


def opened(config: Config, assignment: dict[int, Sequence[str]]) -> int:
    manager = checkpoint_manager(config, "job-1")
    number = manager.open_generation(assignment, now_ms=0).number
    manager.close()
    return number


def asleep(config: Config, generation: int, *values: bytes, container: int = 0, task: str = "a") -> Holder:
    """A holder that has committed these, and fell asleep before it could apply them."""
    holder = Holder(config, generation, container, apply=False)
    with suppress(TimeoutError):
        holder.commit(*values, task=task)
    assert len(holder.waiting) == 1
    return holder


def test_what_was_committed_but_not_applied_is_applied_by_the_next_holder(
    config: Config,
) -> None:
    zombie = asleep(config, opened(config, {0: ["a"]}), b"1", b"2")
    assert outputs(config) == []
    holder = Holder(config, 1)
    assert outputs(config) == [b"1", b"2"]
    holder.commit(b"3")
    zombie.wake()
    assert outputs(config) == [b"1", b"2", b"3"]
    assert {task: last.offsets[OUT] for task, last in holder.manager.read_last().items()} == {"a": "3"}


def test_a_start_with_other_containers_finishes_what_the_old_ones_left(config: Config) -> None:
    generation = opened(config, {0: ["a"], 1: ["b"], 2: ["c"]})
    zombies = [
        asleep(config, generation, task.encode(), container=number, task=task)
        for number, task in enumerate("abc")
    ]
    generation = opened(config, {0: ["a", "b", "c"]})
    assert sorted(outputs(config)) == [b"a", b"b", b"c"]
    Holder(config, generation).commit(b"d")
    for zombie in zombies:
        zombie.wake()
    assert sorted(outputs(config)) == [b"a", b"b", b"c", b"d"]


def test_a_rewind_finishes_the_last_commit_first(config: Config) -> None:
    asleep(config, opened(config, {0: ["a"]}), b"1")
    manager = checkpoint_manager(config, "job-1")
    manager.rewind({"a": Checkpoint({})}, now_ms=0)
    assert outputs(config) == [b"1"]


def test_a_zombie_that_did_not_commit_in_time_does_not_commit_at_all(config: Config) -> None:
    zombie = Holder(config, opened(config, {0: ["a"]}))
    Holder(config, 1)
    with pytest.raises(
        ReplacedError,
        match=r"container 0: the container was started again .* and goes on there; this one must stop",
    ):
        zombie.commit(b"1")
    assert outputs(config) == []


def test_a_zombie_of_a_forgotten_generation_is_fenced(
    config: Config,
) -> None:
    config = config.with_values({"task.checkpoint.history": 1})
    zombie = Holder(config, opened(config, {0: ["a"]}))
    for number in range(2, 8):
        Holder(config, opened(config, {0: ["a"]})).commit(b"%d" % number)
    with pytest.raises(SupersededError, match="has taken over"):
        zombie.commit(b"9")
    assert outputs(config) == [b"%d" % number for number in range(2, 8)]


def test_a_zombie_can_tell_before_it_commits(config: Config) -> None:
    zombie = Holder(config, opened(config, {0: ["a"]}))
    zombie.manager.check()
    Holder(config, 1)
    with pytest.raises(ReplacedError):
        zombie.manager.check()


def test_who_takes_over_from_the_living_says_so_and_from_the_dead_does_not(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    first = Holder(config, opened(config, {0: ["a"]}))
    first.commit(b"1")
    second = Holder(config, 1)
    assert "job job-1, container 0 is still running elsewhere" in caplog.text
    first.manager.close()
    second.manager.close()
    caplog.clear()
    Holder(config, 1)
    assert caplog.text == ""


def test_effects_that_are_damaged_are_told_of_and_can_be_done_without(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    asleep(config, opened(config, {0: ["a"]}), b"1")
    record = max(Path(config["systems.log.path"]).glob("_jobs/job-1/g1/c0/*.json"))
    data = record.read_bytes()
    record.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(
        CheckpointError,
        match=rf"{record}, the last commit of a, holds outputs .* does not match its checksum",
    ) as raised:
        opened(config, {0: ["a"]})
    assert "rewind these tasks" in str(raised.value)
    manager = checkpoint_manager(config, "job-1")
    manager.rewind({"a": Checkpoint({OUT: "0"})}, now_ms=0)
    assert "They are lost" in caplog.text
    assert manager.read_last()["a"].offsets == {OUT: "0"}


def test_outputs_whose_stream_is_gone_say_what_to_do(config: Config) -> None:
    asleep(config, opened(config, {0: ["a"]}), b"1")
    shutil.rmtree(Path(config["systems.log.path"]) / "out")
    with pytest.raises(
        CheckpointError,
        match=r"cannot be written to their streams: there is no stream log\.out .* start again; or rewind",
    ):
        opened(config, {0: ["a"]})
    with open_log(config["systems.log.path"]) as streams:
        streams.create("out")
    opened(config, {0: ["a"]})
    assert outputs(config) == [b"1"]


def test_outputs_for_a_system_that_is_no_longer_configured_say_which(config: Config, tmp_path: Path) -> None:
    asleep(config, opened(config, {0: ["a"]}), b"1")
    renamed = Config(
        {"job.name": "job", "systems.other.samza.factory": "log", "systems.other.path": tmp_path}
    )
    with pytest.raises(CheckpointError, match="there is no system 'log'") as raised:
        opened(renamed, {0: ["a"]})
    assert isinstance(raised.value.__cause__, ConfigError)


def test_the_journal_does_not_grow_with_what_passes_through_it(config: Config) -> None:
    holder = Holder(config, opened(config, {0: ["a"]}))
    for n in range(20):
        holder.commit(b"x" * 100_000 + b"%d" % n)
    kept = list(Path(config["systems.log.path"]).glob("_jobs/job-1/g1/c0/*"))
    # The checkpoint of each holds the number as text, which here is the message.
    assert all(path.read_bytes().count(b"\n") == 1 for path in kept)


def test_a_process_that_slept_stops_when_it_wakes_and_all_is_there_once(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    project.configure({"task.processing.guarantee": "exactly-once", "task.commit.ms": 20})
    project.fill(10)
    asleep = project.start("run", "job.properties")
    while project.outputs() != list(range(1, 11)):
        with suppress(TimeoutExpired):
            asleep.wait(0.02)
            pytest.fail(f"it ended: {asleep.communicate()}")
    os.kill(asleep.pid, signal.SIGSTOP)
    project.fill_more(10, 20)
    second = project.start("run", "job.properties", "--until", "caught-up")
    said = second.communicate()
    assert second.returncode == 0, said
    assert "container 0 is still running elsewhere" in said[1]
    assert project.outputs() == list(range(1, 21))
    os.kill(asleep.pid, signal.SIGCONT)
    _, errors = asleep.communicate()
    assert asleep.returncode == 1
    assert "a newer start of the job" in errors
    assert "this container must stop" in errors
    assert project.outputs() == list(range(1, 21))


def test_an_idle_holder_replaced_elsewhere_stops_and_takes_nothing_back(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    project.configure({"job.container.count": 2})
    project.fill(0)
    idle = project.start("run", "job.properties", "--container", "0")
    while not list(tmp_path.glob("streams/_jobs/up-1/g1/c0/*2.json")):
        with suppress(TimeoutExpired):
            idle.wait(0.02)
            pytest.fail(f"it ended: {idle.communicate()}")
    second = project.start("run", "job.properties", "--container", "0", "--if-running", "take-over")
    _, errors = idle.communicate()
    assert idle.returncode == 1
    assert "container 0: the container was started again" in errors
    project.fill_more(0, 2)
    while project.outputs() != [1]:
        with suppress(TimeoutExpired):
            second.wait(0.02)
            pytest.fail(f"it ended: {second.communicate()}")
    second.send_signal(signal.SIGINT)
    said, _ = second.communicate()
    assert second.returncode == 0
    assert "stopped" in said
