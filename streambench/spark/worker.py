"""What runs inside a Spark task: one container, from its last commit to the planned ends.

A task that Spark starts again, on whatever machine, is nothing special: it claims the container anew, which fences the one before, and goes
on from the last commit. What the container raises is returned as a row and not raised, since it would only fail again at the same message;
what kills the process is left to Spark. Nothing here relies on being allowed to finish: Spark kills Python workers without a word.
"""

from __future__ import annotations

import linecache
import logging
import os
import pickle
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct

import streambench
from streambench import load
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.rejects import PassedOver
from streambench.container.snapshot import ContainerSnapshot
from streambench.errors import StreambenchError
from streambench.job.drive import Driver
from streambench.job.failure import Failure
from streambench.metrics.log_reporter import show_on_stderr
from streambench.model import SystemStreamPartition
from streambench.planning.model import JobModel
from streambench.spark.progress import Address, Teller

SCHEMA = "report binary"
"""The columns of what ``RunContainers`` returns: a pickled Report per container."""

_MOST_WARNINGS = 100
_STORE_PLACES = ("job.logged.store.base.dir", "job.non-logged.store.base.dir")
_PROGRESS_S = 0.25


class Shipment(Struct):
    """What a container needs, in another process: its configuration, the task class itself, and what was planned.

    ``names``: what the configuration names in the driver's ``__main__``, such as a chooser that is written in the notebook.
    ``directories``: per configuration key a directory that the driver sees and every executor must see, too. ``sources``: the text of files
    that hold the task's code, so that a traceback shows it where the file is not (a notebook's cells are nowhere)."""

    config: Config
    task: Any
    names: Mapping[str, Any]
    model: JobModel
    ends: Mapping[SystemStreamPartition, str]
    directories: Mapping[str, str]
    sources: Mapping[str, str]
    progress: Address | None


class Report(Struct):
    """What became of a container. ``offsets``: before and after, where it ended well. ``messages_by_partition``: also where it failed,
    unless it never came to its inputs. ``warnings``: what it logged."""

    number: int
    attempt: int
    host: str
    process: int
    messages: int = 0
    messages_by_partition: Mapping[SystemStreamPartition, int] = {}
    seconds: float = 0.0
    offsets: Mapping[SystemStreamPartition, tuple[str, str]] = {}
    failure: Failure | None = None
    passed_over: PassedOver = PassedOver()
    warnings: tuple[str, ...] = ()


class RunContainers:
    """The function for ``DataFrame.mapInArrow``: each row of its input is the number of a container to be run.

    ``shipment``: a pickled Shipment; it stays packed until the executor is known to have the same version of streambench. ``generation`` is
    set once it is opened, which is after packing has proved possible."""

    __name__ = "run_containers"

    def __init__(self, shipment: bytes, version: str = streambench.__version__) -> None:
        self.shipment = shipment
        self.version = version
        self.generation = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = pickle.dumps(self.run(number))
                yield pa.RecordBatch.from_arrays([pa.array([report], pa.binary())], names=["report"])

    def run(self, number: int) -> Report:
        """Run a container. Whatever it raises stands in the report."""
        report = Report(number, _attempt(), socket.gethostname(), os.getpid())
        try:
            if self.version != streambench.__version__:
                raise StreambenchError(
                    f"the executor on {report.host} has streambench {streambench.__version__}, the driver {self.version}: "
                    "install the same version on both"
                )
            _run(self._unpacked(), self.generation, report)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # sys.exit() in a task included: the process itself must go on, Spark reuses it
            report.failure = Failure.of(error, number)
        return report

    def _unpacked(self) -> Shipment:
        try:
            shipment: Shipment = pickle.loads(self.shipment)
        except ModuleNotFoundError as error:
            raise StreambenchError(
                f"the task needs the module {error.name}, which is not installed on the executor {socket.gethostname()}; install it there"
            ) from error
        return shipment


def _run(shipment: Shipment, generation: int, report: Report) -> None:
    for key, directory in shipment.directories.items():
        if not Path(directory).is_dir():
            raise StreambenchError(
                f"{key}: the executor on {report.host} does not see {directory}; executors and driver must share that directory, "
                "on a network file system"
            )
    for file, text in shipment.sources.items():
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    load.bring(shipment.names)
    with local_files(shipment.config) as config:
        _drive(shipment, config, generation, report)


@contextmanager
def local_files(config: Config) -> Iterator[Config]:
    """The configuration with a directory for the files of stores that is this attempt's own, on a disk of this machine: an attempt that
    Spark has given up may be alive for a while, and holds its own. It goes afterwards; if it cannot, with Spark's other local files."""
    if not config.names_below("stores."):
        yield config
        return
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    places = {}
    for key in _STORE_PLACES:
        base = str(config.path(key)) if config.text(key) is not None else local or None
        if base is not None:
            os.makedirs(base, exist_ok=True)
        places[key] = tempfile.mkdtemp(prefix="streambench-stores-", dir=base)
    try:
        yield config.with_values(places)
    finally:
        for place in places.values():
            shutil.rmtree(place, ignore_errors=True)


def _drive(shipment: Shipment, config: Config, generation: int, report: Report) -> None:
    container = Container(
        config, shipment.task, model=shipment.model, number=report.number, generation=generation, ends=shipment.ends
    )
    teller = Teller(shipment.progress, report.number, report.attempt)
    warnings = _Warnings()
    logger = logging.getLogger("streambench")
    logger.addHandler(warnings)
    if shipment.config.names("metrics.reporters"):
        show_on_stderr()
    teller.tell("active", 0)
    try:
        ran = Driver(container, on_snapshot=lambda snapshot: _tell(teller, snapshot), every_s=_PROGRESS_S).run("caught-up")
        report.messages, report.seconds, report.offsets = ran.messages, ran.seconds, ran.offsets
    finally:
        report.messages, report.passed_over = container.processed, container.passed_over
        report.messages_by_partition = {each.ssp: each.processed for each in container.last_partitions}
        report.warnings = tuple(warnings.texts)
        logger.removeHandler(warnings)
        teller.tell("done", container.processed)
        teller.close()


def _tell(teller: Teller, snapshot: ContainerSnapshot) -> None:
    teller.tell("active", snapshot.processed)


def _attempt() -> int:
    try:
        from pyspark import TaskContext
    except ImportError:
        return 0
    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


class _Warnings(logging.Handler):
    """Keeps the first warnings as text: nobody reads the log of an executor."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MOST_WARNINGS:
            self.texts.append(record.getMessage())
