"""Random walks of a session through time and code. A position shows what a fresh run to it shows; the
checkpoints stay as they are meanwhile; a kill in the past loses nothing."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import streambench as sb
from streambench.checkpoint.api import Checkpoint, Generation
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.chooser.api import MessageChooser
from streambench.container.outputs.direct_writer import writing
from streambench.debug.control.session import Session
from streambench.errors import ContainerStateError, TaskError
from streambench.job.rewind import Rewind
from streambench.metrics.registry import MetricsRegistry
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer
from streambench.system.log.factory import LogSystemFactory
from streambench.system.memory import MemoryStreams, MemorySystemFactory
from streambench.system.systems import Systems
from streambench.testing import ManualClock
from tests.conftest import CHECKOUT
from tests.container.jobs import Bench, ignore
from tests.container.stateful import with_systems
from tests.debug.control.test_time_travel import STORE, Counter, shown_with_metrics
from tests.surroundings import SOAK

WALKS = 600 if SOAK else 10
WINDOW_MS = 20

Schedule = list[tuple[int, type[Counter], bool]]
"""Exchanges of code: the position, the code, and whether its ``init`` was called."""


class Quiet(Counter):
    """Commits only where the walk does, and fails where it wants that, when all else is done."""

    commits_after = 1_000
    fails = False

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        if Quiet.fails:
            coordinator.commit()
            raise ValueError("as the walk wants it")


class Doubling(Quiet):
    """Counts each message twice, and sends more often."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        key = envelope.message["key"]
        self.store.put(key, (self.store.get(key) or 0) + 1)
        if self.seen % 2:
            collector.send("mem.out", [key, self.seen], key=key)
        super().process(envelope, collector, coordinator)


