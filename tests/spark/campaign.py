"""A stateful job on a cluster whose executors and drivers are killed again and again, at moments that chance
chooses; and its outputs, state and checkpoints beside those of an undisturbed run on this machine."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, NoReturn

import psutil
import pytest

from streambench import Config, OutgoingMessageEnvelope, SystemStream
from streambench.errors import StreambenchError
from streambench.metrics.registry import MetricsRegistry
from streambench.spark.source.options import StreamOptions
from streambench.spark.source.ranges import OffsetRange, read_range
from streambench.spark.source.stores import StoreReader, store_schema
from streambench.system.systems import Systems
from tests.spark.conftest import committed, environment_of_programs

CONTAINERS = 4
PATIENCE_S = 180.0
# How often the output and the processes are looked at, which costs CPU while JVMs start for seconds.
LOOK_S = 0.25
# How often where nothing is to be killed.
_SELDOM_S = 2.0

_EXECUTOR = "CoarseGrainedExecutorBackend"

TASK = """\
import time

import streambench as sb


class Counts(sb.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.output = sb.SystemStream("s", context.config["test.output"])
        self.pace_s = float(context.config["test.pace.s"])

    def process(self, envelope, collector, coordinator):
        count = self.counts[envelope.key] = self.counts.get(envelope.key, 0) + 1
        collector.send(
            sb.OutgoingMessageEnvelope(
                self.output, [envelope.message, count], key=envelope.key, partition=envelope.ssp.partition
            )
        )
        if self.pace_s:
            time.sleep(self.pace_s)
"""

# A directory in memory that only this process and its children see, with copies of the files.
_HIDE = """
mkdir -p hidden && mount -t tmpfs tmpfs hidden && cp *.properties *.py hidden && cd hidden &&
TMPDIR=$PWD exec "$@"
"""
_IN_A_HIDDEN_DIRECTORY = ["unshare", "--mount", "sh", "-ec", _HIDE, "hide"]

PROPERTIES = """\
job.name={name}-{suffix}
job.container.count={containers}
job.default.system=s
task.class=task.py:Counts
task.inputs=s.in-{suffix}
task.commit.ms=500
task.processing.guarantee=exactly-once
test.output=out-{name}-{suffix}
test.pace.s={pace_s}
stores.counts.key.serde=string
stores.counts.msg.serde=json
systems.s.samza.key.serde=string
systems.s.samza.msg.serde=json
systems.s.samza.offset.default=oldest
systems.s.streams.out-{name}-{suffix}.partitions={partitions}
spark.task.maxFailures=50
"""


class Figures(NamedTuple):
    """``keys``: of each partition. ``moment_s``: something is killed at most so much later than planned; it
    may just have been started. ``pace_s``: how long the task sleeps behind each message, so that few of them
    take long enough."""

    messages: int
    partitions: int
    keys: int
    executor_kills: int
    driver_kills: int
    moment_s: float = 0.0
    pace_s: float = 0.0


SMALL = Figures(4_800, 4, 40, 1, 1, pace_s=0.008)


class Campaign:
    """``settings``: the store's engine, and the system ``s``, of which everything is. ``hidden``: the
    directory of the driver and its temporary files are hidden from all other processes. ``report`` gets a
    line now and then, ``progress`` is called whenever the job has got further."""

    def __init__(
        self,
        directory: Path,
        master: str,
        settings: str,
        figures: Figures,
        chance: random.Random,
        *,
        progress: Callable[[], None],
        report: Callable[[str], None],
        hidden: bool = False,
    ) -> None:
        self.kills: list[str] = []
        self.ended: list[str] = []
        """The last output of drivers that ended by themselves before all was done."""
        self.disturbances: dict[str, Callable[[], str]] = {
            "executor": self._kill_executor,
            "driver": self._kill_driver,
            "driver's JVM": self._kill_jvm,
        }
        self.last_words = ""
        """The output of the driver whose JVM was killed last."""
        self.chance = chance
        self._directory = directory
        self._master = master
        self._hidden = hidden
        self._figures = figures
        self._progress = progress
        self._report = report
        self._began = time.monotonic()
        self._driver: subprocess.Popen[bytes] | None = None
        self._written = 0
        self._suffix = uuid.uuid4().hex[:8]
        (directory / "task.py").write_text(TASK)
        self.alone = self._config("alone", settings, 1, 0.0)
        self.killed = self._config("killed", settings, CONTAINERS, figures.pace_s)
        self._systems = Systems(self.killed)
        self._send()

    def close(self) -> None:
        if self._driver is not None:
            self._kill(self._driver.pid)
        self._systems.close()

    def run_alone(self) -> None:
        """The undisturbed run, in one process."""
        self.report("running undisturbed")
        run = self._start("alone", "run", "alone.properties", "--until", "caught-up")
        end = time.monotonic() + PATIENCE_S
        while (code := self._ended_within(run, _SELDOM_S)) is None:
            if self._has_got_further("alone"):
                end = time.monotonic() + PATIENCE_S
            elif time.monotonic() > end:
                run.kill()
                pytest.fail(f"the undisturbed run wrote nothing for {PATIENCE_S:.0f} seconds")
        assert code == 0, self.said("alone")
        self._written = 0
        self.report(self.said("alone").strip())

    def go_on(self, messages: int) -> None:
        """Wait until so many more outputs are there, or all of them."""
        self._wait_until_written(min(self._written + messages, self._figures.messages))

    def run(self, *more: str) -> None:
        """Deploy, kill, and deploy again where a driver was killed. ``more``: further disturbances, of which
        each comes once."""
        drivers = ["driver's JVM" if number % 2 else "driver" for number in range(self._figures.driver_kills)]
        planned = [*["executor"] * self._figures.executor_kills, *drivers, *more]
        self.chance.shuffle(planned)
        goals = sorted(int(self.chance.random() * 0.7 * self._figures.messages) for _ in planned)
        for what, goal in zip(planned, goals, strict=True):
            self._wait_until_written(goal)
            self.kills.append(f"{what} {self.disturbances[what]()}")
            self.report(f"killed {self.kills[-1]}")
        driver = self._deployment()
        end = time.monotonic() + PATIENCE_S
        while (code := self._ended_within(driver, _SELDOM_S)) != 0:
            if code is not None or self._has_got_further("killed"):
                end = time.monotonic() + PATIENCE_S
            elif time.monotonic() > end:
                self._fail("wrote nothing")
            driver = self._deployment()
        self._driver = None
        self.report(f"done; ended by themselves: {len(self.ended)}")

    def check(self) -> None:
        """Outputs, state and checkpoints equal those of the undisturbed run."""
        count = 0
        for partition in range(self._figures.partitions):
            alone, killed = (self._output(config, partition) for config in (self.alone, self.killed))
            count += len(alone)
            self._progress()
            assert _first_difference(alone, killed) is None, f"partition {partition} after {self.kills}"
        assert count == self._figures.messages
        states = [_state(config) for config in (self.alone, self.killed)]
        assert len(states[0]) == self._figures.partitions * self._figures.keys
        assert _first_difference(*states) is None, f"state after {self.kills}"
        assert committed(self.killed) == committed(self.alone), f"checkpoints after {self.kills}"
        self.report(f"{count:,} outputs and {len(states[0]):,} entries of state equal")

    def said(self, name: str) -> str:
        return (self._directory / f"{name}.txt").read_text()

    def report(self, text: str) -> None:
        self._report(f"{time.monotonic() - self._began:6.0f} s  {self._written:10,} written  {text}")

    def _config(self, name: str, settings: str, containers: int, pace_s: float) -> Config:
        text = PROPERTIES.format(
            name=name, suffix=self._suffix, containers=containers, pace_s=pace_s,
            partitions=self._figures.partitions,
        )  # fmt: skip
        path = self._directory / f"{name}.properties"
        path.write_text(text + settings)
        return Config.from_file(path)

    def _send(self) -> None:
        """The input: in each partition all keys in turn."""
        stream = SystemStream("s", f"in-{self._suffix}")
        self._systems.create(stream, self._figures.partitions)
        producer = self._systems.producer("s", MetricsRegistry())
        producer.register("test")
        producer.start()
        for number in range(self._figures.messages):
            at, partition = divmod(number, self._figures.partitions)
            key = b"k%d" % (at % self._figures.keys)
            producer.send("test", OutgoingMessageEnvelope(stream, b"%d" % number, key, None, partition))
            if not number % 10_000:
                self._progress()
        producer.flush("test")
        producer.stop()
        self.report("the input is there")

    def _deployment(self) -> subprocess.Popen[bytes]:
        """The driver's process, a new one where there is none."""
        if self._driver is not None and self._driver.poll():
            self.ended.append(self.said("killed")[-2000:])
            self.report(f"a driver has ended by itself: {self.ended[-1]}")
            self._driver = None
        if self._driver is None:
            self._driver = self._start("killed", "deploy", "killed.properties", "--master", self._master)
        return self._driver

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "streambench", *arguments, "--quiet"]
        if self._hidden:
            command = [*_IN_A_HIDDEN_DIRECTORY, *command]
        with (self._directory / f"{name}.txt").open("wb") as said:
            return subprocess.Popen(
                command, cwd=self._directory, env=environment_of_programs(), stdout=said, stderr=said
            )

    def _wait_until_written(self, goal: int) -> None:
        """Until so many outputs are there, and every other time a moment longer."""
        end = time.monotonic() + PATIENCE_S
        while self._written < goal:
            if self._has_got_further("killed"):
                end = time.monotonic() + PATIENCE_S
            elif time.monotonic() > end:
                self._fail("wrote nothing")
            self._goes_on_for(LOOK_S)
        if self.chance.random() < 0.5:
            self._goes_on_for(self.chance.uniform(0, self._figures.moment_s))

    def _goes_on_for(self, seconds: float) -> None:
        """Let the job go on; where it comes to its end, what is left to be killed cannot be."""
        if self._ended_within(self._deployment(), seconds) == 0:
            pytest.fail(f"it came to its end after {self.kills} alone: {self.said('killed')}")

    def _ended_within(self, process: subprocess.Popen[bytes], seconds: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        return None

    def _has_got_further(self, name: str) -> bool:
        stream = SystemStream("s", f"out-{name}-{self._suffix}")
        with suppress(StreambenchError):  # it is not there yet, or a broker has just been killed
            held = self._systems.metadata([stream])[stream]
            written = sum(int(here.upcoming or 0) for here in held.values())
            if written > self._written:
                self._written = written
                self._progress()
                return True
        return False

    def _executors(self) -> list[psutil.Process]:
        """The executors, whichever process has started them."""
        found = []
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if any(_EXECUTOR in part for part in each.cmdline()) and each.name() == "java":
                    found.append(each)
        return found

    def _kill_executor(self) -> str:
        end = time.monotonic() + PATIENCE_S
        while True:
            # One that is found may end by itself before it is killed, as those of a killed driver do.
            with suppress(ProcessLookupError):
                if executors := self._executors():
                    return self._kill(self.chance.choice(executors).pid)
            if time.monotonic() > end:
                self._fail("got no executor")
            self._goes_on_for(LOOK_S)

    def _kill_driver(self) -> str:
        return self._kill(self._deployment().pid)

    def _kill_jvm(self) -> str:
        """Kill Spark's own driver; that of streambench then ends with an error."""
        end = time.monotonic() + PATIENCE_S
        while True:
            driver = self._deployment()
            children = psutil.Process(driver.pid).children(recursive=True)
            jvms = [each for each in children if each.name() == "java" and each not in self._executors()]
            if jvms:
                break
            if time.monotonic() > end:
                self._fail("started no JVM")
            self._ended_within(driver, LOOK_S)
        said = self._kill(jvms[0].pid)
        assert self._ended_within(driver, PATIENCE_S) == 1, self.said("killed")
        self._driver, self.last_words = None, self.said("killed")
        return said

    def _kill(self, pid: int) -> str:
        os.kill(pid, signal.SIGKILL)
        if self._driver is not None and self._driver.pid == pid:
            self._driver.wait()
            self._driver = None
        with suppress(psutil.NoSuchProcess):
            while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
        return str(pid)

    def _output(self, config: Config, partition: int) -> list[tuple[bytes, bytes]]:
        stream = SystemStream("s", config["test.output"])
        held = self._systems.metadata([stream])[stream][partition]
        part = OffsetRange(partition, held.oldest or "0", held.upcoming or "0")
        return [
            (each.key, each.message)
            for pieces in read_range(self._systems, stream, part)
            for piece in pieces
            for each in piece.envelopes()
        ]

    def _fail(self, what: str) -> NoReturn:
        pytest.fail(f"it {what} for {PATIENCE_S:.0f} seconds, after {self.kills}: {self.said('killed')}")


def _state(config: Config) -> list[tuple[str, str, str]]:
    """Task, key and value of all entries of the store, as of the last checkpoints."""
    options = StreamOptions(config, store="counts")
    reader = StoreReader(options, store_schema(options))
    rows = [
        (row["task"], row["key"], row["value"])
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    return sorted(rows)


def _first_difference(first: Iterable[object], second: Iterable[object]) -> object:
    """The first place where two rows of things differ; None where they are equal. A comparison by pytest
    would take hours over so many."""
    pairs = enumerate(zip_longest(first, second))
    return next(((at, one, other) for at, (one, other) in pairs if one != other), None)
