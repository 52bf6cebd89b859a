"""The messages of containers as metrics of Spark: an accumulator, and the input records of their tasks.

Spark gives Python tasks neither. Therefore containers return rows with counts beside their reports, and a
function in the JVM adds these up. It is CountMessages.java, as count_messages.jar has it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace

from streambench.spark.session_handle import is_connect
from streambench.spark.worker import Report, RunContainers
from streambench.system.log.arrays import binaries, int64s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

JAR = Path(__file__).with_name("count_messages.jar")
"""The archive of the function that counts."""

SCHEMA = "messages bigint, report binary, padding binary"
"""The columns of what ``CountedContainers`` returns: how many messages are new; at the end the report."""

LIVE_COUNTS = "job.container.live.counts"
"""The key that has containers counted while they run."""

_NEEDS_MAIN = "only works in main thread"
_CLASS = "streambench.CountMessages"
# Executors send metrics of running tasks every ten seconds by default.
_EVERY_S = 1.0
# The Python processes of Spark send what they return once they have so many bytes.
_PADDING = bytes(1 << 16)


class CountedContainers:
    """The function for ``DataFrame.mapInArrow``, as ``RunContainers``, with counts. ``is_live``: also while a
    container runs, which then has a thread of its own."""

    __name__ = "run_containers"

    def __init__(self, run: RunContainers, *, is_live: bool) -> None:
        self._run = run
        self._is_live = is_live

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                number = self._run.number_of(row)
                if self._is_live:
                    yield from self._live_rows(number)
                else:
                    report = self._run.run(number)
                    yield _row(report.messages, report.to_bytes())

    def _live_rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Run a container, while Spark takes rows on this thread and on no other."""
        seen: SimpleQueue[int | Report | BaseException] = SimpleQueue()

        def run() -> None:
            try:
                seen.put(_with_remedy(self._run.run(number, seen.put)))
            except BaseException as error:
                seen.put(error)

        thread = threading.Thread(target=run, name=f"container {number}", daemon=True)
        thread.start()
        counted, counted_at = 0, time.monotonic()
        while isinstance(now := seen.get(), int):
            if now > counted and time.monotonic() - counted_at >= _EVERY_S:
                yield _row(now - counted, None)
                counted, counted_at = now, time.monotonic()
        thread.join()
        if isinstance(now, BaseException):
            raise now
        yield _row(now.messages - counted, now.to_bytes())


def _with_remedy(report: Report) -> Report:
    """A report whose failure names the key that leaves a container the main thread, where it needs that."""
    failure = report.failure
    if failure is None or _NEEDS_MAIN not in failure.text:
        return report
    remedy = f"set {LIVE_COUNTS}=false: then the container has the main thread, and is counted at its end"
    return replace(report, failure=replace(failure, text=f"{failure.text}; {remedy}"))


def _row(messages: int, report: bytes | None) -> pa.RecordBatch:
    columns = [int64s([messages]), binaries([report]), binaries([_PADDING])]
    return pa.RecordBatch.from_arrays(columns, names=["messages", "report", "padding"])


@contextmanager
def counted_reports(spark: SparkSession, run: RunContainers, *, is_live: bool) -> Iterator[DataFrame | None]:
    """The reports of containers, one row each, as a DataFrame that runs them and counts their messages.

    None where the session does not take the function that counts. ``is_live``: Spark shows metrics of a task
    before its end."""
    # A function of its own for each round: its accumulator begins at 0.
    name = f"streambench_count_{uuid.uuid4().hex}"
    if not _is_registered(spark, name):
        yield None
        return
    count = len(run.numbers)
    frame = spark.range(0, count, 1, count).mapInArrow(CountedContainers(run, is_live=is_live), SCHEMA)
    try:
        yield frame.where(f"{name}(messages, report is not null)").select("report")
    finally:
        with suppress(Exception):  # the session may have ended
            _drop(spark, name)


def _is_registered(spark: SparkSession, name: str) -> bool:
    """Register the function under a name; True where the session has it then."""

    def register() -> None:
        spark.udf.registerJavaFunction(name, _CLASS, "boolean")

    try:
        try:
            register()
        except Exception:
            _add_jar(spark)
            register()
    except Exception as error:
        log.debug("Spark does not count messages: %s", error)
        return False
    return True


def _drop(spark: Any, name: str) -> None:
    if is_connect(spark):
        spark.sql(f"drop temporary function if exists {name}")
    else:
        # A statement would be one more query in the SQL tab.
        spark._jsparkSession.sessionState().catalog().dropTempFunction(name, True)


def _add_jar(spark: Any) -> None:
    if is_connect(spark):
        spark.addArtifacts(str(JAR))
    else:
        path = str(JAR).replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(f"add jar '{path}'")
