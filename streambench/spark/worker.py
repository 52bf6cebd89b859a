"""The code inside a Spark task: one container, from its last commit to the planned ends.

A task that Spark starts again, on any machine, claims the container again, which fences the attempt before,
and continues from the last commit. What the container raises is returned as a row and not raised, since it
would only fail again at the same message. What kills the process is left to Spark. Nothing here relies on
being allowed to finish: Spark kills Python workers by SIGKILL.
"""

from __future__ import annotations

import linecache
import logging
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

import streambench
from streambench import imports as load
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.observe.snapshot import ContainerSnapshot, left_until
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.container.timers import WindowsLeft
from streambench.errors import FencedError, StreambenchError, SupersededError, described
from streambench.job.failure import Failure
from streambench.job.runner import ContainerRunner
from streambench.job.running import container_holders, remaining
from streambench.metrics.log_reporter import show_on_stderr
from streambench.model import SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import JobModel, PlannedContainer
from streambench.redaction import redacted
from streambench.spark.loop_watch import LoopWatch
from streambench.spark.progress import Address, ProgressReporter
from streambench.spark.running import DriverWatch, LeaseWatch, LockWatch
from streambench.spark.sent_captures import SentCapture, capture_folder
from streambench.spark.shared import SharedDirectory, check_shared
from streambench.spark.task_output import kept_output
from streambench.system.log.arrays import binaries
from streambench.temporary import TemporaryDirectory

SCHEMA = "report binary"
"""The columns of what ``RunContainers`` returns: a Report per container, as bytes."""

OnProcessed = Callable[[int], object]

log = logging.getLogger(__name__)

_REPLACED_S = 120.0
_KILLED_WITHIN_S = 10.0
_MOST_WARNINGS = 100
_STORE_PLACES = ("job.logged.store.base.dir", "job.non-logged.store.base.dir")
_PROGRESS_S = 0.25


class Shipment(Struct):
    """All that a container needs in another process: its configuration, the task class itself, and what was
    planned.

    ``names``: what the configuration names in the driver's ``__main__``, such as a chooser that is written in
    the notebook. ``directories``: per configuration key a directory that the driver sees and every executor
    must see, too. ``sources``: the text of files that hold the task's code, so that a traceback shows it
    where the file is missing. Cells of a notebook are in no file. ``lock_path``: the file that the deploying
    process keeps locked as long as it lives. ``is_visible``: others see that, so that a free one means its
    death. ``leased_as``: the name of its lease in the system of the checkpoints. One of the two is
    empty, or both, where the containers die with it anyhow. ``output``: where files for what containers print
    are; empty where Spark keeps that."""

    config: Config
    task: Any
    names: Mapping[str, Any]
    model: JobModel
    ends: Mapping[SystemStreamPartition, str]
    directories: Mapping[str, SharedDirectory]
    sources: Mapping[str, str]
    progress: Address | None
    lock_path: str = ""
    output: str = ""
    leased_as: str = ""
    is_visible: bool = False


class Warned(Struct, frozen=True):
    """A warning of a container. ``kind`` is its text before its values were filled in."""

    kind: str
    text: str


