"""A store whose calls are timed: for jobs that ask for it, so that the others do not pay."""

from __future__ import annotations

import time
from typing import Any

from streambench.metrics.registry import MetricsRegistry
from streambench.store.task_store import TaskStore


class MeteredStore(TaskStore):
    """Times what the task gets and puts, serdes included. All tasks of a container share the timers of a
    store of one name."""

    __slots__ = ("_get_ns", "_put_ns")

    def meter(self, metrics: MetricsRegistry) -> None:
        """Time into ``metrics`` from now on. To be called before anything else."""
        self._get_ns = metrics.timer(f"{self.name}-get-ns", "stores")
        self._put_ns = metrics.timer(f"{self.name}-put-ns", "stores")

    def get(self, key: Any, default: Any = None) -> Any:
        began = time.perf_counter_ns()
        value = super().get(key, default)
        self._get_ns.update(time.perf_counter_ns() - began)
        return value

    def put(self, key: Any, value: Any) -> None:
        began = time.perf_counter_ns()
        super().put(key, value)
        self._put_ns.update(time.perf_counter_ns() - began)
