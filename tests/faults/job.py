"""A job that has everything which a crash could get wrong: two inputs, windows, a store with a changelog,
commits that tasks ask for.

Its outputs do not depend on the order in which inputs take turns, nor on when windows are: each user is
counted, from 1 on, and the numbers of each input partition are summed in threes. So whatever happened on the
way can be compared with an undisturbed run.

As a program, ``python -m tests.faults.job`` reads lines of JSON, ``[directory, guarantee, step]``. For each
of them it forks a process that runs the job and dies of a SIGKILL at that step, and prints its exit code:
what is killed is a process, but has not to import everything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import orjson

from streambench.config import Config
from streambench.container.container import Container
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.log import open_log
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import ManualClock
from streambench.testing.run import CallObserver
from tests.faults.steps import Steps, kill_9

COUNTS, SUMS = SystemStream("log", "counts"), SystemStream("log", "sums")
INPUTS = ("clicks", "views")
PARTITIONS = 2
_GROUP = 2
_WINDOW_MS = 30
LEASE_MS = 30_000


def task(clock: ManualClock) -> type[StreamTask]:
    """The task class; each message takes 10 ms of this clock."""

    class Sums(StreamTask):
        def init(self, context: TaskContext) -> None:
            self.state = context.store("state")
            self.name = context.task_name

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            user, number = envelope.message["user"], envelope.message["n"]
            count = 1 + (self.state.get(user) or 0)
            self.state.put(user, count)
            collector.send(OutgoingMessageEnvelope(COUNTS, count, key=user))
            numbers = self.state.get(f"group of {envelope.ssp}") or []
            self.state.put(f"group of {envelope.ssp}", [*numbers, number])
            if number % 3 == 2:
                coordinator.commit()
            clock.advance(10)

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            for key, numbers in list(self.state.range("group of ", "group of ~")):
                while len(numbers) >= _GROUP:
                    collector.send(OutgoingMessageEnvelope(SUMS, sum(numbers[:_GROUP]), key=key))
                    numbers = numbers[_GROUP:]
                if numbers:
                    self.state.put(key, numbers)
                else:
                    self.state.delete(key)

    return Sums


def config(directory: Path, guarantee: str) -> Config:
    return Config(
        {
            "job.name": "sums",
            "task.inputs": [f"log.{name}" for name in INPUTS],
            "task.processing.guarantee": guarantee,
            "task.window.ms": _WINDOW_MS,
            "task.commit.ms": 50,
            "task.checkpoint.history": 2,
            "stores.state.factory": "memory",
            "systems.log.samza.factory": "log",
            "systems.log.path": directory,
            "systems.log.samza.offset.default": "oldest",
            "systems.log.samza.msg.serde": "json",
            "systems.log.samza.key.serde": "string",
            "systems.log.streams.counts.partitions": 2,
            "systems.log.lock.lease.ms": LEASE_MS,
        }
    )


def prepare(directory: Path, messages: int) -> None:
    """Make the inputs, with so many messages in each partition."""
    with open_log(directory) as streams:
        for stream in INPUTS:
            streams.create(stream, PARTITIONS)
            for partition in range(PARTITIONS):
                rows = [{"user": f"{'ab'[n % 2]}{partition}", "n": n} for n in range(messages)]
                streams.partition(stream, partition).append(None, [orjson.dumps(row) for row in rows])


def run(directory: Path, guarantee: str, steps: Steps) -> None:
    """Run the job to the end of its inputs and of its windows."""
    clock = ManualClock()
    container = Container(
        config(directory, guarantee), task(clock), clock=clock, observer=CallObserver(steps.event)
    )
    try:
        with steps:
            container.start()
            container.run("caught-up")
            clock.advance(_WINDOW_MS)
            container.run("caught-up")
            container.stop()
    finally:
        container.abandon()


class Found(msgspec.Struct):
    """What a run left: per stream, partition and key the messages in order; the state and the offsets as of
    the last checkpoints."""

    outputs: dict[tuple[str, int, str], list[Any]]
    state: dict[str, Any]
    offsets: dict[str, str]


def found(directory: Path, guarantee: str) -> Found:
    outputs: dict[tuple[str, int, str], list[Any]] = {}
    with open_log(directory) as streams:
        for stream in (COUNTS, SUMS):
            for partition in range(
                streams.stream(stream.stream).partitions if stream.stream in streams.streams() else 0
            ):
                for key, message in _rows(streams.partition(stream.stream, partition)):
                    outputs.setdefault((stream.stream, partition, key), []).append(
                        orjson.loads(message or b"null")
                    )
        manager = checkpoint_manager(config(directory, guarantee), "sums-1")
        last = manager.read_last()
        state: dict[str, Any] = {}
        for number, name in enumerate(sorted(last)):
            end = int(last[name].changelogs.get("state", "0"))
            for key, value in _rows(streams.partition("sums-1-state-changelog", number), end):
                if value is None:
                    state.pop(f"{name} {key}", None)
                else:
                    state[f"{name} {key}"] = orjson.loads(value)
    return Found(
        outputs, state, {str(ssp): offset for each in last.values() for ssp, offset in each.offsets.items()}
    )


def _rows(partition: Any, end: int | None = None) -> list[tuple[str, bytes | None]]:
    rows = [row for batch in partition.read(0) for row in batch.to_pylist()]
    return [
        ((row["key"] or b"").decode(), row["value"]) for row in rows if end is None or row["offset"] < end
    ]


def missing(there: Mapping[Any, list[Any]], expected: Mapping[Any, list[Any]]) -> dict[Any, list[Any]]:
    """Per key, what should be there and is not."""
    lost = {
        key: [each for each in wanted if each not in there.get(key, [])] for key, wanted in expected.items()
    }
    return {key: each for key, each in lost.items() if each}


def fork_and_die() -> None:
    for line in sys.stdin:
        directory, guarantee, step = orjson.loads(line)
        child = os.fork()
        if child == 0:
            run(Path(directory), guarantee, Steps(step, die=kill_9))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    fork_and_die()
