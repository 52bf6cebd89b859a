"""Remedies: what to do about a record of the checkpoint journal that is damaged or missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streambench.checkpoint.record_log import Record, RecordLog
from streambench.checkpoint.records import Entry, Start, decoded
from streambench.errors import CheckpointError


def remedy(record: Record, tasks: Sequence[str], newest: int) -> str:
    """The remedy for a damaged record of a container with these tasks, as a sentence; ``newest``: the job's
    last generation."""
    record_log = RecordLog(record.path.parent)
    if record_log.path(record.number + 1).exists() or newest > int(record.path.parent.parent.name[1:]):
        return "No later commit needs it: delete this one file to continue without it"
    rewinding = f"rewind {', '.join(tasks)} (all of them)" if tasks else "rewind its tasks"
    before = record_log.open(record.number - 1) if record.number > 1 else None
    if before is None:
        return f"No earlier commit is left: {rewinding} to where the container is to continue"
    with before:
        try:
            decoded(before, Entry)
        except CheckpointError:
            return f"Nor can the one before it be read: {rewinding} to where the container is to continue"
    return (
        "Stop the job and delete this one file, to go back to the commit before it (messages after that are "
        "processed again); "
        f"or {rewinding} to where the container is to continue"
    )


def missing_record(
    record_log: RecordLog, generations: RecordLog, generation: int, sequence: int
) -> Path | None:
    """The file of a commit that a container made in an earlier generation, where it should be there and is
    not.

    None where it is there or has been pruned, and after a rewind: its user accepts that
    outputs come again."""
    record = record_log.open(sequence)
    if record is not None:
        with record:
            if decoded(record, Entry).kind == "commit":
                return None
    elif sequence < (record_log.numbers() or [sequence + 1])[0]:
        return None
    for number in generations.kept():
        later = generations.open(number) if number > generation else None
        if later is not None:
            with later:
                if decoded(later, Start).rewound:
                    return None
    return record_log.path(sequence)
