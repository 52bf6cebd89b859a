"""Outputs that are committed and not in their streams yet, because a process ended in between; the next start
of its job writes them.

For reports only: a reader must not write to streams, and a living process is about to do so itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from streambench.checkpoint.pending_writes import PendingWrites
from streambench.checkpoint.record_log import RecordLog
from streambench.checkpoint.records import Entry, Start, decoded
from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError
from streambench.locks import is_locked
from streambench.model import SystemStream
from streambench.system.systems import log_systems


class PendingOutputs(Struct, frozen=True):
    """Outputs of the last commit of one ``container`` of ``job``: messages by stream, some of which may be
    there already."""

    job: str
    container: int
    messages: Mapping[SystemStream, int]

    def only(self, streams: Iterable[SystemStream]) -> PendingOutputs:
        """The part that is for some streams."""
        wanted = set(streams)
        return PendingOutputs(
            self.job,
            self.container,
            {stream: count for stream, count in self.messages.items() if stream in wanted},
        )

    def __str__(self) -> str:
        what = ", ".join(f"{stream} ({count:,})" for stream, count in sorted(self.messages.items()))
        return (
            f"{self.job}, container {self.container}: its process ended right after a commit. Messages of "
            f"that commit may not be in their streams yet: {what}. The next start of the job writes them"
        )


def job_directories(config: Config) -> list[Path]:
    """The directories of the jobs that keep their checkpoints in the logs of this configuration, or beside
    it, sorted by their names."""
    above = [config.path(f"systems.{system}.path") / "_jobs" for system in log_systems(config)]
    found = [
        each.parent
        for folder in [*above, config.path("task.checkpoint.path")]
        for each in folder.glob("*/generations")
    ]
    return sorted(set(found), key=lambda directory: directory.name)


def pending_for(config: Config, streams: Iterable[SystemStream]) -> list[PendingOutputs]:
    """Outputs that jobs have committed for these streams, and not written yet.

    A job may know the system by another name. What it wrote to the log of its checkpoints counts for the
    system of that log."""
    wanted = set(streams)
    if not wanted:
        return []
    try:
        names = {config.path(f"systems.{system}.path"): system for system in log_systems(config)}
        directories = job_directories(config)
    except ConfigError:
        return []  # the streams of that system cannot be read either, which has been reported
    found = []
    for directory in directories:
        system = names.get(directory.parent.parent)
        for each in pending_in(directory):
            here = Counter[SystemStream]()
            for stream, count in each.messages.items():
                own = SystemStream(system, stream.stream) if system is not None else stream
                here[stream if stream in wanted else own] += count
            each = PendingOutputs(each.job, each.container, here).only(wanted)
            if each.messages:
                found.append(each)
    return found


def pending_in(directory: Path) -> list[PendingOutputs]:
    """The same for all streams of the job whose checkpoints are in a directory.

    What cannot be read is passed over here: the next start of the job reports it."""
    found = []
    try:
        last = RecordLog(directory / "generations").last()
        if last is None:
            return []
        with last:
            start = decoded(last, Start)
        for container in start.containers():
            effects = _left(RecordLog(directory / f"g{start.number}" / f"c{container}"))
            if effects is not None:
                counts = Counter[SystemStream]()
                for rows in effects.rows:
                    counts[rows.ssp.system_stream] += len(rows)
                found.append(PendingOutputs(start.job, container, counts))
    except (StreambenchError, OSError):
        return found
    return found


def _left(record_log: RecordLog) -> PendingWrites | None:
    """Effects that the last commit of a container has left, unless a process is about to write them."""
    top = record_log.last()
    if top is None:
        return None
    with top:
        entry = decoded(top, Entry)
    if entry.kind != "closed" and is_locked(record_log.path(entry.epoch)):
        return None
    commit = record_log.open(entry.witness)
    if commit is None:
        return None
    with commit:
        payload = commit.payload()
    return None if payload is None else PendingWrites.from_bytes(payload)
