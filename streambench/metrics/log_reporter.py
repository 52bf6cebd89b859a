"""The reporter that logs metrics: for readers of a log or a terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import ClassVar

from streambench.errors import in_own_lines
from streambench.metrics.registry import flat
from streambench.metrics.reporter import MetricsReport, MetricsReporter, ReporterContext
from streambench.redaction import redacted

log = logging.getLogger("streambench.metrics")

LISTENING = "streambench.listening"
"""The logger, at INFO, of the addresses at which systems take messages: what a sender has to know."""


class LogReporter(MetricsReporter):
    """Logs at INFO (logger ``streambench.metrics``) a line for the container, and one for each task that has
    metrics of its own. What every partition or task has is left out: a job may have a thousand."""

    settings: ClassVar[frozenset[str] | None] = frozenset()

    def __init__(self, context: ReporterContext) -> None:
        """Nothing of the configuration is its own."""

    def report(self, report: MetricsReport) -> None:
        for source, readings in report.sources.items():
            shown = flat(
                [each for each in readings if each.group != "task" and "partition" not in each.labels]
            )
            if shown:
                log.info(
                    "metrics of %s, %s: %s",
                    report.job,
                    source,
                    " ".join(f"{name}={_figure(value)}" for name, value in shown.items()),
                )


class LinesOnStderr(logging.Handler):
    """Writes records as lines to whatever standard error is at the moment: a live display puts itself
    between."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the terminal has gone: no reason for a job to fail
            text = in_own_lines(redacted(record.getMessage()))
            print(f"{record.levelname.lower()}: {text}", file=sys.stderr)


def show_on_stderr() -> None:
    """Have what is reported, where a Prometheus endpoint is and where inputs are listened for appear on
    standard error: for processes that own it."""
    for each in (log, logging.getLogger(LISTENING)):
        each.setLevel(logging.INFO)
        if not each.handlers:
            each.addHandler(LinesOnStderr(logging.INFO))
        each.propagate = False


def _figure(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
