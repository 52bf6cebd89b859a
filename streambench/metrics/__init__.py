"""Counters, gauges and timers, by group and name."""

from streambench.metrics.registry import Counter, Gauge, MetricsRegistry, Timer

__all__ = ["Counter", "Gauge", "MetricsRegistry", "Timer"]
