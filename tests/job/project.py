"""A job in a directory of its own, and the command line as a user would use it there."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

import streambench as sb
from streambench.cli.app import main
from streambench.container.outputs.stream_writers import stream_writer
from streambench.metrics.registry import MetricsRegistry
from streambench.serde.streams import StreamSerdes
from streambench.system.systems import Systems

CHECKOUT = Path(sb.__file__).resolve().parent.parent

TASK = """\
import ctypes
import multiprocessing
import os
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor

import streambench as sb

OUT = sb.SystemStream("log", "up")


class Up(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(OUT, {"n": envelope.message["n"] + 1}, key=envelope.key))


class Raises(Up):
    def process(self, envelope, collector, coordinator):
        super().process(envelope, collector, coordinator)
        if envelope.message["n"] == 7:
            self.halve(envelope.message)

    def halve(self, message):
        return message["n"] / 0


def tell():
    with open("reached", "w") as pipe:
        pipe.write(str(os.getpid()))


class Waits(Up):
    # At message 7 it writes its process id into the pipe "reached" (somebody waits there), then waits for
    # somebody at the pipe "gate".
    def process(self, envelope, collector, coordinator):
        super().process(envelope, collector, coordinator)
        if envelope.message["n"] == 7:
            tell()
            open("gate").close()


class Prepares(Up):
    # The init of Partition 1 writes its process id into the pipe "reached", then waits at the pipe "gate".
    def init(self, context):
        if context.task_name == "Partition 1":
            tell()
            open("gate").close()


class Forks(Waits):
    # The same with a pool of processes, from message 7 on.
    def process(self, envelope, collector, coordinator):
        if envelope.message["n"] == 7:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
            self.pool.submit(os.getpid).result()
        super().process(envelope, collector, coordinator)


class GivesAway(Waits):
    # The same with a program, from message 7 on, that has all files open that this process has.
    def process(self, envelope, collector, coordinator):
        if envelope.message["n"] == 7:
            for each in range(3, 1000):
                try:
                    os.set_inheritable(each, True)
                except OSError:
                    pass
            subprocess.Popen(["sleep", "600"], close_fds=False)
        super().process(envelope, collector, coordinator)


class Swallows(Up):
    # At message 7 it writes its process id into the pipe "reached", and then nothing that can be raised ends
    # it.
    def process(self, envelope, collector, coordinator):
        super().process(envelope, collector, coordinator)
        told = envelope.message["n"] != 7
        while envelope.message["n"] == 7:
            try:
                told = told or tell() or True
                time.sleep(1)
            except BaseException:
                pass


class Locks(Up):
    # The same in native code that no signal interrupts: a mutex is locked for the second time.
    def process(self, envelope, collector, coordinator):
        super().process(envelope, collector, coordinator)
        if envelope.message["n"] == 7:
            tell()
            mutex = ctypes.create_string_buffer(256)
            for _ in range(2):
                ctypes.CDLL(None).pthread_mutex_lock(mutex)


class Tells(Up):
    # It writes its process id into the pipe "reached" (somebody waits there) when it has processed message 7.
    def process(self, envelope, collector, coordinator):
        super().process(envelope, collector, coordinator)
        if envelope.message["n"] == 7:
            tell()


class Exits(Up):
    # The process is gone at message 9, without a word; the first time only when the other partition has come
    # to message 18.
    def process(self, envelope, collector, coordinator):
        if envelope.message["n"] == 7:
            coordinator.commit()
        if envelope.message["n"] == 18 and os.path.exists("gate"):
            open("gate", "w").close()
        if envelope.message["n"] == 9:
            if os.path.exists("gate") and not os.path.exists("again"):
                open("gate").close()
                open("again", "w").close()
            os._exit(3)
        super().process(envelope, collector, coordinator)


class Feeds(sb.StreamTask):
    # Counts down across partitions, and so from container to container.
    def process(self, envelope, collector, coordinator):
        n = envelope.message["n"]
        if n > 0:
            stream = envelope.ssp.system_stream
            collector.send(sb.OutgoingMessageEnvelope(stream, {"n": n - 1},
                                                      partition=1 - envelope.ssp.partition))


class FeedsAndDies(Feeds):
    # The process of one container is gone once, after it has sent what others read.
    def process(self, envelope, collector, coordinator):
        if envelope.ssp.partition == 1 and envelope.message["n"] == 5 and not os.path.exists("died"):
            open("died", "w").close()
            os._exit(3)
        super().process(envelope, collector, coordinator)
        coordinator.commit()