class Report(Struct):
    """Outcome of a container. ``starts``: where this attempt began, empty where it never came to its inputs.
    ``offsets``: before and after, where it ended well.
    ``messages_by_partition``, ``seconds_by_partition``: also where it failed, unless it never came to its
    inputs. ``warnings``: what it logged. ``log``: the address or the path of the executor's own log.
    ``capture``: that of the failure, where it lies on the machine of the executor. ``is_shut_down``: its
    tasks have shut it down."""

    number: int
    attempt: int
    host: str
    process: int
    starts: Mapping[SystemStreamPartition, str] = {}
    messages: int = 0
    messages_by_partition: Mapping[SystemStreamPartition, int] = {}
    seconds: float = 0.0
    seconds_by_partition: Mapping[SystemStreamPartition, float] = {}
    offsets: Mapping[SystemStreamPartition, tuple[str, str]] = {}
    failure: Failure | None = None
    passed_over: ErrorCounts = ErrorCounts()
    warnings: tuple[Warned, ...] = ()
    windows_left: WindowsLeft = WindowsLeft()
    log: str = ""
    capture: SentCapture | None = None
    is_shut_down: bool = False

    def to_bytes(self) -> bytes:
        """The report on its way to the driver. It is no pickle: the server of Spark Connect that passes it on
        may be another's, and must not run code there."""
        try:
            return _readable(self)
        # The text of an error, a key or an offset of a plug-in may be anything.
        except Exception:
            pass
        try:
            return _readable(_encodable(self))
        except Exception as error:
            return _readable(_encodable(self._reduced(error)))

    def _reduced(self, error: Exception) -> Report:
        """The report without what could not be encoded, which must not hide how the container failed."""
        failure = self.failure
        if failure is None:
            text = f"it has ended, but its report cannot be sent to the driver: {described(error)}"
            kept = Failure(self.number, StreambenchError.__name__, text, "")
        else:
            kept = Failure(failure.container, failure.kind, failure.text, failure.frames, failure.task)
        return Report(self.number, self.attempt, self.host, self.process, failure=kept, log=self.log)

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report that these bytes are. Raises StreambenchError where they are none."""
        try:
            return _decoder().decode(data)
        except msgspec.MsgspecError as error:
            raise StreambenchError(
                f"what it returned is no report of a container: {error}; "
                "install the same version of streambench on driver and executors"
            ) from None


_encode = msgspec.msgpack.Encoder().encode


def _readable(report: Report) -> bytes:
    """A report as bytes of which the driver can make one again. Raises what msgspec does where it cannot."""
    data = _encode(report)
    _decoder().decode(data)
    return data


@cache
def _decoder() -> msgspec.msgpack.Decoder[Report]:
    return msgspec.msgpack.Decoder(Report)


def _encodable(value: Any) -> Any:
    """A value with other characters for those that UTF-8 does not have, and of plain types."""
    if isinstance(value, str):
        return str.encode(value, errors="backslashreplace").decode()
    if isinstance(value, Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, Struct):
        return type(value)(*(_encodable(getattr(value, name)) for name in value.__struct_fields__))
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return tuple(map(_encodable, value)) if isinstance(value, tuple) else value


class RunContainers:
    """The function for ``DataFrame.mapInArrow``: each row of its input is the number of a container to be
    run. ``run_row`` is the same for ``RDD.mapPartitionsWithIndex``.

    ``shipment``: a pickled Shipment; it stays packed until the executor is known to have the same version of
    streambench. ``generation`` is set once it is opened, which is after packing has proved possible.
    ``numbers``: the containers of the rows 0, 1, 2 and so on; empty: they are the rows."""

    __name__ = "run_containers"

    def __init__(self, shipment: bytes, version: str = streambench.__version__) -> None:
        self.shipment = shipment
        self.version = version
        self.generation = 0
        self.numbers: tuple[int, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                for report in self.run_row(row):
                    yield pa.RecordBatch.from_arrays([binaries([report])], names=["report"])

    def run_row(self, row: int, entries: Iterable[object] = ()) -> list[bytes]:
        """Run the container of a row; its report, as bytes. ``entries``: there are none, but Spark's Python
        process serves another task only after it has read to their end."""
        for _ in entries:
            pass
        return [self.run(self.number_of(row)).to_bytes()]

    def number_of(self, row: int) -> int:
        """The container of a row."""
        return self.numbers[row] if self.numbers else row

    def run(self, number: int, on_processed: OnProcessed | None = None) -> Report:
        """Run a container. Whatever it raises stands in the report. ``on_processed`` is called now and then,
        on any thread, with how many messages it has processed so far."""
        report = Report(number, _attempt(), socket.gethostname(), os.getpid(), log=executor_log())
        try:
            if self.version != streambench.__version__:
                raise StreambenchError(
                    f"the executor on {report.host} has streambench {streambench.__version__}, the driver "
                    f"{self.version}: install the same version on both"
                )
            shipment = self._unpacked()
            with kept_output(shipment.output, number):
                _run(shipment, self.generation, report, len(self.numbers), on_processed)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        # sys.exit() in a task included: the process itself must go on, Spark reuses it.
        except BaseException as error:
            if self._is_replaced(error) and not self._is_killed_late(number):
                raise  # Spark then starts this container again, if it has not ended well elsewhere
            report.failure = Failure.of(error, number)
        return report

    def _is_replaced(self, error: BaseException | None) -> bool:
        """True where another attempt at the same container has taken over, and not another start of the
        job."""
        while error is not None and not isinstance(error, FencedError):
            error = error.__cause__
        # A newer start closes the checkpoints of the older one before its own generation can be seen.
        if error is None or isinstance(error, SupersededError):
            return False
        shipment = self._unpacked()
        with closing(checkpoint_manager(shipment.config, shipment.model.name)) as manager:
            last = manager.last_generation()
        return last is not None and last.number == self.generation

    def _is_killed_late(self, number: int) -> bool:
        """Wait for the attempt that has taken over, and for Spark to kill this one.

        Returns True where that attempt continues for too long to be Spark's."""
        shipment = self._unpacked()
        log.info("container %d: another attempt has taken over; this one waits to be killed", number)

        def others() -> dict[int, str]:
            holders = container_holders(shipment.config, shipment.model.name)
            return {number: holders[number]} if number in holders else {}

        if remaining(others, _REPLACED_S):
            return True
        time.sleep(_KILLED_WITHIN_S)
        return False

    def _unpacked(self) -> Shipment:
        try:
            shipment: Shipment = pickle.loads(self.shipment)
        except ModuleNotFoundError as error:
            raise StreambenchError(
                f"the task needs the module {error.name}, which is not installed on the executor "
                f"{socket.gethostname()}; install it there"
            ) from error
        return shipment


def _run(
    shipment: Shipment,
    generation: int,
    report: Report,
    containers: int,
    on_processed: OnProcessed | None,
) -> None:
    check_shared(shipment.directories, report.host)
    for file, text in shipment.sources.items():
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    load.install_main_names(shipment.names)
    job = shipment.model.name
    with (
        local_files(shipment.config) as config,
        capture_folder(config, job, containers) as (config, captures),
    ):
        try:
            _drive(shipment, config, generation, report, on_processed)
        finally:
            report.capture = captures.taken()


