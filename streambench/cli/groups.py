"""Groups: who reads which partitions, and how far each of them is, for ``streambench streams --groups``.

A group is a job: its processes share the partitions, and each job has positions of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.config import Config
from streambench.container.identities import Identities
from streambench.container.snapshot import lag_between
from streambench.errors import CheckpointError, ConfigError, StreambenchError, StreamSystemError, UnknownStreamError
from streambench.job.membership import living
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.model import natural
from streambench.system.listing import streams_of
from streambench.system.systems import Systems, log_systems

COLUMNS = ("group", "stream", "partition", "member", "position", "upcoming", "lag")
FIGURES = ("partition", "position", "upcoming", "lag")


def silent_systems(config: Config, only: SystemStream | None, *, patience_s: float) -> dict[str, StreambenchError]:
    """The systems that do not answer, all of them asked at once, and why; of ``only`` one stream, where that is given."""
    asked = [only.system] if only is not None else config.names_below("systems.")
    answers = streams_of([(config, system) for system in asked], patience_s=patience_s)
    return {system: answer for system, answer in zip(asked, answers, strict=True) if isinstance(answer, StreambenchError)}


def group_rows(
    config: Config, systems: Systems, only: SystemStream | None, silent: dict[str, StreambenchError]
) -> Iterator[dict[str, Any]]:
    """A row per group and partition: who has it at present (None: nobody), the next message, and how many are left; and one for each
    member that stands by without any. Of ``only`` one stream, where that is given. Nobody asks ``silent`` systems where their partitions
    end; to these are added those that fail at it."""
    session_s = config.integer("job.group.session.ms") / 1000
    for directory in _jobs(config):
        manager = JournalCheckpointManager(directory, directory.name, keep=1)
        try:
            last, generation, holders = manager.read_last(), manager.last_generation(), manager.holders()
        finally:
            manager.close()
        containers = {task: number for number, tasks in (generation.assignment if generation else {}).items() for task in tasks}
        for task in sorted(last, key=natural):
            for ssp in sorted(last[task].partitions):
                if only is None or ssp.system_stream == only:
                    position, upcoming = _places(systems, ssp, last[task], silent)
                    yield {
                        "group": directory.name, "stream": str(ssp.system_stream), "partition": ssp.partition,
                        "member": holders.get(containers.get(task, -1)), "position": position, "upcoming": upcoming,
                        "lag": lag_between(position, upcoming) if position is not None else None,
                    }  # fmt: skip
        if only is None:
            for member in living(directory / "members", session_s):
                if str(member) not in holders.values():
                    yield {**dict.fromkeys(COLUMNS), "group": directory.name, "member": str(member)}


def readers(config: Config, stream: SystemStream) -> list[str]:
    """The groups that have a place in a stream, sorted; without those whose checkpoints cannot be read."""
    found = []
    for directory in _jobs(config):
        manager = JournalCheckpointManager(directory, directory.name, keep=1)
        try:
            if any(ssp.system_stream == stream for each in manager.read_last().values() for ssp in each.partitions):
                found.append(directory.name)
        except CheckpointError:
            continue
        finally:
            manager.close()
    return found


def _jobs(config: Config) -> list[Path]:
    """The directories of the jobs that keep their checkpoints in the logs of this configuration, or beside it."""
    above = [config.path(f"systems.{system}.path") / "_jobs" for system in log_systems(config)]
    found = [each.parent for folder in [*above, config.path("task.checkpoint.path")] for each in folder.glob("*/generations")]
    return sorted(set(found), key=lambda directory: directory.name)


def _places(
    systems: Systems, ssp: SystemStreamPartition, checkpoint: Checkpoint, silent: dict[str, StreambenchError]
) -> tuple[str | None, str | None]:
    """The next message, and where the partition ends; None where nobody here can tell, since the system is that of another job, or the
    partition is another one now."""
    position = processed = checkpoint.offsets.get(ssp)
    try:
        admin = systems.admin(ssp.system)
        position = admin.after(processed) if processed is not None else checkpoint.starts.get(ssp)
        if ssp.system in silent:
            return position, None
        here = systems.metadata([ssp.system_stream])[ssp.system_stream].get(ssp.partition)
        if here is not None and not Identities(systems).is_same(checkpoint, ssp):
            position = None
    except (ConfigError, UnknownStreamError):
        return processed, None
    except StreamSystemError as error:
        silent[ssp.system] = error
        return position, None
    return position, here.upcoming if here is not None and admin.replayable else None
