"""Groups: the readers of partitions, and how far each of them is, for ``streambench streams --groups``.

A group is a job: its processes share the partitions, and each job has positions of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.config import Config
from streambench.container.inputs.partition_identity import PartitionIdentities
from streambench.container.observe.snapshot import lag_between
from streambench.errors import (
    CheckpointError,
    ConfigError,
    StreambenchError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.job.membership import living
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.model import natural
from streambench.planning.pending_commits import job_directories
from streambench.system.listing import streams_of
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

COLUMNS = ("group", "task", "stream", "partition", "member", "position", "upcoming", "lag")
FIGURES = ("partition", "position", "upcoming", "lag")


def silent_systems(
    config: Config, only: SystemStream | None, *, patience_s: float
) -> dict[str, StreambenchError]:
    """The systems that do not answer, all of them asked at once, and why; of ``only`` one stream, where that
    is given."""
    asked = [only.system] if only is not None else config.names_below("systems.")
    answers = streams_of([(config, system) for system in asked], patience_s=patience_s)
    return {
        system: answer
        for system, answer in zip(asked, answers, strict=True)
        if isinstance(answer, StreambenchError)
    }


def group_rows(
    config: Config, systems: Systems, only: SystemStream | None, silent: dict[str, StreambenchError]
) -> Iterator[dict[str, Any]]:
    """A row per group, task and partition: the member that has it, the next message, and how many are left.
    Also one for each member without any. The member is None where no process has it, or where that is not
    known: checkpoints in a Kafka do not say. Of ``only`` one stream, where that is given. ``silent`` systems
    are not asked where their partitions end; to these are added those that fail at it."""
    session_s = config.integer("job.group.session.ms") / 1000
    for name, manager in _groups(config, systems, silent):
        try:
            last, generation = manager.read_last(), manager.last_generation()
            holders = manager.holders() if isinstance(manager, JournalCheckpointManager) else {}
        except CheckpointError as error:
            # Of the other jobs there is something to show.
            log.warning("the group %s is left out: %s", name, error)
            continue
        finally:
            manager.close()
        # The container that has each task, by the last generation; without one, no container has any.
        containers = {
            task: number
            for number, tasks in (generation.assignment if generation else {}).items()
            for task in tasks
        }
        for task in sorted(last, key=natural):
            for ssp in sorted(last[task].partitions):
                if only is None or ssp.system_stream == only:
                    position, upcoming = _places(systems, ssp, last[task], silent)
                    yield {
                        "group": name,
                        "task": task,
                        "stream": str(ssp.system_stream),
                        "partition": ssp.partition,
                        "member": holders.get(containers.get(task, -1)),
                        "position": position,
                        "upcoming": upcoming,
                        "lag": lag_between(position, upcoming) if position is not None else None,
                    }
        if only is None and manager.directory is not None:
            for member in living(manager.directory / "members", session_s):
                if str(member) not in holders.values():
                    yield {**dict.fromkeys(COLUMNS), "group": name, "member": str(member)}


def readers(config: Config, stream: SystemStream) -> list[str]:
    """The groups that have a place in a stream, sorted; without those whose checkpoints cannot be read."""
    found = []
    with closing(Systems(config)) as systems:
        for name, manager in _groups(config, systems, {}):
            try:
                if any(
                    ssp.system_stream == stream
                    for each in manager.read_last().values()
                    for ssp in each.partitions
                ):
                    found.append(name)
            except (CheckpointError, StreamSystemError):
                continue
            finally:
                manager.close()
    return sorted(found)


def _groups(
    config: Config, systems: Systems, silent: dict[str, StreambenchError]
) -> Iterator[tuple[str, CheckpointManager]]:
    """The jobs whose checkpoints are in the systems of this configuration, or beside it. To ``silent`` are
    added the systems that fail."""
    for directory in job_directories(config):
        yield directory.name, JournalCheckpointManager(directory, directory.name, keep=1)
    for system in config.names_below("systems."):
        if system in silent:
            continue
        try:
            factory: Any = systems.factory(system)
            jobs = systems.jobs(system)
        except StreambenchError as error:
            silent[system] = error
            continue
        for job in jobs:
            yield job, factory.get_checkpoint_manager(system, config, job)


def _places(
    systems: Systems, ssp: SystemStreamPartition, checkpoint: Checkpoint, silent: dict[str, StreambenchError]
) -> tuple[str | None, str | None]:
    """The next message and the end of the partition.

    None where that is unknown here: the system belongs to another job, or the partition was replaced."""
    position = processed = checkpoint.offsets.get(ssp)
    try:
        admin = systems.admin(ssp.system)
        position = admin.after(processed) if processed is not None else checkpoint.starts.get(ssp)
        if ssp.system in silent:
            return position, None
        here = systems.metadata([ssp.system_stream])[ssp.system_stream].get(ssp.partition)
        if here is not None and not PartitionIdentities(systems).is_same(checkpoint, ssp):
            position = None
    except (ConfigError, UnknownStreamError):
        return processed, None
    except StreamSystemError as error:
        silent[ssp.system] = error
        return position, None
    return position, here.upcoming if here is not None and admin.replayable else None