"""

PROPERTIES = {
    "job.name": "up",
    "task.class": "task.py:Up",
    "task.inputs": "log.numbers",
    "systems.log.samza.factory": "log",
    "systems.log.path": "streams",
    "systems.log.samza.msg.serde": "json",
    "systems.log.samza.key.serde": "string",
    "systems.log.samza.offset.default": "oldest",
}


class Project:
    """A directory with ``job.properties`` and ``task.py``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "task.py").write_text(TASK)
        self.configure()

    def configure(self, settings: Mapping[str, Any] | None = None, **more: Any) -> sb.Config:
        """Write the properties anew, with these settings (None removes one)."""
        values = {
            key: value
            for key, value in {**PROPERTIES, **(settings or {}), **more}.items()
            if value is not None
        }
        (self.directory / "job.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in values.items())
        )
        return self.config

    @property
    def config(self) -> sb.Config:
        return sb.Config.from_file(self.directory / "job.properties")

    def fill(self, count: int, *, partitions: int = 2, stream: str = "numbers") -> None:
        """Create a stream and send ``{"n": 0}``, ``{"n": 1}``... to its partitions in turn."""
        systems = Systems(self.config)
        systems.create(sb.SystemStream("log", stream), partitions)
        systems.close()
        self.fill_more(0, count, partitions=partitions, stream=stream)

    def fill_more(self, begin: int, end: int, *, partitions: int = 2, stream: str = "numbers") -> None:
        """Send ``{"n": begin}`` and so on up to ``end``, which is not sent any more."""
        named = sb.SystemStream("log", stream)
        producer = Systems(self.config).producer("log", MetricsRegistry())
        producer.register("test")
        producer.start()
        ways = producer.sender(named), producer.appends(named)
        put, _, apply_limits = stream_writer(
            named, *ways, partitions, *StreamSerdes(self.config).for_stream(named), _refuse
        )
        for n in range(begin, end):
            put("test", sb.OutgoingMessageEnvelope(named, {"n": n}, f"k{n}", None, n % partitions))
        apply_limits()
        producer.flush("test")
        producer.stop()

    def pipes(self) -> None:
        """Make the named pipes that Waits and Tells use."""
        for name in ("reached", "gate"):
            os.mkfifo(self.directory / name)

    def await_reached(self) -> int:
        """Wait until the task has come to message 7; the process it runs in."""
        return int((self.directory / "reached").read_text())

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "streambench", *arguments]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """The command line in the background."""
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(
            self.command(*arguments), cwd=self.directory, env=environment, text=True, **pipes
        )

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The command line in this process (a new one takes a second only to start), from its beginning to
        its end, whatever that is."""
        out, errors = _Text(), _Text()
        given = _Text(stdin)
        with (
            contextlib.chdir(self.directory),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
            _stdin(given),
            _logging_as_before(),
        ):
            try:
                main(list(arguments))
            except SystemExit as end:
                code = end.code
        return subprocess.CompletedProcess(arguments, int(code or 0), out.getvalue(), errors.getvalue())

    def completes(self, words: str) -> list[str]:
        """What the shell offers for the last of these words when the tab key is pressed."""
        environment = {
            **os.environ, "PYTHONPATH": str(CHECKOUT), "_STREAMBENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1),
        }  # fmt: skip
        done = subprocess.run(
            self.command(), cwd=self.directory, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout.split()

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """The command line, which must succeed; what it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """What a listing command prints as JSON."""
        return [
            json.loads(line) for line in self.ok(*arguments, "--json", "-c", "job.properties").splitlines()
        ]

    def fails(self, *arguments: str, stdin: str = "", code: int = 1) -> str:
        """The command line, which must fail with this code, in one line on standard error and without a
        traceback; that line."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert str(CHECKOUT / "streambench") not in done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, done.stderr
        return errors[0]

    def outputs(self) -> list[int]:
        """The numbers in the stream that the tasks write, sorted."""
        stream = sb.SystemStream("log", "up")
        systems = Systems(self.config)
        try:
            partitions = systems.metadata([stream])[stream]
            consumer = systems.consumer("log", MetricsRegistry())
            wanted = {sb.SystemStreamPartition("log", "up", number): 10_000 for number in partitions}
            for ssp in wanted:
                consumer.register(ssp, partitions[ssp.partition].oldest or "0")
            consumer.start()
            found = []
            while not all(map(consumer.at_head, wanted)):
                found += [json.loads(envelope.message)["n"] for envelope in consumer.poll(wanted, 0)]
            consumer.stop()
            return sorted(found)
        except sb.UnknownStreamError:
            return []
        finally:
            systems.close()


def await_ends(processes: list[psutil.Process]) -> None:
    """Wait until none of these, whoever started them, runs any more."""
    # A process that nobody has asked about since it ended (a zombie) has ended all the same.
    while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
        processes = psutil.wait_procs(processes, timeout=0.1)[1]


def _refuse(source: str, envelope: sb.OutgoingMessageEnvelope, error: Exception) -> None:
    raise error


class _Text(io.TextIOWrapper):
    """Text in memory, with the bytes beneath it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)

    def getvalue(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


@contextlib.contextmanager
def _logging_as_before() -> Iterator[None]:
    """The command line takes over the logging of its process, which is here that of other tests, too."""
    loggers = [logging.getLogger(name) for name in ("", "streambench", "streambench.metrics")]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        for logger, handlers, level, propagate in before:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


@contextlib.contextmanager
def _stdin(given: _Text) -> Iterator[None]:
    before, sys.stdin = sys.stdin, given
    try:
        yield
    finally:
        sys.stdin = before
