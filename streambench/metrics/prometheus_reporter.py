"""The reporter that shows metrics to Prometheus, over HTTP."""

from __future__ import annotations

import logging
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric

from streambench.metrics import catalogue
from streambench.metrics.registry import Kind, Reading
from streambench.metrics.reporter import MetricsReport, MetricsReporter, ReporterContext

log = logging.getLogger("streambench.metrics")

_TYPES: Mapping[Kind, str] = {
    "counter": "counter",
    "gauge": "gauge",
    "timer": "summary",
    "histogram": "summary",
}


_SUMMARY = ("", "_count", "_sum", "_max")
_ENDINGS: Mapping[Kind, Sequence[str]] = {
    "counter": ("", "_total"),
    "gauge": ("",),
    "timer": _SUMMARY,
    "histogram": _SUMMARY,
}
"""The endings of the names of a metric's samples."""


class PrometheusReporter(MetricsReporter):
    """Serves the last report at ``http://<host>:<port>/metrics``, on a thread of its own that looks at
    nothing else.

    Container n listens on ``port`` + n; with port 0 (the default) on a free one, which is logged. ``host`` is
    127.0.0.1 unless the configuration says otherwise: any process that reaches the port can read them."""

    interval_s: ClassVar[float] = 5
    settings: ClassVar[frozenset[str] | None] = frozenset({"host", "port"})

    def __init__(self, context: ReporterContext) -> None:
        config, self._key = context.config, context.key("port")
        self._config = config
        self._host = config.required(context.key("host"))
        port = config.integer(self._key)
        self._port = port + context.container if port else 0
        if not 0 <= self._port <= 65535:
            raise config.error(self._key, f"{self._port} is no port (container n takes the port {port} + n)")
        self._name = f"container {context.container} of {context.job}"
        self._families = _Families()

    def start(self) -> None:
        registry = CollectorRegistry()
        registry.register(self._families)
        try:
            self._server, self._thread = start_http_server(self._port, self._host, registry)
        except OSError as error:
            raise self._config.error(
                self._key, f"cannot listen on {self._host}:{self._port}: {error.strerror or error}"
            ) from error
        log.info("metrics of %s: http://%s:%d/metrics", self._name, self._host, self._server.server_port)

    @property
    def port(self) -> int:
        """The port that it listens on, once it is started."""
        return self._server.server_port

    def report(self, report: MetricsReport) -> None:
        self._families.report = report

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Families:
    """The collector of a registry of prometheus_client: the last report, as families of samples."""

    report: MetricsReport | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before the first report."""
        return ()

    def collect(self) -> Iterable[Metric]:
        report = self.report
        return families(report) if report is not None else ()


def families(report: MetricsReport) -> Iterable[Metric]:
    """A report as families, each with the samples of all sources.

    ``container.process-envelopes`` becomes ``streambench_container_process_envelopes``, of which what a name
    is about is taken out and made a label. Names that Prometheus would take for one stay apart by a number
    behind the later one. Such names differ only in what it does not allow, or one is what a sample of the
    other is called."""
    found: dict[str, Metric] = {}
    meant: dict[str, tuple[str, str, Kind]] = {}
    for source, readings in report.sources.items():
        own = {"job_name": report.job_name, "job_id": report.job_id, "container": str(report.container)}
        if source != report.container_name:
            own["task"] = source.removeprefix("TaskName-")
        for each in readings:
            if not isinstance(each.value, Real):
                continue  # a user may have set a gauge to anything
            pattern, labels, unit, meaning = _known(each)
            what = (
                each.group if pattern is None else pattern[0],
                each.name if pattern is None else pattern[1],
                each.kind,
            )
            name = _name(f"streambench_{what[0]}_{what[1]}")
            if any(meant.get(f"{name}{ending}", what) != what for ending in _ENDINGS[each.kind]):
                name = f"{name}_{zlib.crc32('.'.join(what).encode())}"
            meant.update({f"{name}{ending}": what for ending in _ENDINGS[each.kind]})
            if name not in found:
                found[name] = Metric(
                    name, f"{unit}: {meaning}" if unit else f"{each.group}.{each.name}", _TYPES[each.kind]
                )
            _add(found, name, each, {**own, **labels})
    return found.values()


def _known(each: Reading) -> tuple[tuple[str, str] | None, Mapping[str, str], str, str]:
    """Group and name without what varies, what varies, unit and meaning."""
    entry = catalogue.find(each.group, each.name)
    if entry is None:
        return None, each.labels, "", ""
    metric, parsed = entry
    labels = each.labels or parsed
    return (
        (_without_labels(metric.group), _without_labels(metric.pattern)),
        labels,
        metric.unit,
        metric.meaning,
    )


def _add(found: dict[str, Metric], name: str, each: Reading, labels: dict[str, str]) -> None:
    family = found[name]
    if each.spread is None:
        family.add_sample(f"{name}_total" if each.kind == "counter" else name, labels, _double(each.value))
        return
    spread = each.spread
    for quantile, value in (("0.5", spread.p50), ("0.99", spread.p99)):
        family.add_sample(name, {**labels, "quantile": quantile}, value if spread.count else math.nan)
    family.add_sample(f"{name}_count", labels, spread.count)
    family.add_sample(f"{name}_sum", labels, spread.total)
    largest = found.setdefault(
        f"{name}_max",
        Metric(f"{name}_max", f"the largest of the last values: {family.documentation}", "gauge"),
    )
    largest.add_sample(f"{name}_max", labels, spread.max)


def _double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _without_labels(pattern: str) -> str:
    return re.sub(r"-?<\w+>-?", "-", pattern).strip("-")


def _name(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]+", "_", text)
