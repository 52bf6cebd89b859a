"""Counters, gauges, histograms and timers, by group and name, and the reporters that publish them."""

from streambench.metrics.registry import Counter, Gauge, Histogram, MetricsRegistry, Timer
from streambench.metrics.reporter import MetricsReport, MetricsReporter

__all__ = ["Counter", "Gauge", "Histogram", "MetricsRegistry", "MetricsReport", "MetricsReporter", "Timer"]
