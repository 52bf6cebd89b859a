"""Every metric that streambench itself keeps: its kind, its unit and its meaning, once.

``streambench metrics`` prints this table, and what a Prometheus endpoint says of a metric comes from here.
Names are Samza's where Samza has the metric, ``<system>-<stream>-<partition>-...`` for an input partition
included. ``<...>`` stands for a name, and becomes a label where labels are known. What a task or a plug-in
adds (``context.metrics``) needs no entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

from streambench.metrics.registry import Kind


class Metric(NamedTuple):
    """A known metric. ``source``: whether each container has it, or each task. ``pattern``: its name, with
    ``<...>`` for what varies."""

    source: Literal["container", "task"]
    group: str
    pattern: str
    kind: Kind
    unit: str
    meaning: str


_SSP = "<system>-<stream>-<partition>"

METRICS = (
    Metric(
        "container",
        "container",
        "process-envelopes",
        "counter",
        "messages",
        "chosen and given to tasks; a broadcast message once",
    ),
    Metric(
        "container",
        "container",
        "process-calls",
        "counter",
        "calls",
        "of process(); a broadcast message counts once per task",
    ),
    Metric(
        "container",
        "container",
        "process-null-envelopes",
        "counter",
        "iterations",
        "of the event loop that found no message",
    ),
    Metric(
        "container",
        "container",
        "skipped-envelopes",
        "counter",
        "messages",
        "not given to a task that begins further on than another",
    ),
    Metric("container", "container", "window-calls", "counter", "times", "that the tasks' window() was due"),
    Metric("container", "container", "commit-calls", "counter", "commits", "made by the event loop"),
    Metric(
        "container",
        "container",
        "process-ns",
        "timer",
        "nanoseconds",
        "per process() or process_batch(), listeners included",
    ),
    Metric(
        "container",
        "container",
        "choose-ns",
        "timer",
        "nanoseconds",
        "to choose a message (with metrics.timer.enabled=true)",
    ),
    Metric("container", "container", "window-ns", "timer", "nanoseconds", "in the window() of all tasks"),
    Metric(
        "container",
        "container",
        "commit-ns",
        "timer",
        "nanoseconds",
        "per commit: flush, changelogs and checkpoint",
    ),
    Metric(
        "container", "container", "block-ns", "timer", "nanoseconds", "slept because there was nothing to do"
    ),
    Metric(
        "container",
        "container",
        "event-loop-utilization",
        "gauge",
        "0 to 1",
        "share of about the last minute that it did not sleep",
    ),
    Metric("container", "container", "container-running", "gauge", "0 or 1", "whether the container runs"),
    Metric("container", "container", "container-startup-time", "gauge", "milliseconds", "that start() took"),
    Metric(
        "container",
        "container",
        "restore-time",
        "gauge",
        "milliseconds",
        "that the restore of all stores took",
    ),
    Metric(
        "container", "container", "physical-memory-mb", "gauge", "MiB", "of memory that the process holds"
    ),
    Metric(
        "container",
        "container",
        "exception-ignored-<exception>",
        "counter",
        "exceptions",
        "of tasks, passed over as configured",
    ),
    Metric(
        "container", "container", "dead-letters", "counter", "messages", "written to the dead-letter stream"
    ),
    Metric(
        "container",
        "container",
        "report-exceptions",
        "counter",
        "reports",
        "that a metrics reporter failed to make",
    ),
    Metric("container", "consumers", "chose-object", "counter", "messages", "that the chooser gave"),
    Metric("container", "consumers", "chose-null", "counter", "times", "that the chooser had none"),
    Metric("container", "consumers", "unprocessed-messages", "gauge", "messages", "read and not chosen yet"),
    Metric(
        "container",
        "consumers",
        "total-messages-behind-high-watermark",
        "gauge",
        "messages",
        "left in all inputs whose end is known",
    ),
    Metric(
        "container",
        "consumers",
        "ssps-needed-by-chooser",
        "gauge",
        "partitions",
        "that have no message in the chooser",
    ),
    Metric(
        "container",
        "consumers",
        "deserialization-errors",
        "counter",
        "messages",
        "that could not be decoded and were passed over",
    ),
    Metric("container", "consumers", "<system>-polls", "counter", "polls", "of a system's consumer"),
    Metric(
        "container", "consumers", f"{_SSP}-messages-chosen", "counter", "messages", "of a partition, chosen"
    ),
    Metric(
        "container",
        "consumers",
        f"{_SSP}-buffered-message-count",
        "gauge",
        "messages",
        "of a partition, read and not chosen yet",
    ),
    Metric(
        "container",
        "consumers",
        f"{_SSP}-messages-behind-high-watermark",
        "gauge",
        "messages",
        "left in a partition",
    ),
    Metric(
        "container",
        "consumers",
        f"{_SSP}-no-more-messages",
        "gauge",
        "0 or 1",
        "whether a partition had nothing more when last asked",
    ),
    Metric(
        "container",
        "offsets",
        f"{_SSP}-checkpointed-offset",
        "gauge",
        "offset",
        "of the last message of a partition in a checkpoint",
    ),
    Metric("container", "chooser", "buffered-messages", "gauge", "messages", "waiting in the chooser"),
    Metric(
        "container",
        "chooser",
        "held-partitions",
        "gauge",
        "partitions",
        "with a message that priority, batch or bootstrap holds",
    ),
    Metric(
        "container",
        "chooser",
        "priority-<priority>-buffered-messages",
        "gauge",
        "messages",
        "waiting in the chooser, by priority",
    ),
    Metric(
        "container",
        "chooser",
        "lagging-batch-streams",
        "gauge",
        "streams",
        "that bootstrap and have not caught up",
    ),
    Metric(
        "container",
        "chooser",
        "<system>-<stream>-lagging-partitions",
        "gauge",
        "partitions",
        "of a bootstrap stream, not caught up",
    ),
    Metric(
        "container",
        "producers",
        "sends",
        "counter",
        "messages",
        "sent and flushed, changelog entries included",
    ),
    Metric(
        "container",
        "producers",
        "serialization-errors",
        "counter",
        "messages",
        "that could not be encoded and were passed over",
    ),
    Metric("container", "log", "<system>-messages-read", "counter", "messages", "read from a log system"),
    Metric("container", "log", "<system>-batches-written", "counter", "batches", "appended to a log system"),
    Metric("container", "tcp", "<system>-messages-read", "counter", "messages", "received"),
    Metric(
        "container",
        "tcp",
        "<system>-messages-cut-off",
        "counter",
        "messages",
        "whose sender stopped in the middle; not delivered",
    ),
    Metric("container", "tcp", "<system>-connections", "gauge", "connections", "open"),
    Metric("container", "tcp", "<system>-connections-accepted", "counter", "connections", "of senders"),
    Metric("container", "tcp", "<system>-connections-lost", "counter", "connections", "that broke"),
    Metric(
        "container",
        "tcp",
        "<system>-connections-refused-<reason>",
        "counter",
        "connections",
        "closed, or not accepted",
    ),
    Metric("container", "tcp", f"{_SSP}-port", "gauge", "port", "on which a partition is listened for"),
    Metric(
        "container",
        "tcp",
        "<system>-reconnects",
        "counter",
        "connections",
        "of a producer that had to be made again",
    ),
    Metric(
        "container",
        "tcp",
        "<system>-messages-sent-again",
        "counter",
        "messages",
        "because a connection was lost too early",
    ),
    Metric("container", "udp", "<system>-messages-read", "counter", "messages", "received"),
    Metric(
        "container", "udp", "<system>-messages-too-large", "counter", "messages", "received and not delivered"
    ),
    Metric(
        "container",
        "udp",
        "<system>-datagrams-dropped",
        "counter",
        "datagrams",
        "by the kernel, whose buffer was full",
    ),
    Metric(
        "container",
        "udp",
        "<system>-datagrams-missing",
        "counter",
        "datagrams",
        "by the numbers of their senders (sequence=true)",
    ),
    Metric(
        "container",
        "udp",
        "<system>-datagrams-late",
        "counter",
        "datagrams",
        "that came after others with higher numbers, or twice",
    ),
    Metric(
        "container",
        "udp",
        "<system>-datagrams-malformed",
        "counter",
        "datagrams",
        "without a number, where they should have one",
    ),
    Metric(
        "container",
        "udp",
        "<system>-messages-unsent",
        "counter",
        "messages",
        "of a producer: not sent, or not taken by a receiver",
    ),
    Metric("container", "udp", f"{_SSP}-port", "gauge", "port", "on which a partition is listened for"),
    Metric("container", "amqp", "<system>-messages-read", "counter", "messages", "returned to the container"),
    Metric(
        "container",
        "amqp",
        "<system>-messages-redelivered",
        "counter",
        "messages",
        "that the broker had delivered before",
    ),
    Metric("container", "amqp", "<system>-reconnects", "counter", "connections", "that had to be made again"),
    Metric(
        "container",
        "amqp",
        "<system>-messages-sent-again",
        "counter",
        "messages",
        "because a connection was lost too early",
    ),
    Metric(
        "container",
        "webhook",
        "<system>-messages-pending",
        "gauge",
        "messages",
        "received and not durable yet",
    ),
    Metric(
        "container",
        "webhook",
        "<system>-bytes-pending",
        "gauge",
        "bytes",
        "of bodies that are not durable yet, or being received",
    ),
    Metric("container", "webhook", "<system>-connections", "gauge", "connections", "open"),
    Metric("container", "webhook", "<system>-requests", "gauge", "requests", "answered so far"),
    Metric(
        "container", "webhook", "<system>-requests-refused", "gauge", "requests", "not answered 200 so far"
    ),
    Metric(
        "container", "webhook", "<system>-posts", "gauge", "requests", "of a producer that were taken so far"
    ),
    Metric(
        "container",
        "webhook",
        "<system>-posts-repeated",
        "gauge",
        "requests",
        "of a producer that were sent again so far",
    ),
    Metric(
        "container",
        "store-<store>",
        "entries-restored",
        "counter",
        "entries",
        "read from a changelog to restore a store",
    ),
    Metric("container", "stores", "<store>-gets", "counter", "calls", "of a store's get"),
    Metric("container", "stores", "<store>-puts", "counter", "calls", "of a store's put"),
    Metric("container", "stores", "<store>-deletes", "counter", "calls", "of a store's delete"),
    Metric("container", "stores", "<store>-ranges", "counter", "calls", "of a store's range"),
    Metric("container", "stores", "<store>-alls", "counter", "calls", "of a store's all"),
    Metric("container", "stores", "<store>-flushes", "counter", "calls", "of a store's flush"),
    Metric(
        "container",
        "stores",
        "<store>-large-values-dropped",
        "counter",
        "values",
        "too large to be put, and dropped as configured",
    ),
    Metric(
        "container",
        "stores",
        "<store>-get-ns",
        "timer",
        "nanoseconds",
        "per get, serdes included (metrics.timer.enabled=true)",
    ),
    Metric(
        "container",
        "stores",
        "<store>-put-ns",
        "timer",
        "nanoseconds",
        "per put, serdes included (metrics.timer.enabled=true)",
    ),
    Metric(
        "task", "task", "process-calls", "counter", "messages", "of the task's partitions that were chosen"
    ),
    Metric(
        "task",
        "task",
        "messages-actually-processed",
        "counter",
        "messages",
        "without those from before where the task begins",
    ),
    Metric("task", "task", "commit-calls", "counter", "commits", "in which the task had something to commit"),
    Metric(
        "task",
        "task",
        f"{_SSP}-offset",
        "gauge",
        "offset",
        "of the last message of a partition that the task processed",
    ),
)


@cache
def find(group: str, name: str) -> tuple[Metric, Mapping[str, str]] | None:
    """The entry of a metric, and what its name has in place of the ``<...>``; None where it has no entry."""
    for metric in METRICS:
        match = _matcher(metric).fullmatch(f"{group}.{name}")
        if match:
            return metric, match.groupdict()
    return None


@cache
def _matcher(metric: Metric) -> re.Pattern[str]:
    escaped = re.escape(f"{metric.group}.{metric.pattern}")
    return re.compile(
        re.sub(r"<(\w+)>", lambda found: rf"(?P<{found[1]}>{_VALUES.get(found[1], '.+')})", escaped)
    )


# Where the name of a system has a dash, the name does not say what is what: labels do, and it is not asked.
_VALUES = {"system": ".+?", "partition": "[0-9]+", "store": "[^.]+", "priority": "-?[0-9]+|none"}
