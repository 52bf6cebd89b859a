"""One Spark job that runs containers, on a thread of its own, so that it can be watched and interrupted."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from streambench.counts import first_named
from streambench.spark.counted import counted_reports
from streambench.spark.master import is_one_process
from streambench.spark.worker import SCHEMA, Report, RunContainers

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from streambench.spark.session_handle import SessionHandle

log = logging.getLogger(__name__)

_AGAIN_S = 0.2
_MOST_TEXT = 500
_SHOWN = 8
_SHOWN_WITHIN_S = 5.0
_SHOWN_EVERY_S = 5.0
# Of the time that a job has run so far. A day makes 160 entries.
_SHOWN_SHARE = 0.05


class SparkJob:
    """One job of Spark's, on a session. ``title``: its name in Spark's own tools, as job group and
    description. ``work``: what it is to do, which the description says, too. ``counts_live``: messages also
    count while a container runs, where Spark shows that.

    ``start``, then ``wait`` until it returns False; then either ``reports`` holds a Report of each
    container, or ``reason`` says why not.

    What tasks return is collected exactly once: Spark would run the containers again with every action."""

    def __init__(
        self,
        session: SessionHandle,
        run: RunContainers,
        title: str,
        work: str = "",
        *,
        counts_live: bool = True,
    ) -> None:
        self.reports: list[Report] = []
        self.reason = ""
        self._run = run
        self._counts_live = counts_live
        self._title = title
        self._work = f"; {work}" if work else ""
        # Spark Connect shows the tag, and nothing else of the owner of a job.
        self._tag = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', title)}-{uuid.uuid4().hex}"
        # A classic session's own tags are known only to the thread that added them; those of its context are
        # known to all.
        self._session = session
        self._context = context = session.context
        self._add_tag = partial(context.addJobTag if context else session.spark.addTag, self._tag)
        self._cancel = partial(
            context.cancelJobsWithTag if context else session.spark.interruptTag, self._tag
        )
        self._thread = _thread(None if context else session.spark, self._collect)
        # Waited for instead of the thread: up to Python 3.12, a ``join`` that KeyboardInterrupt ends takes
        # the thread for dead.
        self._ended = threading.Event()
        self._is_cancelled = False
        self._began = self._shown_next = 0.0
        self._showing: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """True from its begin to its end."""
        return self._thread.ident is not None and not self._ended.is_set()

    def start(self) -> None:
        """Hand the job to Spark."""
        self._began = time.monotonic()
        self._shown_next = self._began + _SHOWN_EVERY_S
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; whether it is still alive then."""
        self._ended.wait(seconds)
        return self.alive

    def interrupt(self, seconds: float) -> None:
        """Have Spark cancel the job and wait for that, at most so long. Spark kills the Python processes of
        its tasks a moment later."""
        until = time.monotonic() + seconds
        # Again and again: a job that Spark has not registered yet would miss a single request.
        while self.alive and time.monotonic() < until:
            self.cancel()
            self._ended.wait(_AGAIN_S)

    def cancel(self) -> None:
        """Have Spark cancel the job, and do not wait for that. One that Spark does not have yet is not handed
        to it any more."""
        self._is_cancelled = True
        try:
            self._cancel()
        except Exception as error:
            log.debug("while interrupting the Spark job: %s", error)

    def show_progress(self, text: Callable[[], str]) -> None:
        """Show in Spark's own tools how far the job is, some seconds after its begin, and then less and less
        often. Each time adds a job to the lists of the tools, which are of a limited length. Never waits for
        Spark."""
        now = time.monotonic()
        if self._context is None or now < self._shown_next:
            return
        self._shown_next = now + max(_SHOWN_EVERY_S, _SHOWN_SHARE * (now - self._began))
        if self._showing is None or not self._showing.is_alive():
            self._show(self._context, text())

    def show_end(self, outcome: str) -> None:
        """Say in Spark's own tools what came of the job, where they show descriptions."""
        if self._context is None:
            return
        if self._showing is not None:
            self._showing.join(_SHOWN_WITHIN_S)
        self._show(self._context, outcome).join(_SHOWN_WITHIN_S)

    def _show(self, context: SparkContext, said: str) -> threading.Thread:
        """A description stays as it was when its job began. So another job shows what is new, which has no
        tasks and needs no executor."""

        def show() -> None:
            try:
                context.setJobGroup(self._tag, f"{self._title}: {said}")
                context._jsc.emptyRDD().collect()
            except Exception as error:
                log.debug("Spark's tools do not say how far the job is: %s", error)

        # The group is the thread's: the caller's own jobs keep theirs.
        self._showing = threading.Thread(target=show, daemon=True)
        self._showing.start()
        return self._showing

    def _collect(self) -> None:
        numbers = self._run.numbers
        try:
            # Before the description is set: what it takes to count is not what is described.
            with self._counted() as frame:
                self._add_tag()
                if self._context is not None:
                    # Of this thread alone, and of the jobs that it starts.
                    self._context.setJobGroup(self._tag, f"{self._title}: {_containers(numbers)}{self._work}")
                # What comes before can take seconds, in which Spark knows of no job that it could cancel.
                if self._is_cancelled:
                    self.reason = "cancelled"
                    return
                self.reports = [Report.from_bytes(each) for each in self._collected(frame)]
        except BaseException as error:
            self.reason = reason_of(error)
            log.debug("the Spark job failed", exc_info=error)
        finally:
            self._ended.set()

    def _counted(self) -> AbstractContextManager[DataFrame | None]:
        if not self._session.shows_metrics:
            return nullcontext()
        is_live = self._counts_live and not is_one_process(self._session.master)
        return counted_reports(self._session.spark, self._run, is_live=is_live)

    def _collected(self, counted: DataFrame | None) -> list[bytes]:
        """The reports of the containers, each of which is a task of Spark's. ``counted``: the query that
        counts messages as well, if there is one."""
        count = len(self._run.numbers)
        if counted is not None:
            return [row[0] for row in counted.collect()]
        if self._context is not None:
            # Planning, compiling and starting a query takes the JVM seconds where it is the first one.
            rows: RDD[object] = self._context.parallelize([], count)
            return rows.mapPartitionsWithIndex(self._run.run_row).collect()
        frame = self._session.spark.range(0, count, 1, count).mapInArrow(self._run, SCHEMA)
        return [row[0] for row in frame.collect()]


