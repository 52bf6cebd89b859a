"""The rows of streams that tasks send to: a replay makes them with as many partitions."""

from __future__ import annotations

from collections.abc import Iterable

from streambench.errors import StreambenchError
from streambench.model import SystemStream
from streambench.recording.file import Row
from streambench.system.systems import Systems


def stream_rows(systems: Systems, streams: Iterable[SystemStream]) -> list[Row]:
    """A row for each of these streams whose number of partitions is known."""
    rows = []
    for stream in sorted(streams):
        try:
            count = systems.admin(stream.system).partition_count(stream)
        except StreambenchError:
            continue
        rows.append(Row("stream", 0, source=str(stream), offset=str(count)))
    return rows