class Renaming(Quiet):
    """Keeps its counts under other keys, and has an attribute more."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.more = envelope.offset
        self.store.put("more", envelope.offset)
        super().process(envelope, collector, coordinator)


class InBatches:
    """Gets its messages in batches, and keeps their sizes."""

    process: Any
    sizes: list[int]

    def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
        self.sizes = [*getattr(self, "sizes", ()), len(batch)]
        for envelope in batch:
            self.process(envelope, collector, coordinator)


class QuietBatches(InBatches, Quiet):
    """The same in batches."""


class DoublingBatches(InBatches, Doubling):
    """The same in batches."""


class Backwards(MessageChooser):
    """Chooses what came last."""

    def __init__(self) -> None:
        self.inside: list[sb.IncomingMessageEnvelope] = []

    def update(self, envelope: sb.IncomingMessageEnvelope) -> None:
        self.inside.append(envelope)

    def choose(self) -> sb.IncomingMessageEnvelope | None:
        return self.inside.pop() if self.inside else None


CODES = [Quiet, Doubling, Renaming]
BATCHES = [QuietBatches, DoublingBatches]


class MemoryAndLog(SystemFactory):
    """Makes the system ``mem`` in memory, and others as logs."""

    def __init__(self, streams: MemoryStreams) -> None:
        self._memory, self._log = MemorySystemFactory(streams), LogSystemFactory()

    def _of(self, system: str) -> SystemFactory:
        return self._memory if system == "mem" else self._log

    def get_consumer(self, system: str, config: sb.Config, metrics: MetricsRegistry) -> SystemConsumer:
        return self._of(system).get_consumer(system, config, metrics)

    def get_producer(self, system: str, config: sb.Config, metrics: MetricsRegistry) -> SystemProducer:
        return self._of(system).get_producer(system, config, metrics)

    def get_admin(self, system: str, config: sb.Config, metrics: MetricsRegistry) -> SystemAdmin:
        return self._of(system).get_admin(system, config, metrics)


class Origin(NamedTuple):
    """All that a session starts from: streams in memory, checkpoints, their generation, and the time."""

    streams: MemoryStreams
    checkpoints: dict[str, Checkpoint]
    generation: Generation | None
    now_ms: int


def origin_of(made: Bench) -> Origin:
    """A copy of all that the next session of a job starts from."""
    checkpoints = made.checkpoints
    return Origin(
        copied(made.streams), checkpoints.read_last(), checkpoints.last_generation(), made.clock.now_ms()
    )


def copied(streams: MemoryStreams) -> MemoryStreams:
    other = MemoryStreams()
    for stream, partitions in streams.partitions.items():
        other.partitions[stream] = [each.copy() for each in partitions]
    return other


def bench(
    task: Any, config: dict[str, Any], streams: MemoryStreams, checkpoints: MemoryCheckpointManager, now: int
) -> Bench:
    """A job on streams that are there."""
    clock = ManualClock(now)
    made = Bench(
        task,
        {},
        config,
        observed=False,
        remember_choices=5,
        factory=MemoryAndLog(streams),
        streams=streams,
        checkpoints=checkpoints,
        clock=clock,
    )
    made.clock = clock
    return made


def filled(inputs: dict[str, Any], config: dict[str, Any]) -> MemoryStreams:
    """The streams in memory, with the output: so each output knows its partition. Those of logs are made."""
    made = Bench(ignore, {name: each for name, each in inputs.items() if name.startswith("mem.")})
    made.streams.create(sb.SystemStream("mem", "out"), 2)
    for name in inputs.keys() - {str(each) for each in made.streams.partitions}:
        write_log(sb.SystemStream.parse(name), inputs[name], sb.Config(config))
    return made.streams


def write_log(stream: sb.SystemStream, partitions: dict[int, list[Any]], config: sb.Config) -> None:
    def write(systems: Any) -> None:
        systems.create(stream, len(partitions))
        with writing(systems, stream, len(partitions), "test") as writer:
            writer.send(
                sb.OutgoingMessageEnvelope(stream, json.dumps(message).encode(), partition=number)
                for number, messages in partitions.items()
                for message in messages
            )

    with_systems(config, write)


class Walk:
    """A session that walks, and the schedule of its code: at which position it was exchanged."""

    def __init__(self, seed: int, tmp_path: Path) -> None:
        self.chance = random.Random(seed)
        self.inputs: dict[str, Any] = {
            stream: {
                number: [{"key": self.chance.choice("abcd")} for _ in range(self.chance.randrange(8))]
                for number in range(2)
            }
            for stream in ("mem.in", "mem.more", "mem.rules", "disk.in")
        }
        if self.chance.random() < 0.6:
            del self.inputs["disk.in"]
        self.reads_rules = self.chance.random() < 0.3
        if not self.reads_rules:
            del self.inputs["mem.rules"]
        self.config: dict[str, Any] = {
            **STORE,
            "task.inputs": [each for each in self.inputs if each != "mem.rules"],
            "stores.n.factory": self.chance.choice(["memory", "memory", "rocksdb"]),
            "stores.n.ttl.ms": self.chance.choice([0, 0, 3 * WINDOW_MS]),
            "stores.n.object.cache.size": self.chance.choice([0, 2]),
            "stores.n.write.batch.size": 2,
            "job.non-logged.store.base.dir": tmp_path,
            "job.logged.store.base.dir": tmp_path,
            "task.commit.ms": -1,
            "task.window.ms": self.chance.choice([-1, WINDOW_MS]),
            "task.checkpoint.system": "mem",
            "task.processing.guarantee": self.chance.choice(["at-least-once", "exactly-once"]),
            "task.consumer.batch.size": self.chance.choice([1, 2]),
            "task.batch.messages": self.chance.choice([2, 3, 10_000]),
            "systems.mem.streams.more.samza.priority": self.chance.choice([0, 1]),
            "systems.mem.streams.more.samza.bootstrap": self.chance.choice(["true", "false"]),
        }
        if self.chance.random() < 0.2:
            self.config["task.chooser.class"] = "tests.debug.test_random_walks.Backwards"
        if self.reads_rules:
            self.config["task.broadcast.inputs"] = "mem.rules#[0-1]"
        self.codes = self.chance.choice([CODES, CODES, BATCHES])
        if "disk.in" in self.inputs:
            self.config |= {
                "systems.disk.samza.factory": "log",
                "systems.disk.path": tmp_path / "disk",
                "systems.disk.samza.msg.serde": "json",
                "systems.disk.samza.offset.default": "oldest",
            }
        if "disk.in" in self.inputs or self.chance.random() < 0.5:
            self.config["stores.n.changelog"] = "mem.n-changes"
        streams = filled(self.inputs, self.config)
        self.bench = bench(self.codes[0], self.config, streams, MemoryCheckpointManager(), 0)
        self.commits: dict[str, tuple[Any, Any]] = {}
        """Of commits, the stores and offsets that they hold."""
        self.begin()
        self.commits["oldest"] = self.session.stores(), self.session.offsets()

    def begin(self) -> None:
        """Begin a session from what is committed."""
        self.origin = origin_of(self.bench)
        self.session = Session(self.bench.container, history=True)
        self.session.start()
        self.count = sum(each.lag or 0 for each in self.session.snapshot().partitions)
        self.code: Schedule = []
        self.branch: Schedule | None = None
        self.ticks: list[int] = []
        self.batches: dict[int, int] = {}
        self.known: dict[Any, Any] = {}

    def move(self) -> None:
        session, chance = self.session, self.chance
        kinds = ["step", "step", "run", "back", "goto", "forward", "swap", "undo", "live", "commit", "adopt"]
        kinds += ["tick", "fail", "break", "until", "rewind"]
        kind = chance.choice(kinds)
        before = session.position
        if kind == "step":
            session.step(chance.randrange(1, 6))
        elif kind == "run" and session.live:
            left = self.count - session.latest
            session.run(chance.randrange(1, left + 1) if left and chance.random() < 0.7 else "caught-up")
            session.wait()
        elif kind == "back":
            session.back(chance.randrange(1, 8))
        elif kind == "forward":
            session.forward(chance.randrange(1, 8))
        elif kind == "goto":
            session.goto(chance.randrange(self.oldest(), session.latest + 1))
        elif kind == "swap":
            code, init = chance.choice(self.codes), chance.random() < 0.3
            replay = 3 if not session.branched and chance.random() < 0.3 else None
            session.swap(code, replay=replay, init=init)
            if session.live:
                self.code.append((before, code, init))
            else:
                self.branch = [*(self.branch or []), (before, code, init)]
        elif kind == "undo" and session.branched:
            assert session.undo()
            self.branch = (self.branch or [])[:-1] or None
        elif kind == "live":
            session.go_live()
        elif kind == "commit" and session.live and chance.random() < 0.3:
            self.commit()
        elif kind == "rewind" and session.live and "stores.n.changelog" in self.config:
            self.rewind()
        elif kind == "adopt" and session.branched:
            self.adopt()
        elif kind == "tick" and session.live and before < self.count:
            self.ticks.append(before)
            self.bench.clock.advance(WINDOW_MS)
            session.step()
        elif kind == "break":
            self.run_to_a_breakpoint()
        elif kind == "until" and chance.random() < 0.5:
            session.back_until("position % 5 == 0")
        elif kind == "until" and not session.live:
            session.forward_until("position % 5 == 0")
        elif kind == "fail" and session.live and before < self.count:
            self.fail()
        session = self.session
        assert session.history is not None
        self.batches.update(each for block in session.history.blocks for each in block.batches)
        if self.branch is not None:
            self.branch = [each for each in self.branch if each[0] <= session.position] or None
        if session.live:
            self.branch = None
        assert session.branched == (self.branch is not None)

    def commit(self) -> None:
        """A commit, and what it holds."""
        self.session.commit()
        last = self.bench.checkpoints.read_last().values()
        name = max((each.generation, each.sequence) for each in last)
        # What a rewind put in place of a task is no commit of it, and cannot be gone back to as one.
        if all(each.generation for each in last):
            self.commits["{}.{}".format(*name)] = self.session.stores(), self.session.offsets()

    def rewind(self) -> None:
        """The job is stopped, goes back to a commit or to its begin, and starts there as it was."""
        if self.chance.random() < 0.7:
            self.commit()
            self.session.step(self.chance.randrange(1, 6))
        where = self.chance.choice(list(self.commits))
        self.session.stop()
        checkpoints = self.bench.checkpoints.sibling()
        with closing(Systems(self.bench.config, MemoryAndLog(self.bench.streams))) as systems:
            rewind = Rewind(self.bench.config, systems, "job", checkpoints, lambda warning: None)
            rewind.add([where])
            rewind.apply()
        self.bench = bench(
            self.codes[0], self.config, self.bench.streams, checkpoints, self.bench.clock.now_ms()
        )
        self.begin()
        stores, offsets = self.commits[where]
        assert self.session.offsets() == offsets
        if not self.config["stores.n.ttl.ms"]:
            assert self.session.stores() == stores

    def run_to_a_breakpoint(self) -> None:
        """A run, or steps in the past, end at a breakpoint of some kind."""
        session = self.session
        conditions = {
            "message": "message['key'] == 'a'",
            "output": "output.key == 'b'",
            "state": "key == 'c'",
            "commit": "True",
            "window": "True",
        }
        kind: Any = self.chance.choice(list(conditions))
        made = session.break_on(conditions[kind], on=kind, hits=self.chance.choice([1, 2]))
        if session.live:
            session.run("caught-up")
            session.wait()
        else:
            session.step(self.chance.randrange(1, 9))
        session.remove(made)

    def fail(self) -> None:
        """A message fails, is looked at from before, and goes on."""
        session, position = self.session, self.session.position
        Quiet.fails = True
        try:
            with pytest.raises(TaskError, match="as the walk wants it"):
                session.step(self.chance.randrange(1, 4))
        finally:
            Quiet.fails = False
        assert (session.position, session.state) == (position, "failed")
        if self.chance.random() < 0.5:
            session.back(self.chance.randrange(1, 4))
            session.go_live()
        assert session.step() == session.batch

    def adopt(self) -> None:
        """A branch is adopted, or refused with the reason and nothing changed."""
        assert self.branch is not None
        try:
            self.session.adopt()
        except ContainerStateError as refused:
            assert "out already" in str(refused) or "before the commit" in str(refused)
        else:
            begin = self.branch[0][0]
            self.code = [each for each in self.code if each[0] <= begin] + self.branch
            self.branch = None

    def oldest(self) -> int:
        assert self.session.history is not None
        return self.session.history.oldest

    def schedule(self) -> Schedule:
        """The code that led to the position that is shown."""
        if self.branch is None:
            return self.code
        begin = self.branch[0][0]
        return [each for each in self.code if each[0] <= begin] + self.branch

    def check(self) -> None:
        position, schedule = self.session.position, self.schedule()
        earlier = tuple(each for each in schedule if each[0] < position)
        here = [each for each in schedule if each[0] == position]
        # Of exchanges at the position itself, only those with init change what is shown: who goes back to it
        # may see it before or after them.
        inits = [number for number, each in enumerate(here, start=1) if each[2]]
        expected = [self.known_at(position, (*earlier, *here[:end])) for end in (0, *inits)]
        if self.chance.random() < 0.4:
            # Without attributes: a look at these has the tasks run again, from where they ran to last.
            seen = self.session.stores(), self.session.offsets()
            assert seen in [(stores, offsets) for stores, _, offsets, *_ in expected], (seen, expected)
            return
        found = shown_with_metrics(self.session)
        assert found in expected, (found, expected)

    def known_at(self, position: int, schedule: tuple[tuple[int, type[Counter], bool], ...]) -> Any:
        key = position, schedule
        if key not in self.known:
            self.known[key] = self.fresh(*key)
        return self.known[key]

    def follow(self, session: Session, position: int) -> None:
        """Go to a position by the batches of the walk."""
        batches = [*((end, end - count) for end, count in self.batches.items()), (position, position)]
        for end, begin in sorted(batches):
            if session.position <= begin and end <= position:
                while session.position < begin:
                    session.step()
                session.step(end - begin)

    def once_more(self) -> Bench:
        """The job once more, as it was when its session began."""
        config = {**self.config, "stores.n.factory": "memory"}
        streams, checkpoints, generation, now = self.origin
        manager = MemoryCheckpointManager(checkpoints, last=generation)
        return bench(self.codes[0], config, copied(streams), manager, now)

    def fresh(self, position: int, schedule: tuple[tuple[int, type[Counter], bool], ...]) -> Any:
        other = self.once_more()
        session = Session(other.container, history=True)
        session.start()
        ticks = [(at, None, False) for at in self.ticks if at < position]
        for at, code, init in sorted([*ticks, *schedule], key=lambda each: each[0]):
            self.follow(session, at)
            if code is None:
                other.clock.advance(WINDOW_MS)
            else:
                session.swap(code, init=init)
        self.follow(session, position)
        found = shown_with_metrics(session)
        session.abandon()
        return found


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_position_is_that_of_a_fresh_run_to_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 3:  # with waypoints inside of blocks as short as these
        monkeypatch.setattr("streambench.debug.past.way._NEAR", seed % 3)
        monkeypatch.setattr("streambench.debug.past.way._FAR", 7)
    walk = Walk(seed, tmp_path)
    for _ in range(25):
        committed, live = walk.bench.committed(), walk.session.live
        walk.move()
        walk.check()
        if not live and not walk.session.live:
            assert walk.bench.committed() == committed
    walk.session.stop()
    assert walk.session.state == "stopped"


PROGRAM = """
import os, signal, sys
import streambench as sb
from streambench.debug.control.session import Session
from tests.debug.test_random_walks import Doubling, Quiet, on_disk

