"""The row of a failure."""

from __future__ import annotations

import traceback

from streambench.errors import TaskError, class_name, described
from streambench.recording.file import Row
from streambench.recording.values import packed
from streambench.redaction import redacted

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
