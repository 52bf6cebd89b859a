"""The reporter that writes metrics to a stream, as Samza's MetricsSnapshotReporter does."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, ClassVar

import orjson

from streambench.errors import ConfigError
from streambench.metrics.registry import Reading, flat
from streambench.metrics.reporter import MetricsReport, MetricsReporter, ReporterContext
from streambench.model import SystemStream
from streambench.serde.plain import plain


class SnapshotReporter(MetricsReporter):
    """Sends a message per source (the container, each task) to ``metrics.reporter.<n>.stream``: a JSON object
    with a ``header`` and, by group and name, ``metrics``. All of a container go to one partition.

    They are no part of a commit, under whatever guarantee: they describe the process, which a commit that
    fails does not undo."""

    settings: ClassVar[frozenset[str] | None] = frozenset({"stream"})

    def __init__(self, context: ReporterContext) -> None:
        key = context.key("stream")
        name = context.config.required(key)
        try:
            stream = SystemStream.parse(name)
        except ConfigError as error:
            raise context.config.error(key, str(error)) from None
        self._write = context.open_stream(stream, key)

    def report(self, report: MetricsReport) -> None:
        self._write(
            [
                (report.container_name, _message(report, source))
                for source in report.sources
                if report.sources[source]
            ]
        )


def _message(report: MetricsReport, source: str) -> bytes:
    groups: dict[str, list[Reading]] = {}
    for each in report.sources[source]:
        groups.setdefault(each.group, []).append(each)
    header = {
        "job-name": report.job_name,
        "job-id": report.job_id,
        "container-name": report.container_name,
        "source": source,
        "host": report.host,
        "version": report.version,
        "time": report.time_ms,
        "reset-time": report.reset_time_ms,
    }
    metrics = {
        group: {name.removeprefix(f"{group}."): _plain(value) for name, value in flat(readings).items()}
        for group, readings in groups.items()
    }
    return orjson.dumps({"header": header, "metrics": metrics})


def _plain(value: Any) -> Any:
    """A user may have set a gauge to anything: numbers of other libraries become Python's, and JSON has no
    NaN."""
    if isinstance(value, Real) and not isinstance(value, int):
        value = float(value)
        return value if math.isfinite(value) else None
    return plain(value)
