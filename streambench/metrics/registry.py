"""The numbers about a running job, kept until they are read."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from msgspec import Struct

WINDOW = 1024
"""Of how many of the last values a histogram (or timer) knows the distribution."""

Kind = Literal["counter", "gauge", "histogram", "timer"]


class Distribution(Struct, frozen=True):
    """The content of a histogram.

    ``count`` and ``total`` are of all values ever. Of the last ``WINDOW`` of them it has the median, the 99th
    percentile and the largest, 0 where there are none. Each is one of the values (nearest rank)."""

    count: int
    total: float
    p50: float
    p99: float
    max: float

    @property
    def mean(self) -> float:
        """The mean of all values; 0 without any."""
        return self.total / self.count if self.count else 0


class Reading(Struct, frozen=True):
    """A metric at one moment. ``labels``: what its name is about, where that is known apart from the name
    (system, stream, partition, ...). ``spread``: of histograms and timers; ``value`` is then the mean."""

    group: str
    name: str
    kind: Kind
    value: float
    labels: Mapping[str, str] = {}
    spread: Distribution | None = None


class Counter:
    """A number that only grows."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self, by: int = 1) -> None:
        self.count += by

    def read(self) -> int:
        return self.count


class Gauge:
    """A number as it is now: set from time to time, or read from ``source``, where there is one, when
    they are read."""

    __slots__ = ("source", "value")

    def __init__(self) -> None:
        self.value: float = 0
        self.source: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self.value = value

    def read(self) -> float:
        return self.value if self.source is None else self.source()


class Histogram:
    """The distribution of values: of the last ``WINDOW`` of them exactly, in a fixed amount of memory. An
    update stores one number."""

    __slots__ = ("_ring", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: float = 0
        self._ring = array("d", bytes(8 * WINDOW))

    def update(self, value: float) -> None:
        self._ring[self.count % WINDOW] = value
        self.count += 1
        self.total += value

    def read(self) -> float:
        """The mean; 0 where there was nothing."""
        return self.total / self.count if self.count else 0

    def spread(self) -> Distribution:
        """The distribution as it is now."""
        known = min(self.count, WINDOW)
        if not known:
            return Distribution(0, 0, 0, 0, 0)
        ordered = sorted(self._ring[:known])
        return Distribution(
            self.count, self.total, _ranked(ordered, 0.5), _ranked(ordered, 0.99), ordered[-1]
        )


class Timer(Histogram):
    """The count and duration, in nanoseconds, of something that was timed."""

    __slots__ = ()

    @contextmanager
    def time(self) -> Iterator[None]:
        """Time what happens inside, also if it raises."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self.update(time.perf_counter_ns() - began)


_Metric = TypeVar("_Metric", Counter, Gauge, Histogram, Timer)

_KINDS: dict[type, Kind] = {Counter: "counter", Gauge: "gauge", Histogram: "histogram", Timer: "timer"}


class MetricsRegistry:
    """All metrics of one source (a container, a task), by group and name. Asking twice for a name gives the
    same object.

    ``group``: that of metrics which name none. Metrics are updated and read on the thread of the event loop.
    Raises TypeError where a name is asked for as another kind than it is.
    """

    def __init__(self, group: str = "user") -> None:
        self._group = group
        self._metrics: dict[tuple[str, str], Counter | Gauge | Histogram | Timer] = {}

    def counter(self, name: str, group: str | None = None) -> Counter:
        return self._get(group, name, Counter)

    def gauge(self, name: str, group: str | None = None, source: Callable[[], float] | None = None) -> Gauge:
        gauge = self._get(group, name, Gauge)
        if source is not None:
            gauge.source = source
        return gauge

    def histogram(self, name: str, group: str | None = None) -> Histogram:
        return self._get(group, name, Histogram)

    def timer(self, name: str, group: str | None = None) -> Timer:
        return self._get(group, name, Timer)

    def readings(self, kind: type | None = None) -> list[Reading]:
        """All metrics (of one kind) as they are now, in the order in which they were made. What a gauge's
        source raises makes it NaN."""
        return [
            _read(group, name, metric)
            for (group, name), metric in self._metrics.items()
            if kind is None or isinstance(metric, kind)
        ]

    def all(self) -> Mapping[tuple[str, str], Counter | Gauge | Histogram | Timer]:
        """The metrics by group and name, in the order in which they were made."""
        return self._metrics

    def keep(self, places: Collection[tuple[str, str]]) -> None:
        """Drop all metrics but these, by group and name."""
        for place in [each for each in self._metrics if each not in places]:
            del self._metrics[place]

    def with_all(
        self, metrics: Mapping[tuple[str, str], Counter | Gauge | Histogram | Timer]
    ) -> MetricsRegistry:
        """A registry of the same default group with these metrics."""
        made = MetricsRegistry(self._group)
        made._metrics.update(metrics)
        return made

    def snapshot(self) -> dict[str, float]:
        """All values now, as ``flat`` names them."""
        return flat(self.readings())

    def _get(self, group: str | None, name: str, kind: type[_Metric]) -> _Metric:
        place = (self._group if group is None else group, name)
        metric = self._metrics.get(place)
        if metric is None:
            metric = self._metrics[place] = kind()
        if type(metric) is not kind:
            raise TypeError(
                f"the metric {'.'.join(place)} is a {type(metric).__name__}, not a {kind.__name__}"
            )
        return metric


def flat(readings: Sequence[Reading]) -> dict[str, float]:
    """Values by ``group.name``; of histograms and timers this is the mean, and there are ``.count``,
    ``.p50``, ``.p99`` and ``.max``."""
    values: dict[str, float] = {}
    for each in readings:
        name = f"{each.group}.{each.name}"
        values[name] = each.value
        if each.spread is not None:
            spread = each.spread
            values |= {
                f"{name}.count": spread.count,
                f"{name}.p50": spread.p50,
                f"{name}.p99": spread.p99,
                f"{name}.max": spread.max,
            }
    return values


def _read(group: str, name: str, metric: Counter | Gauge | Histogram | Timer) -> Reading:
    kind = _KINDS[type(metric)]
    if isinstance(metric, Histogram):
        spread = metric.spread()
        return Reading(group, name, kind, spread.mean, spread=spread)
    try:
        value: float = metric.read()
    except Exception:
        value = math.nan
    return Reading(group, name, kind, value)


def _ranked(ordered: list[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
