"""Reports to the metrics reporters, on the thread of the event loop, when they are due."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from streambench.clock import Clock
from streambench.config import Config
from streambench.container.observe.metrics import take_report
from streambench.container.outputs.direct_writer import Writer, writing
from streambench.errors import described, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.metrics.reporter import Reporter, Write, reporters
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.planning.reserved_streams import reserved_streams
from streambench.system.systems import Systems

if TYPE_CHECKING:
    from streambench.container.observe.status import ContainerStatus

log = logging.getLogger(__name__)

NEVER = sys.maxsize

# The loop stands still while metrics are read and reported: that gets at most this part of the time, whatever
# the interval.
_SHARE = 0.05


class Reporting:
    """The reporters of one container. A reporter that raises harms nothing else: that is counted, and logged
    the first time."""

    def __init__(
        self,
        config: Config,
        job: str,
        container: int,
        systems: Systems,
        clock: Clock,
        metrics: MetricsRegistry,
    ) -> None:
        """Raises ConfigError."""
        self._streams = _Streams(config, job, systems)
        self._clock = clock
        self._reporters = reporters(config, job, container, self._streams.open)
        self._failures = metrics.counter("report-exceptions", "container")
        self._started: list[Reporter] = []

    def start(self, container: ContainerStatus) -> None:
        """Start the reporters. Raises what they raise."""
        self._container = container
        for each in self._reporters:
            each.made.start()
            self._started.append(each)

    def begin(self) -> None:
        """Let the intervals run from now on."""
        now = self._clock.monotonic_ns()
        for each in self._started:
            each.due_ns = now + each.every_ns

    def at(self, now: int) -> int:
        """Report to those that are due at ``now``, between two messages; when to ask again."""
        if any(now >= each.due_ns for each in self._started):
            self._container.consumers.post(self._report_due)
        return min(
            (each.due_ns if now < each.due_ns else now + each.every_ns for each in self._started),
            default=NEVER,
        )

    def report_final(self) -> None:
        """Report the end to all of them."""
        self._report(self._started, self._clock.monotonic_ns())

    def stop(self) -> None:
        """Stop the reporters, every one of them; the first failure is raised at the end."""
        started, self._started = self._started, []
        do_all([*(each.made.stop for each in started), self._streams.close])

    def _report_due(self) -> None:
        now = self._clock.monotonic_ns()
        self._report([each for each in self._started if now >= each.due_ns], now)

    def _report(self, whom: Sequence[Reporter], now: int) -> None:
        if not whom:
            return
        try:
            report = take_report(self._container)
        except Exception as error:
            for each in whom:
                self._failed(each, error)
        else:
            for each in whom:
                try:
                    each.report(report)
                except Exception as error:
                    self._failed(each, error)
        took = self._clock.monotonic_ns() - now
        for each in whom:
            each.due_ns = now + max(each.every_ns, int(took / _SHARE))

    def _failed(self, reporter: Reporter, error: Exception) -> None:
        self._failures.inc()
        if not reporter.has_failed:
            reporter.has_failed = True
            log.warning(
                "the metrics reporter %s failed (the job continues; later failures are only counted): %s",
                reporter.name,
                described(error),
            )


class _Streams:
    """The streams that reporters write to, each through a producer of its own: metrics are no part of a
    commit."""

    def __init__(self, config: Config, job: str, systems: Systems) -> None:
        self._config = config
        self._job = job
        self._systems = systems
        self._open: dict[SystemStream, tuple[Writer, ExitStack]] = {}

    def open(self, stream: SystemStream, key: str) -> Write:
        self._systems.factory(stream.system, key=key)
        other = reserved_streams(self._config, self._job, self._systems).get(stream)
        if other is not None:
            raise self._config.error(key, f"{stream} is {other}: metrics go to another stream")

        def write(messages: Sequence[tuple[str, bytes]]) -> None:
            try:
                self._writer(stream).send(
                    OutgoingMessageEnvelope(stream, message, name.encode()) for name, message in messages
                )
            except Exception:
                # A producer that has failed may never write again: the next report makes another one.
                _, stack = self._open.pop(stream, (None, ExitStack()))
                stack.close()
                raise

        return write

    def close(self) -> None:
        opened, self._open = self._open, {}
        do_all([stack.close for _, stack in opened.values()])

    def _writer(self, stream: SystemStream) -> Writer:
        if stream not in self._open:
            partitions = self._systems.created(stream)
            stack = ExitStack()
            self._open[stream] = (
                stack.enter_context(writing(self._systems, stream, partitions, "metrics")),
                stack,
            )
        return self._open[stream][0]
