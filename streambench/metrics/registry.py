"""Where numbers about a running job are kept until somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar


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
    """A number as it is now: set from time to time, or read from ``source``, where there is one, when somebody asks."""

    __slots__ = ("source", "value")

    def __init__(self) -> None:
        self.value: float = 0
        self.source: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self.value = value

    def read(self) -> float:
        return self.value if self.source is None else self.source()


class Timer:
    """How often something was timed, and how long it took in all, in nanoseconds."""

    __slots__ = ("count", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0

    def update(self, nanoseconds: int) -> None:
        self.count += 1
        self.total_ns += nanoseconds

    def read(self) -> float:
        """The mean, in nanoseconds; 0 where nothing was timed."""
        return self.total_ns / self.count if self.count else 0


_Metric = TypeVar("_Metric", Counter, Gauge, Timer)


class MetricsRegistry:
    """All metrics of one source (a container, a task), by group and name. Asking twice for a name gives the same object.

    Raises TypeError where a name is asked for as another kind than it is.
    """

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, str], Counter | Gauge | Timer] = {}

    def counter(self, name: str, group: str = "user") -> Counter:
        return self._get(group, name, Counter)

    def gauge(self, name: str, group: str = "user", source: Callable[[], float] | None = None) -> Gauge:
        gauge = self._get(group, name, Gauge)
        if source is not None:
            gauge.source = source
        return gauge

    def timer(self, name: str, group: str = "user") -> Timer:
        return self._get(group, name, Timer)

    def snapshot(self) -> dict[str, float]:
        """All values now, as ``group.name``."""
        return {f"{group}.{name}": metric.read() for (group, name), metric in self._metrics.items()}

    def _get(self, group: str, name: str, kind: type[_Metric]) -> _Metric:
        metric = self._metrics.get((group, name))
        if metric is None:
            metric = self._metrics[group, name] = kind()
        if not isinstance(metric, kind):
            raise TypeError(f"the metric {group}.{name} is a {type(metric).__name__}, not a {kind.__name__}")
        return metric
