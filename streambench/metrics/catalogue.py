"""Every metric that streambench itself keeps: its kind, its unit and its meaning, once.

``streambench metrics`` prints this table, and what a Prometheus endpoint says of a metric comes from here.
Names are Samza's where Samza has the metric, ``<system>-<stream>-<partition>-...`` for an input partition
included. ``<...>`` stands for a name, and becomes a label where labels are known. What a task or a plug-in
adds (``context.metrics``) needs no entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, NamedTuple

import msgspec

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


_TABLE = """
container container:
process-envelopes              counter  messages      chosen and given to tasks; a broadcast message once
process-calls                  counter  calls         of process(); a broadcast message counts once per task
process-null-envelopes         counter  iterations    of the event loop that found no message
skipped-envelopes              counter  messages      not given to a task that begins further on than another
window-calls                   counter  times         that the tasks' window() was due
commit-calls                   counter  commits       made by the event loop
process-ns                     timer    nanoseconds   per process() or process_batch(), listeners included
choose-ns                      timer    nanoseconds   to choose a message (with metrics.timer.enabled=true)
window-ns                      timer    nanoseconds   in the window() of all tasks
commit-ns                      timer    nanoseconds   per commit: flush, changelogs and checkpoint
block-ns                       timer    nanoseconds   slept because there was nothing to do
event-loop-utilization         gauge    0 to 1        share of about the last minute that it did not sleep
container-running              gauge    0 or 1        whether the container runs
container-startup-time         gauge    milliseconds  that start() took
restore-time                   gauge    milliseconds  that the restore of all stores took
physical-memory-mb             gauge    MiB           of memory that the process holds
exception-ignored-<exception>  counter  exceptions    of tasks, passed over as configured
dead-letters                   counter  messages      written to the dead-letter stream
report-exceptions              counter  reports       that a metrics reporter failed to make
container consumers:
chose-object                          counter  messages    that the chooser gave
chose-null                            counter  times       that the chooser had none
unprocessed-messages                  gauge    messages    read and not chosen yet
total-messages-behind-high-watermark  gauge    messages    left in all inputs whose end is known
ssps-needed-by-chooser                gauge    partitions  that have no message in the chooser
deserialization-errors                counter  messages    that could not be decoded and were passed over
<system>-polls                        counter  polls       of a system's consumer
<ssp>-messages-chosen                 counter  messages    of a partition, chosen
<ssp>-buffered-message-count          gauge    messages    of a partition, read and not chosen yet
<ssp>-messages-behind-high-watermark  gauge    messages    left in a partition
<ssp>-no-more-messages                gauge    0 or 1  whether a partition had nothing more when last asked
container offsets:
<ssp>-checkpointed-offset  gauge  offset  of the last message of a partition in a checkpoint
container chooser:
buffered-messages                      gauge  messages    waiting in the chooser
held-partitions                      gauge  partitions  with a message that priority, batch or bootstrap holds
priority-<priority>-buffered-messages  gauge  messages    waiting in the chooser, by priority
lagging-batch-streams                  gauge  streams     that bootstrap and have not caught up
<system>-<stream>-lagging-partitions   gauge  partitions  of a bootstrap stream, not caught up
container producers:
sends                 counter  messages  sent and flushed, changelog entries included
serialization-errors  counter  messages  that could not be encoded and were passed over
container log:
<system>-messages-read    counter  messages  read from a log system
<system>-batches-written  counter  batches   appended to a log system
container tcp:
<system>-messages-read                 counter  messages     received
<system>-messages-cut-off              counter  messages     whose sender stopped in the middle; not delivered
<system>-connections                   gauge    connections  open
<system>-connections-accepted          counter  connections  of senders
<system>-connections-lost              counter  connections  that broke
<system>-connections-refused-<reason>  counter  connections  closed, or not accepted
<ssp>-port                             gauge    port         on which a partition is listened for
<system>-reconnects                    counter  connections  of a producer that had to be made again
<system>-messages-sent-again           counter  messages     because a connection was lost too early
container udp:
<system>-messages-read        counter  messages   received
<system>-messages-too-large   counter  messages   received and not delivered
<system>-datagrams-dropped    counter  datagrams  by the kernel, whose buffer was full
<system>-datagrams-missing    counter  datagrams  by the numbers of their senders (sequence=true)
<system>-datagrams-late       counter  datagrams  that came after others with higher numbers, or twice
<system>-datagrams-malformed  counter  datagrams  without a number, where they should have one
<system>-messages-unsent      counter  messages   of a producer: not sent, or not taken by a receiver
<ssp>-port                    gauge    port       on which a partition is listened for
container amqp:
<system>-messages-read         counter  messages     returned to the container
<system>-messages-redelivered  counter  messages     that the broker had delivered before
<system>-reconnects            counter  connections  that had to be made again
<system>-messages-sent-again   counter  messages     because a connection was lost too early
container webhook:
<system>-messages-pending  gauge  messages     received and not durable yet
<system>-bytes-pending     gauge  bytes        of bodies that are not durable yet, or being received
<system>-connections       gauge  connections  open
<system>-requests          gauge  requests     answered so far
<system>-requests-refused  gauge  requests     not answered 200 so far
<system>-posts             gauge  requests     of a producer that were taken so far
<system>-posts-repeated    gauge  requests     of a producer that were sent again so far
container store-<store>:
entries-restored  counter  entries  read from a changelog to restore a store
container stores:
<store>-gets                  counter  calls        of a store's get
<store>-puts                  counter  calls        of a store's put
<store>-deletes               counter  calls        of a store's delete
<store>-ranges                counter  calls        of a store's range
<store>-alls                  counter  calls        of a store's all
<store>-flushes               counter  calls        of a store's flush
<store>-large-values-dropped  counter  values       too large to be put, and dropped as configured
<store>-get-ns                timer    nanoseconds  per get, serdes included (metrics.timer.enabled=true)
<store>-put-ns                timer    nanoseconds  per put, serdes included (metrics.timer.enabled=true)
task task:
process-calls                counter  messages  of the task's partitions that were chosen
messages-actually-processed  counter  messages  without those from before where the task begins
commit-calls                 counter  commits   in which the task had something to commit
<ssp>-offset                 gauge    offset    of the last message of a partition that the task processed
"""
"""Headings are a source and a group. A line below has name, kind, unit and meaning, with two spaces or more
between them. ``<ssp>`` stands for ``<system>-<stream>-<partition>``."""


def _read(table: str) -> Iterator[Metric]:
    source, group = "", ""
    for line in table.replace("<ssp>", "<system>-<stream>-<partition>").strip().splitlines():
        if line.endswith(":"):
            source, group = line.rstrip(":").split(" ")
        else:
            yield msgspec.convert((source, group, *re.split(r"  +", line)), Metric)


METRICS = tuple(_read(_TABLE))


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
