"""Rewinds to commits: each task stands where it stood then, whatever was rewound before."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.job.rewind import planned_rewind
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.serde.streams import StreamSerdes
from streambench.system.systems import Systems
from tests.container.stateful import with_systems

JOB = "sums-1"
INPUT = sb.SystemStream("log", "numbers")


class Sum(sb.StreamTask):
    """Adds up its numbers; behind some of them it commits, alone or together with the others."""

    stored: Any = None

    def init(self, context: sb.TaskContext) -> None:
        if "sum" in context.config.names_below("stores."):
            self.stored = context.store("sum")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if self.stored is not None:
            self.stored.put("all", self.stored.get("all", 0) + envelope.message)
        if envelope.message % 3 == 0:
            coordinator.commit(sb.RequestScope.CURRENT_TASK)
        elif envelope.message % 7 == 0:
            coordinator.commit(sb.RequestScope.ALL_TASKS_IN_CONTAINER)


STORE = {
    "stores.sum.factory": "memory",
    "stores.sum.key.serde": "string",
    "stores.sum.msg.serde": "json",
    "stores.sum.changelog": "log.sums-changelog",
}


class Job:
    """A job of one task for each partition, in log files, and where it stood after each of its commits."""

    def __init__(self, directory: Path, numbers: list[list[int]], values: dict[str, str]) -> None:
        self.numbers = numbers
        self.config = sb.Config(
            {
                "job.name": "sums",
                "task.inputs": INPUT,
                "task.commit.ms": -1,
                "task.checkpoint.history": 1000,
                "systems.log.samza.factory": "log",
                "systems.log.path": directory,
                "systems.log.samza.msg.serde": "json",
                "systems.log.samza.offset.default": "oldest",
                **values,
            }
        )
        messages = [
            sb.OutgoingMessageEnvelope(INPUT, number, partition=partition)
            for partition, each in enumerate(numbers)
            for number in each
        ]

        def send(systems: Systems) -> None:
            systems.create(INPUT, len(numbers))
            serdes = StreamSerdes(self.config).for_stream(INPUT)
            with writing(systems, INPUT, len(numbers), "test", serdes) as writer:
                writer.send(messages)

        with_systems(self.config, send)
        self.stood: dict[str, list[int]] = {}
        """Per commit, the messages of each partition that were processed then."""

    def committed(self) -> list[int]:
        """The messages of each partition that are processed, by the last checkpoints."""
        with contextlib.closing(checkpoint_manager(self.config, JOB)) as manager:
            last = manager.read_last()
        found = [0] * len(self.numbers)
        for each in last.values():
            for ssp, offset in each.offsets.items():
                found[ssp.partition] = int(offset) + 1
        return found

    def run(self, steps: int, *, crash: bool) -> None:
        """Process so many messages in one start of the job."""
        here = self.committed()
        container = sb.Container(self.config, Sum)
        container.start()
        sums = [sum(each[:done]) for each, done in zip(self.numbers, here, strict=True)]
        for task, expected in zip(container.tasks, sums, strict=True):
            assert [store.get("all", 0) for store in task.stores.values()] in ([], [expected])
        for _ in range(steps):
            container.step()
            self.note()
        if crash:
            container.abandon()
        else:
            container.stop()
            self.note()

    def note(self) -> None:
        """Remember where the job stands after its newest commit."""
        with contextlib.closing(checkpoint_manager(self.config, JOB)) as manager:
            made = [(each.generation, each.sequence) for each in manager.read_last().values()]
        generation, sequence = max(made, default=(0, 0))
        if generation:
            self.stood.setdefault(f"{generation}.{sequence}", self.committed())

    def rewind(self, where: str) -> None:
        with planned_rewind(self.config, JOB, where) as rewind:
            rewind.apply()


def test_a_rewind_takes_a_task_that_has_not_committed_since_another_one(tmp_path: Path) -> None:
    job = Job(tmp_path, [[1, 7, 1, 1], [1, 1, 3, 1]], {})
    job.run(8, crash=False)
    job.rewind(next(commit for commit, at in job.stood.items() if at == [2, 1]))
    job.run(4, crash=True)
    assert job.committed() == [2, 3], "the second task alone has committed"
    commit = list(job.stood)[-1]
    job.run(4, crash=False)
    job.rewind(commit)
    assert job.committed() == [2, 3]


@pytest.mark.parametrize("seed", range(100 if os.environ.get("SOAK") else 4))
def test_a_rewind_leads_each_task_to_where_it_stood_at_the_commit(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    numbers = [[chance.randrange(1, 40) for _ in range(40)] for _ in range(chance.randint(2, 4))]
    job = Job(tmp_path, numbers, STORE if seed % 2 else {})
    for _ in range(10):
        job.run(chance.randrange(8), crash=chance.random() < 0.6)
        where = chance.choice(["oldest", *job.stood, *list(job.stood)[-3:]])
        if chance.random() < 0.7:
            job.rewind(where)
            assert job.committed() == job.stood.get(where, [0] * len(job.numbers)), where
