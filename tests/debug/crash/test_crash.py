"""The simulated crash of a session's container. It foretells what a real one does."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections import Counter as Bag
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.debug import crash_everywhere
from streambench.debug.control.session import Session
from streambench.debug.crash.crash import Crash
from streambench.debug.crash.crash_report import CrashStep, Report
from streambench.errors import ContainerStateError
from streambench.system.log import open_log
from tests.conftest import CHECKOUT
from tests.container.jobs import Bench
from tests.container.stateful import with_systems
from tests.debug.control.test_time_travel import STORE, session_of
from tests.debug.dropped_interrupt import DroppedInterrupt
from tests.surroundings import SOAK

NEVER = {"task.commit.ms": -1}
EXACTLY_ONCE = {**NEVER, "task.processing.guarantee": "exactly-once", "task.checkpoint.system": "mem"}
GUARANTEES = [NEVER, EXACTLY_ONCE]


class Counting(sb.StreamTask):
    """Counts by key in its store, and sends each count; ``commit`` commits."""

    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("n")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        count = (self.store.get(envelope.message) or 0) + 1
        self.store.put(envelope.message, count)
        collector.send("mem.out", [envelope.message, count], key=envelope.message)
        if envelope.message == "commit":
            coordinator.commit()


class Forgetful(Counting):
    """Counts in an attribute, which a crash takes away."""

    seen = 0

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen += 1
        self.store.put("seen", self.seen)
        collector.send("mem.out", self.seen)
        if envelope.message == "commit":
            coordinator.commit()


class Impatient(Counting):
    """Fails at its start where it has state."""

    def init(self, context: sb.TaskContext) -> None:
        super().init(context)
        if self.store.get("a"):
            raise ValueError("there is state")


class Windowed(Counting):
    """Sends in its windows only."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.store.put(envelope.message, (self.store.get(envelope.message) or 0) + 1)

    def window(self, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", sorted(key for key, _ in self.store.all()))
        coordinator.commit()


def of(*words: str) -> dict[str, Any]:
    return {"mem.in": {0: list(words)}}


def crashed(
    task: Any, words: tuple[str, ...], config: dict[str, Any] | None = None, steps: int | None = None
) -> Crash:
    session, _ = session_of(task, of(*words), config or NEVER)
    session.step(len(words) if steps is None else steps)
    crash = session.crash()
    session.abandon()
    return crash


def test_a_crash_says_what_comes_again_what_is_twice_and_what_is_lost() -> None:
    crash = crashed(Counting, ("a", "commit", "a", "b"))
    assert [f"{each.ssp}@{each.offset}" for each in crash.again] == ["mem.in.0@2", "mem.in.0@3"]
    assert [each.message for each in crash.outputs_twice] == [["a", 2], ["b", 1]]
    assert [each.position for each in crash.outputs_twice] == [3, 4]
    assert crash.state == {"Partition 0": {"n": {"a": (2, 1), "b": (1, None)}}}
    assert (crash.committed, crash.differs, crash.safe) == ({"Partition 0": 2}, {}, False)


def test_under_exactly_once_nothing_is_twice() -> None:
    crash = crashed(Counting, ("a", "commit", "a", "b"), EXACTLY_ONCE)
    assert len(crash.again) == 2
    assert (crash.outputs_twice, crash.outputs_lost, crash.safe) == ((), (), True)


def test_a_crash_right_after_a_commit_changes_nothing() -> None:
    crash = crashed(Counting, ("a", "commit"))
    assert (crash.again, crash.outputs_twice, crash.state, crash.safe) == ((), (), {}, True)


def test_without_a_commit_a_crash_leads_back_to_the_start() -> None:
    crash = crashed(Counting, ("a", "b"))
    assert (crash.committed, len(crash.again)) == ({"Partition 0": 0}, 2)


def test_a_crash_inside_a_commit_leads_back_to_the_one_before() -> None:
    session, _ = session_of(Counting, of("a", "commit"), NEVER)
    session.step(2)
    crash = session.crash(inside_commit=True)
    assert (len(crash.again), len(crash.outputs_twice)) == (2, 2)
    assert session.crash().safe
    session.goto(1)
    with pytest.raises(ContainerStateError, match="no task was committed at 1"):
        session.crash(inside_commit=True)
    session.stop()


@pytest.mark.parametrize("config", GUARANTEES)
def test_lost_attributes_show_in_what_is_sent_and_stored_again(config: dict[str, Any]) -> None:
    crash = crashed(Forgetful, ("a", "commit", "a", "b"), config)
    assert [each.message for each in crash.outputs_new] == [1, 2]
    assert crash.differs == {"Partition 0": {"n": {"seen": (4, 2)}}}
    lost = [each.message for each in crash.outputs_lost]
    assert lost == ([3, 4] if config is EXACTLY_ONCE else [])
    assert not crash.safe


def test_a_store_without_a_changelog_begins_empty_after_a_crash() -> None:
    crash = crashed(Counting, ("a", "commit", "b"), {**NEVER, "stores.n.changelog": "none"})
    assert crash.state == {"Partition 0": {"n": {"a": (1, None), "commit": (1, None), "b": (1, None)}}}
    assert crash.differs == {"Partition 0": {"n": {"a": (1, None), "commit": (1, None)}}}


def test_a_task_that_fails_when_it_starts_again_is_found() -> None:
    crash = crashed(Impatient, ("a", "commit", "b"))
    assert crash.error is not None and "there is state" in crash.error
    assert not crash.safe


def test_windows_are_called_again_where_they_were() -> None:
    session, bench = session_of(Windowed, of("a", "b", "c"), {**NEVER, "task.window.ms": 10})
    session.step(1)
    bench.clock.advance(20)
    session.step(1)
    assert session.crash().again == ()
    inside = session.crash(inside_commit=True)
    assert [each.message for each in inside.outputs_twice] == [["a", "b"]]
    session.step(1)
    assert [each.offset for each in session.crash().again] == ["2"]
    session.stop()


def test_a_crash_in_the_past_is_one_at_that_position() -> None:
    session, _ = session_of(Counting, of("a", "commit", "a", "b"), NEVER)
    session.step(4)
    session.goto(3)
    crash = session.crash()
    assert (crash.position, [each.offset for each in crash.again]) == (3, ["2"])
    session.goto(1)
    assert session.crash().committed == {"Partition 0": 0}
    session.swap(Forgetful)
    with pytest.raises(ContainerStateError, match="go_live"):
        session.crash()
    session.go_live()
    session.stop()


@pytest.mark.parametrize("config", GUARANTEES)
def test_a_simulated_crash_changes_nothing_real(config: dict[str, Any]) -> None:
    session, bench = session_of(Counting, of("a", "commit", "a", "b"), config)
    session.step(3)
    before = bench.outputs(), bench.committed(), session.stores(), session.offsets()
    session.crash()
    crash_everywhere(session)
    assert (bench.outputs(), bench.committed(), session.stores(), session.offsets()) == before
    assert (session.position, session.live, session.step(1)) == (3, True, 1)
    session.stop()


def test_the_verdict_names_the_one_step_that_is_not_safe() -> None:
    class Late(Counting):
        """Sends at one message, and commits there."""

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.store.put("n", envelope.message)
            if envelope.message == 412:
                collector.send("mem.late", envelope.message)
                coordinator.commit()

    session, _ = session_of(Late, {"mem.in": {0: list(range(1, 1_001))}}, NEVER)
    session.step(1_000)
    report = crash_everywhere(session)
    expected = "1,000 steps: 999 safe. After 412 mem.late gets a message twice (at-least-once)"
    assert str(report) == expected
    assert (report.steps, report.safe, [each.position for each in report.unsafe]) == (1_000, 999, [412])
    assert report.unsafe[0].inside_commit
    session.stop()


def test_the_verdict_of_a_step_is_that_of_a_crash_there() -> None:
    session, _ = session_of(Forgetful, of(*"ab", "commit", *"abc", "commit", "a"), NEVER)
    session.step(8)
    steps = {each.position: each for each in crash_everywhere(session).unsafe}
    for position in range(1, 9):
        session.goto(position)
        crash = session.crash()
        if crash.safe:
            assert position not in steps or steps[position].inside_commit
        elif not steps[position].inside_commit:
            assert sum(steps[position].twice.values()) == len(crash.outputs_twice)
            assert sum(steps[position].new.values()) == len(crash.outputs_new)
    session.stop()


def interrupted_at(session: Session, call: int) -> Report:
    """The report of ``crash_everywhere``, interrupted at a call of its progress."""
    calls = iter(range(1, 1_000_000))

    def progress(done: int, total: int) -> None:
        if next(calls) == call:
            raise KeyboardInterrupt

    return crash_everywhere(session, progress=progress)


def test_an_interrupt_leaves_the_verdicts_so_far() -> None:
    session, _ = session_of(Counting, of(*"abcabcabca"), NEVER)
    session.step(10)
    report = interrupted_at(session, 5)
    # The first call is that of a crash before the first message.
    assert (report.steps, report.left, [each.position for each in report.unsafe]) == (4, 6, [1, 2, 3, 4])
    assert str(report).startswith("4 of 10 steps looked at: 0 safe. After 1 mem.out gets a message twice")
    assert str(interrupted_at(session, 1)) == "0 of 10 steps looked at (at-least-once)"
    assert session.live and session.state == "paused"
    session.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_ends_it_all_the_same() -> None:
    session, _ = session_of(Counting, of(*"abcabcabca"), NEVER)
    session.step(10)
    interrupt = DroppedInterrupt()

    def progress(done: int, total: int) -> None:
        if done == 5:
            interrupt.press()

    report = crash_everywhere(session, progress=progress)
    assert (report.steps, report.left) == (4, 6)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    session.stop()


@pytest.mark.parametrize("seed", range(20))
def test_an_interrupted_verdict_is_a_part_of_the_whole_one(seed: int) -> None:
    chance = random.Random(seed)
    session, _ = session_of(Chance, random_inputs(chance), {**NEVER, "stores.loose.factory": "memory"})
    while session.step(2):
        pass
    calls: list[tuple[int, int]] = []
    whole = crash_everywhere(session, progress=lambda *each: calls.append(each))
    verdicts = {each.position: each for each in whole.unsafe}
    steps = []
    for call in reversed(range(len(calls), 0, -1 if SOAK else -4)):
        report = interrupted_at(session, call)
        assert report.steps + report.left == whole.steps
        assert {each.position for each in report.unsafe} <= verdicts.keys()
        assert report.safe <= whole.safe
        steps.append(report.steps)
    assert steps == sorted(steps) and steps[-1] == whole.steps
    session.stop()


def test_code_that_was_swapped_starts_again_as_it_is_then() -> None:
    session, _ = session_of(Counting, of("a", "a", "a"), NEVER)
    session.step(2)
    session.swap(Forgetful)
    session.step(1)
    assert [each.message for each in session.crash().outputs_new] == [2, 3]
    session.goto(1)
    assert session.crash().outputs_new == ()
    session.stop()


@pytest.mark.usefixtures("one_block")
def test_a_history_without_the_last_commit_says_so() -> None:
    session, _ = session_of(Counting, of("a", "b"), EXACTLY_ONCE)
    session.step(1)
    history = session.history
    assert history is not None
    history.limit = 1
    history.cut()
    with pytest.raises(ContainerStateError, match="last commit of Partition 0 was before"):
        session.crash()
    session.commit()
    assert session.crash().safe
    session.stop()


def test_a_crash_behind_an_adopted_branch_leads_to_the_commit() -> None:
    session, _ = session_of(Counting, of("a", "commit", "a", "a"), EXACTLY_ONCE)
    session.step(4)
    session.goto(3)
    session.swap(Forgetful)
    session.adopt()
    crash = session.crash()
    assert crash.committed == {"Partition 0": 2}
    assert [each.offset for each in crash.again] == ["2", "3"]
    session.goto(2)
    assert session.crash().safe
    session.go_live()
    session.stop()


class Chance(sb.StreamTask):
    """Does with each message what the message says."""

    def init(self, context: sb.TaskContext) -> None:
        self.store, self.loose = context.store("n"), context.store("loose")
        self.seen = 0

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        word = envelope.message
        self.seen += 1
        if "w" in word:
            self.store.put(word[0], (self.store.get(word[0]) or 0) + 1)
        if "d" in word:
            self.store.delete("c")
        if "l" in word:
            self.loose.put("l", (self.loose.get("l") or 0) + 1)
        if "s" in word:
            collector.send("mem.out", [word, self.store.get(word[0])])
        if "k" in word:
            collector.send("mem.out", [word, self.store.get("a")], key=word[0])
        if "o" in word:
            collector.send("mem.out", self.loose.get("l"))
        if "f" in word:
            collector.send("mem.out", self.seen)
        if "1" in word:
            coordinator.commit()
        if "2" in word:
            coordinator.commit(sb.RequestScope.ALL_TASKS_IN_CONTAINER)


class ChanceInWindows(Chance):
    """The same, and counts its windows in the store."""

    def window(self, collector: Any, coordinator: Any) -> None:
        self.store.put("windows", (self.store.get("windows") or 0) + 1)
        collector.send("mem.out", ["window", self.store.get("windows")])


def random_inputs(chance: random.Random) -> dict[str, dict[int, list[Any]]]:
    often = chance.choice(["wwwsskkd", "wwsskdlof"])
    commits = chance.choice(["1", "2", "12", ""])

    def word() -> str:
        commit = chance.choice(commits) if commits and chance.random() < 0.3 else ""
        return chance.choice("abc") + "".join(chance.sample(often, 2)) + commit

    return {
        "mem.in": {number: [word() for _ in range(chance.randrange(1, 7))] for number in range(3)},
    }


@pytest.mark.parametrize("seed", range(500 if SOAK else 40))
def test_a_simulated_crash_foretells_a_real_one(seed: int) -> None:
    chance = random.Random(seed)
    inputs = random_inputs(chance)
    config = {
        **STORE,
        "stores.loose.factory": "memory",
        "stores.loose.key.serde": "string",
        "stores.loose.msg.serde": "json",
        "stores.loose.changelog": "none",
        "systems.mem.streams.out.partitions": 2,
        "task.inputs": "mem.in",
        **chance.choice(GUARANTEES),
    }
    session = Session(Bench(Chance, inputs, config, observed=False).container)
    session.start()
    session.run("caught-up")
    session.wait()
    session.goto(chance.randrange(1, session.latest + 1))
    crash, undisturbed, stores = session.crash(), session.outputs(), session.stores()
    read = session.offsets()
    session.go_live()
    session.stop()

    # The same messages, and a container that is dropped after them as a crash drops it.
    counts = {ssp.partition: int(offset) + 1 for of_task in read.values() for ssp, offset in of_task.items()}
    kept = {"mem.in": {number: each[: counts.get(number, 0)] for number, each in inputs["mem.in"].items()}}
    bench = Bench(Chance, kept, config, observed=False)
    bench.started().run("caught-up")
    bench.container.abandon()
    again = Bench(Chance, {}, config, observed=False, streams=bench.streams, checkpoints=bench.checkpoints)
    real = Session(again.container)
    real.start()
    assert real.step(1_000) == len(crash.again)
    real.commit()
    there = Bag(map(str, again.outputs()))
    wanted = Bag(str(output.message) for output in undisturbed)
    more = [each.message for each in (*crash.outputs_twice, *crash.outputs_new)]
    assert there - wanted == Bag(map(str, more))
    assert wanted - there == Bag(str(each.message) for each in crash.outputs_lost)
    for task, of_task in crash.differs.items():
        for store, of_store in of_task.items():
            for key, (_, after) in of_store.items():
                stores[task][store].pop(key, None)
                if after is not None:
                    stores[task][store][key] = after
    assert real.stores() == stores
    real.stop()


@pytest.mark.parametrize("seed", range(100 if SOAK else 10))
def test_a_job_that_keeps_all_in_stores_is_safe_under_exactly_once(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    inputs = {
        "mem.in": {
            number: [
                chance.choice("abc") + "".join(chance.sample("wdsk", 2)) + chance.choice(["1", "2", "", ""])
                for _ in range(chance.randrange(1, 15))
            ]
            for number in range(3)
        },
    }
    config = {
        **EXACTLY_ONCE,
        "stores.n.factory": chance.choice(["memory", "rocksdb"]),
        "stores.loose.factory": "memory",
        "job.logged.store.base.dir": tmp_path,
        "task.window.ms": chance.choice([0, 20]),
        "task.consumer.batch.size": chance.choice([1, 3]),
    }
    session, bench = session_of(ChanceInWindows, inputs, config)
    while session.step(chance.randrange(1, 5)):
        bench.clock.advance(chance.randrange(20))
    report = crash_everywhere(session)
    assert str(report) == f"{report.steps:,} steps: all safe (exactly-once)"
    assert report.steps == session.latest
    session.stop()


PROGRAM = """
import os, signal, sys
import orjson
import streambench as sb
from streambench.debug.control.session import Session
from tests.debug.crash.test_crash import Counting, on_disk

session = Session(sb.Container(on_disk(sys.argv[1], sys.argv[2]), Counting))
session.start()
session.step(int(sys.argv[3]))
crash = session.crash()
twice = [each.message for each in crash.outputs_twice]
print(orjson.dumps([twice, [each.offset for each in crash.again]]).decode(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def on_disk(path: Path | str, guarantee: str) -> sb.Config:
    """The same job with all its streams, stores and checkpoints below a directory."""
    return sb.Config(
        {
            **STORE,
            **NEVER,
            "job.name": "crash",
            "task.inputs": "mem.in",
            "task.processing.guarantee": guarantee,
            "systems.mem.samza.factory": "log",
            "systems.mem.path": path,
            "systems.mem.linger.ms": 0,
            "systems.mem.samza.key.serde": "string",
            "systems.mem.samza.msg.serde": "json",
            "systems.mem.samza.offset.default": "oldest",
        }
    )


def fill_input(config: sb.Config, words: Sequence[str]) -> None:
    """Write the input of the job: one partition with these words."""

    def write(systems: Any) -> None:
        stream = sb.SystemStream("mem", "in")
        systems.create(stream, 1)
        with writing(systems, stream, 1, "test") as writer:
            writer.send(sb.OutgoingMessageEnvelope(stream, orjson.dumps(word)) for word in words)

    with_systems(config, write)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_real_kill_leaves_the_outputs_twice_that_were_foretold(tmp_path: Path, guarantee: str) -> None:
    config = on_disk(tmp_path, guarantee)
    fill_input(config, ["a", "b", "commit", "a", "b", "a"])
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path), guarantee, "5"]
    done = subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    twice, again = orjson.loads(done.stdout)
    assert again == ["3", "4"]
    with sb.Container(config, Counting) as container:
        assert container.run("caught-up") == 3
    with open_log(tmp_path) as streams:
        rows = [row for batch in streams.partition("out", 0).read(0) for row in batch.to_pylist()]
    found = Bag(str(orjson.loads(row["value"])) for row in rows)
    assert [each for each, count in found.items() if count > 1] == list(map(str, twice))
    assert twice == ([["a", 2], ["b", 2]] if guarantee == "at-least-once" else [])


def inside_commit(step: CrashStep | None) -> bool:
    return step is not None and step.inside_commit


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_crashes_everywhere_on_disk_are_foretold(
    tmp_path: Path, store: str, guarantee: str, seed: int
) -> None:
    chance = random.Random(seed)
    words = [
        chance.choice("abc") + "".join(chance.sample("wwsskdlof", 2)) + chance.choice(["1", "", ""])
        for _ in range(chance.randrange(5, 15))
    ]

    def config_in(path: Path) -> sb.Config:
        loose = {f"stores.loose.{name}": STORE[f"stores.n.{name}"] for name in ("key.serde", "msg.serde")}
        return on_disk(path, guarantee).with_values(
            {
                **loose,
                "stores.n.factory": store,
                "stores.loose.factory": "memory",
                "stores.loose.changelog": "none",
                "job.logged.store.base.dir": path / "stores",
            }
        )

    def sent(path: Path) -> Bag[str]:
        with open_log(path) as streams:
            batches = streams.partition("out", 0).read(0) if (path / "out").is_dir() else ()
            return Bag(str(row["value"]) for batch in batches for row in batch.to_pylist())

    before = tmp_path / "before"
    fill_input(config_in(before), words)
    shutil.copytree(before, tmp_path / "whole")
    session = Session(sb.Container(config_in(tmp_path / "whole"), Chance))
    session.record(tmp_path / "run.recording")
    session.start()
    session.run("caught-up")
    session.wait()
    report = crash_everywhere(session)
    session.stop()
    assert str(crash_everywhere(tmp_path / "run.recording", task=Chance)) == str(report)
    verdicts = {each.position: each for each in report.unsafe}
    positions = [each for each in range(1, len(words) + 1) if not inside_commit(verdicts.get(each))]
    for position in positions if SOAK else chance.sample(positions, 2):
        found = []
        for crashes in (False, True):
            path = tmp_path / f"{position}-{crashes}"
            shutil.copytree(before, path)
            container = sb.Container(config_in(path), Chance)
            container.start()
            container.step(position)
            if crashes:
                container.abandon()
                container = sb.Container(config_in(path), Chance)
                container.start()
                (partition,) = container.snapshot().partitions
                container.step(position - int(partition.position))
            container.commit()
            container.stop()
            found.append(sent(path))
        undisturbed, crashed = found
        verdict = verdicts.get(position, CrashStep(position=position))
        more = sum(verdict.twice.values()) + sum(verdict.new.values())
        assert (position, (crashed - undisturbed).total()) == (position, more)
        assert (position, (undisturbed - crashed).total()) == (position, sum(verdict.lost.values()))


def test_a_report_without_steps_says_that_there_are_none() -> None:
    assert str(Report(0, 0, "exactly-once")) == "no steps to try (exactly-once)"
