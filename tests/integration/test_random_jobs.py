"""Random jobs beside a model of them in plain Python.

Starts in several containers, crashes, rewinds, stores that come and go, serdes that change and inputs that
grow. After each of them state, outputs and checkpoints are those of the model, or there is an error that the
model knows. ``SOAK=1`` tries 300 jobs.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest
from msgspec import Struct
from typer.testing import CliRunner

import streambench as sb
from streambench.cli.app import app
from streambench.clock import SystemClock
from streambench.errors import ConfigError, StoreError
from streambench.planning.changelog_partitions import open_generation
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import PlannedContainer
from streambench.planning.plan import plan
from streambench.system.log import open_log
from streambench.system.systems import Systems
from tests.surroundings import SOAK

JOBS = 300 if SOAK else 12
ACTS = 12
MOST_PARTITIONS = 5
KEYS = "abc"
STORES = ("one", "two")
SERDES = ("json", "msgpack")

Processed = tuple[str, int, str, dict[str, int]]


class Counts(sb.StreamTask):
    """Counts keys in every store that is configured, and sends the counts on."""

    seen: ClassVar[list[Processed]] = []

    def init(self, context: sb.TaskContext) -> None:
        self.name = context.task_name
        self.stores = {name: context.store(name) for name in context.config.names_below("stores.")}

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        for store in self.stores.values():
            store[envelope.key] = store.get(envelope.key, 0) + 1
        counts = {name: store[envelope.key] for name, store in self.stores.items()}
        out = [int(envelope.offset), envelope.key, counts]
        collector.send(
            sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), out, partition=envelope.ssp.partition)
        )
        Counts.seen.append((self.name, int(envelope.offset), envelope.key, counts))


class Task(Struct):
    """One task as it ought to be. ``formats``: of the stores that its checkpoint knows, the serdes of their
    values."""

    position: int = 0
    stores: dict[str, dict[str, int]] = {}
    formats: dict[str, str] = {}
    outputs: list[Any] = []


class Model:
    """The job as it ought to be: ``live``, as ``committed``, and as it was at each commit."""

    def __init__(self) -> None:
        self.inputs: list[list[str]] = []
        self.live: dict[str, Task] = {}
        self.committed: dict[str, Task] = {}
        self.commits: dict[str, dict[tuple[int, int], Task]] = {}
        self.sent: dict[str, list[Any]] = {}

    def process(self, seen: list[Processed], stores: dict[str, str]) -> None:
        for name, offset, key, counts in seen:
            task = self.live[name]
            assert offset == task.position, f"{name} processed {offset} and not {task.position}"
            assert key == self.inputs[int(name.split()[1])][offset]
            task.position += 1
            for store in stores:
                of_store = task.stores.setdefault(store, {})
                of_store[key] = of_store.get(key, 0) + 1
                assert counts[store] == of_store[key]
            assert counts.keys() == stores.keys()
            task.outputs.append([offset, key, counts])
            self.sent.setdefault(name, []).append([offset, key, counts])

    def commit(self, names: list[str], stores: dict[str, str]) -> None:
        for name in names:
            self.live[name].formats |= stores
            self.committed[name] = copy.deepcopy(self.live[name])

    def crash(self, names: list[str]) -> None:
        for name in names:
            self.live[name] = copy.deepcopy(self.committed.get(name, Task()))

    def go_back(self, name: str, task: Task) -> None:
        """Outputs stay where they are."""
        outputs = self.committed.get(name, Task()).outputs
        self.committed[name] = copy.deepcopy(task)
        self.committed[name].outputs = copy.deepcopy(outputs)
        self.live[name] = copy.deepcopy(self.committed[name])


class RandomJob:
    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = open_log(directory / "log")
        self.path = directory / "job.properties"
        self.model = Model()
        self.once = self.chance.random() < 0.5
        self.factory = self.chance.choice(("memory", "rocksdb"))
        self.stores = {store: "json" for store in STORES if self.chance.random() < 0.7}
        self.log.create("out", MOST_PARTITIONS)
        partitions = self.chance.randint(1, 3)
        self.log.create("in", partitions)
        self.model.inputs = [[] for _ in range(partitions)]

    def config(self) -> sb.Config:
        values = {
            "job.name": "random",
            "task.inputs": "log.in",
            "task.class": f"{__name__}:Counts",
            "task.commit.ms": -1,
            "task.processing.guarantee": "exactly-once" if self.once else "at-least-once",
            "systems.log.samza.factory": "log",
            "systems.log.path": "log",
            "systems.log.samza.offset.default": "oldest",
            "systems.log.samza.key.serde": "string",
            "systems.log.samza.msg.serde": "json",
        }
        for store, serde in self.stores.items():
            values |= {f"stores.{store}.factory": self.factory, f"stores.{store}.msg.serde": serde}
        self.path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return sb.Config.from_file(self.path)

    # What happens to it

    def send(self) -> None:
        for partition, messages in enumerate(self.model.inputs):
            keys = [self.chance.choice(KEYS) for _ in range(self.chance.randrange(6))]
            if keys:
                self.log.partition("in", partition).append([key.encode() for key in keys], [b"0"] * len(keys))
                messages += keys

    def grow(self) -> None:
        if len(self.model.inputs) < MOST_PARTITIONS:
            self.model.inputs.append([])
            self.log.grow("in", len(self.model.inputs))

    def change_stores(self) -> None:
        store = self.chance.choice(STORES)
        if self.stores.pop(store, None) is None:
            last = [task.formats[store] for task in self.model.committed.values() if store in task.formats]
            self.stores[store] = self.chance.choice(last or SERDES)

    def change_serde(self) -> None:
        if self.stores:
            self.stores[self.chance.choice(sorted(self.stores))] = self.chance.choice(SERDES)

    def start(self) -> None:
        """Start the job, let it process something, and end it, or its process."""
        config = self.config()
        systems, manager = Systems(config), checkpoint_manager(config, "random-1")
        model = plan(
            config.with_values(
                {"job.container.count": self.chance.randint(1, min(3, len(self.model.inputs)))}
            ),
            "random-1",
            systems.inputs([sb.SystemStream("log", "in")]),
            manager.last_generation(),
        )
        generation = open_generation(manager, model, now_ms=SystemClock().now_ms()).number
        manager.close()
        systems.close()
        self.planned = len(self.model.inputs)
        for task in model.tasks:
            self.model.live.setdefault(task.name, Task())
        containers = [
            sb.Container(config, planned=PlannedContainer(model, each.number, generation))
            for each in model.containers
        ]
        running = []
        for container, each in zip(containers, model.containers, strict=True):
            names = [task.name for task in each.tasks]
            try:
                container.start()
            except (ConfigError, StoreError) as error:
                self.check_error(error, names)
                for other, its_names in running:
                    other.abandon()
                    self.model.crash(its_names)
                self.make_good(error)
                return
            running.append((container, names))
            assert not isinstance(self.expected_error(names), str), self.expected_error(names)
            self.note_commits(names)
            self.check_state(container, names)
        for _ in range(self.chance.randrange(1, 4)):
            for container, names in running:
                if self.chance.random() < 0.4:
                    container.step(self.chance.randrange(1, 6))
                else:
                    container.run("caught-up")
                self.take_in()
                self.check_state(container, names)
                if self.chance.random() < 0.3:
                    container.commit()
                    self.committed(names)
        for container, names in running:
            if self.chance.random() < 0.4:
                container.abandon()
                self.model.crash(names)
            else:
                container.stop()
                self.committed(names)
        self.check()

    def rewind(self) -> None:
        where = "oldest"
        commits = sorted({commit for of_task in self.model.commits.values() for commit in of_task})
        if commits and self.chance.random() < 0.7:
            where = "{}.{}".format(*self.chance.choice(commits))
        self.rewind_to(where)

    def rewind_to(self, where: str) -> None:
        self.config()
        result = CliRunner().invoke(app, ["checkpoints", "--rewind", where, "--yes", str(self.path)])
        tasks = [f"Partition {number}" for number in range(len(self.model.inputs))]
        if self.planned < len(tasks):
            assert result.exit_code == 1
            return
        goals = {}
        for task in tasks:
            if where == "oldest":
                goals[task] = Task()
                continue
            generation, sequence = map(int, where.split("."))
            made = [commit for commit in self.model.commits.get(task, {}) if commit <= (generation, sequence)]
            if not made:
                assert result.exit_code == 1, result.output
                return
            goals[task] = self.model.commits[task][max(made)]
        assert result.exit_code == 0, result.output
        for task, goal in goals.items():
            self.model.go_back(task, goal)

    # What must be so

    def take_in(self) -> None:
        seen, Counts.seen = Counts.seen, []
        self.model.process(seen, self.stores)

    def committed(self, names: list[str]) -> None:
        last = self.last()
        changed = [
            name
            for name in names
            if name not in self.model.committed
            or self.model.live[name].position != self.model.committed[name].position
        ]
        self.model.commit(changed, self.stores)
        for name in changed:
            self.model.commits.setdefault(name, {})[last[name].generation, last[name].sequence] = (
                copy.deepcopy(self.model.committed[name])
            )

    def note_commits(self, names: list[str]) -> None:
        """Take note of the checkpoints that a start writes: of where a task begins, and of its stores."""
        last = self.last()
        for name in names:
            task = self.model.live[name]
            known = {store: self.stores[store] for store in last[name].changelogs if store in self.stores}
            task.formats |= known
            self.model.committed[name] = copy.deepcopy(task)
            if last[name].generation:
                commit = last[name].generation, last[name].sequence
                self.model.commits.setdefault(name, {}).setdefault(commit, copy.deepcopy(task))

    def last(self) -> dict[str, sb.Checkpoint]:
        manager = checkpoint_manager(self.config(), "random-1")
        try:
            return manager.read_last()
        finally:
            manager.close()

    def expected_error(self, names: list[str]) -> str | None:
        """The serde for which a start must be refused."""
        for name in names:
            task = self.model.committed.get(name, Task())
            for store, serde in self.stores.items():
                if task.stores.get(store) and task.formats.get(store, serde) != serde:
                    return f"{name} has state of {store} in {task.formats[store]}"
        return None

    def check_error(self, error: Exception, names: list[str]) -> None:
        tasks = [self.model.committed.get(name, Task()) for name in names]
        if isinstance(error, ConfigError):
            assert "was written with the serde" in str(error), error
            assert any(
                task.formats.get(store, serde) != serde
                for task in tasks
                for store, serde in self.stores.items()
            ), error
        else:
            assert "no checkpoint of" in str(error), error
            assert any(store not in task.formats for task in tasks for store in self.stores), error

    def make_good(self, error: Exception) -> None:
        if isinstance(error, ConfigError) and self.chance.random() < 0.7:
            for task in self.model.committed.values():
                self.stores |= {store: task.formats[store] for store in self.stores if store in task.formats}
        else:
            self.rewind_to("oldest")

    def check_state(self, container: sb.Container, names: list[str]) -> None:
        for task in container.tasks:
            assert task.name in names
            for store in self.stores:
                assert dict(task.context.store(store).all()) == self.model.live[task.name].stores.get(
                    store, {}
                ), f"{task.name} {store}"

    def check(self) -> None:
        for name, checkpoint in self.last().items():
            number = int(name.split()[1])
            ssp = sb.SystemStreamPartition("log", "in", number)
            position = (
                int(checkpoint.offsets[ssp]) + 1 if ssp in checkpoint.offsets else int(checkpoint.starts[ssp])
            )
            assert position == self.model.committed.get(name, Task()).position, name
            written = [
                orjson.loads(value)
                for batch in self.log.partition("out", number).read(0)
                for value in batch["value"].to_pylist()
            ]
            outputs = self.model.committed.get(name, Task()).outputs
            if self.once:
                assert written == outputs, name
            else:
                rest = iter(written)
                assert all(any(output == each for each in rest) for output in outputs), name
                texts = Counter(map(repr, written)) - Counter(map(repr, self.model.sent.get(name, [])))
                assert not texts, f"{name} has outputs that no task sent: {texts}"


@pytest.mark.parametrize("seed", range(JOBS))
def test_a_random_job_does_what_its_model_does(tmp_path: Path, seed: int) -> None:
    Counts.seen = []
    job = RandomJob(tmp_path, seed)
    acts = (
        [job.send] * 3
        + [job.start] * 6
        + [job.rewind, job.grow, job.change_stores, job.change_stores, job.change_serde]
    )
    job.send()
    job.start()
    for _ in range(ACTS):
        job.chance.choice(acts)()
    job.send()
    job.start()
