"""Rows that recordings and captures share: the streams that tasks send to, and a failure."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping

from streambench.errors import StreambenchError, TaskError, class_name, described
from streambench.model import SystemStream
from streambench.recording.file import Row
from streambench.recording.values import packed
from streambench.redaction import redacted
from streambench.system.systems import Systems


def stream_rows(
    systems: Systems, streams: Iterable[SystemStream], size_limits: Mapping[SystemStream, int]
) -> list[Row]:
    """A row for each of these streams whose number of partitions is known. ``size_limits``: those that
    brokers have given."""
    rows = []
    for stream in sorted(streams):
        try:
            count = systems.admin(stream.system).partition_count(stream)
        except StreambenchError:
            continue
        limit = packed({"size_limit": size_limits[stream]}) if stream in size_limits else None
        form = None if limit is None else "json"
        rows.append(Row("stream", 0, source=str(stream), offset=str(count), message=limit, message_as=form))
    return rows


_LONGEST = 20_000


def failure_row(error: BaseException, position: int) -> Row:
    """The row of what a container failed with after ``position`` messages. Secrets that this process has read
    are masked."""
    cause = error.__cause__ if isinstance(error, TaskError) and error.__cause__ is not None else error
    lines = "".join(traceback.format_exception(cause))
    said = {
        "kind": class_name(type(cause)),
        "text": redacted(described(error))[:_LONGEST],
        "traceback": redacted(lines)[-_LONGEST:],
    }
    task = ssp = offset = None
    if isinstance(error, TaskError):
        task, ssp, offset = error.task, error.ssp, error.offset
    return Row(
        "failure", position, task, None if ssp is None else str(ssp), offset,
        message=packed(said), message_as="json",
    )  # fmt: skip
