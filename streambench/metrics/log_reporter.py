"""The reporter that logs metrics: for whoever reads a log, or a terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import ClassVar

from streambench.metrics.registry import flat
from streambench.metrics.reporter import MetricsReport, MetricsReporter, Surroundings

log = logging.getLogger("streambench.metrics")


class LogReporter(MetricsReporter):
    """Logs at INFO (logger ``streambench.metrics``) a line for the container, and one for each task that has metrics of its own. What every
    partition or task has is left out: a job may have a thousand."""

    settings: ClassVar[frozenset[str] | None] = frozenset()

    def __init__(self, surroundings: Surroundings) -> None:
        """Nothing of the configuration is its own."""

    def report(self, report: MetricsReport) -> None:
        for source, readings in report.sources.items():
            told = flat([each for each in readings if each.group != "task" and "partition" not in each.labels])
            if told:
                log.info("metrics of %s, %s: %s", report.job, source, " ".join(f"{name}={_figure(value)}" for name, value in told.items()))


class LinesOnStderr(logging.Handler):
    """Writes records as lines to whatever standard error is at the moment: a live display puts itself between."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the terminal has gone: no reason for a job to fail
            print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


def show_on_stderr() -> None:
    """Have what is reported, and where a Prometheus endpoint is, appear on standard error: for processes that own it."""
    log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(LinesOnStderr(logging.INFO))
    log.propagate = False


def _figure(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