def _thread(spark: SparkSession | None, target: Callable[[], object]) -> threading.Thread:
    """A thread with the properties that Spark keeps of the one that starts it. ``spark``: a Spark Connect
    client."""
    from pyspark import InheritableThread

    class Inheriting(InheritableThread):
        def run(self) -> None:
            super().run()
            # Called here, Spark names its job after it, and not after the code that took over the properties.
            target()

    return Inheriting(target=lambda: None, session=spark, daemon=True)


def _containers(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"container {numbers[0]}"
    if len(numbers) == numbers[-1] - numbers[0] + 1:
        return f"containers {numbers[0]} to {numbers[-1]}, a task each"
    return f"containers {first_named(list(map(str, numbers)), _SHOWN)}, a task each"


def reason_of(error: BaseException) -> str:
    """The useful part of an error of Spark, whose texts run to pages."""
    text = str(error)
    absent = re.search(r"No module named '([^']+)'", text)
    if absent:
        return (
            f"the Python of the executors has no module {absent[1]}: install streambench there, in the same "
            "version; if it is installed, Spark starts another Python: set PYSPARK_PYTHON (to "
            f"{sys.executable}, on this machine) before the session starts"
        )
    for pattern in (
        r"most recent failure: (.*)",
        r"(.*Python worker exited unexpectedly.*)",
        r"^\s*details = \"(.*)\"$",  # of a Spark Connect server that is out of reach, or refuses
        r"^(\w+(?:Error|Exception): .*)",
        r"(\S.*)",
    ):
        found = re.search(pattern, text, re.MULTILINE)
        if found:
            return f"Spark gave up: {found[1].strip()[:_MOST_TEXT]}"
    return f"Spark gave up: {type(error).__name__}"