@contextmanager
def local_files(config: Config) -> Iterator[Config]:
    """The configuration with a directory for the files of stores that is this attempt's own, on a disk of
    this machine.

    An attempt that Spark has given up may be alive for a while, and holds its own. The directory is removed
    afterwards; else by the next container here, or with Spark's other local files."""
    if not config.names_below("stores."):
        yield config
        return
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    places = {}
    with ExitStack() as stack:
        for key in _STORE_PLACES:
            base = str(config.path(key)) if config.text(key) is not None else local or None
            if base is not None:
                os.makedirs(base, exist_ok=True)
            places[key] = stack.enter_context(TemporaryDirectory("streambench-stores-", base))
        yield config.with_values(places)


def _drive(
    shipment: Shipment,
    config: Config,
    generation: int,
    report: Report,
    on_processed: OnProcessed | None,
) -> None:
    """Run the container to the planned ends; what came of it stands in the report, also where this raises."""
    planned = PlannedContainer(shipment.model, report.number, generation, is_leased=True)
    container = Container(config, shipment.task, planned=planned, ends=shipment.ends)
    reporter = ProgressReporter(shipment.progress, report.number, report.attempt)
    loop_watch = LoopWatch(container, _readers(shipment.model, report.number), reporter.report_busy)
    if shipment.config.names("metrics.reporters"):
        show_on_stderr()
    reporter.report("running")
    watch = _watch(shipment)
    is_orphan = False
    left, done = None, 0

    def observe(snapshot: ContainerSnapshot) -> None:
        nonlocal is_orphan, left, done
        left, done = left_until((each.position, shipment.ends.get(each.ssp)) for each in snapshot.partitions)
        reporter.report("running", snapshot.processed, left, done)
        if on_processed is not None:
            on_processed(snapshot.processed)
        if not is_orphan and watch.is_gone():
            is_orphan = True
            runner.stop_soon()

    try:
        runner = ContainerRunner(container, on_snapshot=observe, every_s=_PROGRESS_S)
        with _kept_warnings(report), loop_watch:
            ran = runner.run("caught-up")
        report.seconds, report.offsets, report.windows_left = ran.seconds, ran.offsets, ran.windows_left
        report.is_shut_down = ran.ended == "shutdown"
        if is_orphan and ran.ended == "signal":
            raise StreambenchError(
                f"{watch.reason(report.host)}; the container stopped with a commit, and the next start goes "
                "on from there"
            )
    finally:
        _note(report, container)
        report.seconds_by_partition = loop_watch.seconds_by_partition
        error = sys.exception()
        text = "" if error is None else redacted(described(error))
        reporter.report("failed" if error else "done", container.processed, left, done, text)
        reporter.close()
        watch.close()


def _note(report: Report, container: Container) -> None:
    """Note in a report how far a container has come, whether or not it has failed."""
    multiplexer = container.status.multiplexer
    partitions = {} if multiplexer is None else multiplexer.partitions
    report.starts = {ssp: partition.start for ssp, partition in partitions.items()}
    report.messages, report.passed_over = container.processed, container.error_counts
    report.messages_by_partition = {each.ssp: each.processed for each in container.last_partitions}


def _watch(shipment: Shipment) -> DriverWatch:
    if shipment.leased_as:
        return LeaseWatch(shipment.config, shipment.model.name, shipment.leased_as)
    if shipment.lock_path:
        return LockWatch(shipment.lock_path, is_visible=shipment.is_visible)
    return DriverWatch()


def _readers(model: JobModel, number: int) -> dict[SystemStreamPartition, str]:
    """Per input partition of a container, the tasks that read it."""
    readers: dict[SystemStreamPartition, list[str]] = {}
    for task in next(each.tasks for each in model.containers if each.number == number):
        for ssp in task.partitions:
            readers.setdefault(ssp, []).append(task.name)
    return {ssp: ", ".join(tasks) for ssp, tasks in readers.items()}


def executor_log() -> str:
    """The log of this executor, which has what its tasks print.

    It is an address that Spark names, else a file. It is empty where the executor has none of its own, as
    with a local master."""
    file = Path.cwd() / "stderr"
    return os.environ.get("SPARK_LOG_URL_STDERR") or (str(file) if file.is_file() else "")


def _attempt() -> int:
    try:
        from pyspark import TaskContext
    except ImportError:
        return 0
    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


@contextmanager
def _kept_warnings(report: Report) -> Iterator[None]:
    """Have the first warnings meanwhile in a report: the log of an executor is seldom read."""
    handler, logger = _Warnings(), logging.getLogger("streambench")
    logger.addHandler(handler)
    try:
        yield
    finally:
        report.warnings = tuple(handler.kept)
        logger.removeHandler(handler)


class _Warnings(logging.Handler):
    """Keeps the first warnings as text."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: list[Warned] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.kept) < _MOST_WARNINGS:
            self.kept.append(Warned(str(record.msg), redacted(record.getMessage())))