session = Session(sb.Container(on_disk(sys.argv[1]), Quiet))
session.start()
session.step(8)
session.commit()
session.step(7)
session.goto(int(sys.argv[2]))
session.swap(Doubling)
session.step(2)
if sys.argv[3] == "adopt":
    session.adopt()
os.kill(os.getpid(), signal.SIGKILL)
"""


def on_disk(path: Path | str) -> sb.Config:
    """A job whose streams, stores and checkpoints are below a directory."""
    return sb.Config(
        {
            **STORE,
            "job.name": "walk",
            "task.inputs": "mem.in",
            "task.commit.ms": -1,
            "task.processing.guarantee": "exactly-once",
            "stores.n.factory": "rocksdb",
            "systems.mem.samza.factory": "log",
            "systems.mem.path": path,
            "systems.mem.samza.key.serde": "json",
            "systems.mem.samza.msg.serde": "json",
            "systems.mem.samza.offset.default": "oldest",
        }
    )


def fill(config: sb.Config) -> None:
    def write(systems: Any) -> None:
        stream = sb.SystemStream("mem", "in")
        systems.create(stream, 2)
        with writing(systems, stream, 2, "test") as writer:
            writer.send(
                sb.OutgoingMessageEnvelope(
                    stream, b'{"key": "%c"}' % b"abc"[number % 3], partition=number % 2
                )
                for number in range(20)
            )

    with_systems(config, write)


def finished(config: sb.Config) -> Any:
    """What a run to the end shows and leaves."""
    session = Session(sb.Container(config, Quiet))
    session.start()
    started = session.stores(), session.offsets()
    session.run("caught-up")
    session.wait()
    found = started, session.stores(), session.offsets()
    session.stop()
    manager = checkpoint_manager(config, "walk-1")
    committed = {task: dict(each.offsets) for task, each in manager.read_last().items()}
    manager.close()
    return found, committed


@pytest.mark.parametrize(("position", "then"), [(3, "stay"), (9, "adopt")])
def test_a_kill_in_the_past_loses_nothing(tmp_path: Path, position: int, then: str) -> None:
    killed, plain = on_disk(tmp_path / "killed"), on_disk(tmp_path / "plain")
    for config in (killed, plain):
        fill(config)
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "killed"), str(position), then]
    done = subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    session = Session(sb.Container(plain, Quiet))
    session.start()
    session.step(8)
    session.commit()
    session.abandon()
    assert finished(killed) == finished(plain)
