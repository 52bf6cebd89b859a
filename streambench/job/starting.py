"""The start of a job: of several that begin at the same moment, each sees the others before it goes on.

A start is seen by others only when its containers have their claims. Until then it holds a lock beside the
checkpoints, and a second one waits for that, or is refused. Where the checkpoints are in a Kafka, it goes on
once the broker shows its lease.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from streambench.checkpoint.api import CheckpointManager
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.config import Config
from streambench.errors import CheckpointError, StreambenchError
from streambench.job.running import (
    IfRunning,
    LockRecord,
    check_leases,
    check_not_running,
    deployer,
    holding_process,
    known_leases,
    running_error,
)
from streambench.job.waits import Wait
from streambench.locks import Held
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.plan import all_inputs
from streambench.process_identity import has_ended, is_stopped
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

START_LOCK = "start.lock"
_LOOK_S = 0.05
_AGAIN_S = 0.1
# The processes of many containers take long to begin on a busy machine.
_REFUSED_AFTER_S = 60.0
_TAKEN_OVER_AFTER_S = 5.0
_SEEN_WITHIN_S = 60.0
# A holder writes its name a moment after it has the lock.
_GONE_AFTER_S = 1.0


@contextmanager
def starting(
    config: Config, job: str, command: str, if_running: IfRunning = "refuse", *,
    container: int | None = None, join: bool = False,
) -> Iterator[None]:  # fmt: skip
    """Within it a job is started, and perhaps run to its end, or rewound. The arguments are those of
    ``check_not_running``. Raises JobRunningError where another process of the job is at work, or is just
    starting, unless that is to be taken over."""
    refuses = if_running == "refuse"
    with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
        directory, has_leases = manager.directory, manager.lease_s > 0
    if directory is None:
        if refuses and has_leases:
            with _leased(config, job, command, container):
                yield
        else:
            yield
        return
    if not directory.is_dir() and not _has_inputs(config, job):
        yield  # the start says itself what is missing, and leaves no directory
        return

    def look() -> None:
        if refuses:
            check_not_running(config, job, command, container=container, join=join)

    with turn_to_start(directory, job, command, look, refuses=refuses, is_shared=join) as held:
        look()
        with _released_once_seen(config, job, held, None if join else container):
            yield


@contextmanager
def turn_to_start(
    directory: Path, job: str, command: str, look: Callable[[], object], *, refuses: bool = True,
    is_shared: bool = False,
) -> Iterator[Held | None]:  # fmt: skip
    """The lock of starts, beside the checkpoints of a job.

    It is None on a file system without locks, or where a take-over has waited for some seconds. ``look``
    raises where others are seen. ``is_shared``: others that share it may start meanwhile. Raises
    JobRunningError where it is not free within a minute."""
    new = [each for each in (directory, *directory.parents) if not each.exists()]
    held = _taken(directory, job, command, look, refuses=refuses, is_shared=is_shared)
    try:
        yield held
    finally:
        if held is not None:
            if new and not is_shared:
                _remove(held, directory, new)
            held.release()


def _remove(held: Held, directory: Path, new: Sequence[Path]) -> None:
    """Remove the directories that a start has made, where it was refused before it wrote anything else."""
    path = directory / START_LOCK
    with suppress(OSError):
        if held.is_of(path) and [each.name for each in directory.iterdir()] == [START_LOCK]:
            path.unlink()
            for each in new:
                each.rmdir()


def _taken(
    directory: Path, job: str, command: str, look: Callable[[], object], *, refuses: bool, is_shared: bool
) -> Held | None:
    path = directory / START_LOCK
    until = time.monotonic() + (_REFUSED_AFTER_S if refuses else _TAKEN_OVER_AFTER_S)
    gone_since = math.inf
    wait = Wait(f"{job}: waiting for another start of the job, which has just begun")
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            held = Held.locked(path, is_shared=is_shared)
        except FileNotFoundError as error:
            # Another start has removed the directory that it had made.
            if time.monotonic() >= until:
                log.debug("%s: no lock for its start: %s", job, error)
                return None
        except BlockingIOError:
            look()
            # A child may have the file of a process that was killed, and one that is stopped keeps its own.
            gone_since = min(gone_since, time.monotonic()) if _holder_is_gone(path) else math.inf
            if time.monotonic() - gone_since > _GONE_AFTER_S:
                return None
            if time.monotonic() < until:
                wait.pause(_AGAIN_S)
            elif refuses:
                raise running_error(job, f"is being started by {deployer(path)}", command) from None
            else:
                return None
        except OSError as error:
            log.debug("%s: no lock for its start: %s", job, error)
            return None
        else:
            if not held.is_of(path):
                held.release()
                continue
            if not is_shared:
                try:
                    held.write(LockRecord.of_this_process())
                except OSError:
                    held.release()
                    raise
            return held


def _holder_is_gone(path: Path) -> bool:
    """True where the process that holds the lock was killed, or stands still."""
    holder = holding_process(path)
    return holder is not None and (has_ended(*holder) or is_stopped(*holder))


@contextmanager
def _released_once_seen(config: Config, job: str, held: Held | None, container: int | None) -> Iterator[None]:
    """Release the lock as soon as a claim shows others that the job is at work: of ``container``, or any."""
    ended = threading.Event()

    def watch(lock: Held) -> None:
        with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
            while not ended.wait(_LOOK_S):
                if _is_seen(manager, container):
                    lock.release()
                    return

    watching = None
    if held is not None:
        watching = threading.Thread(target=watch, args=[held], name="start", daemon=True)
        watching.start()
    try:
        yield
    finally:
        ended.set()
        if watching is not None:
            watching.join()


def _is_seen(manager: CheckpointManager, container: int | None) -> bool:
    try:
        holders = manager.holders() if isinstance(manager, JournalCheckpointManager) else {}
    except CheckpointError as error:
        log.debug("it is not known if the job has started: %s", error)
        return False
    return bool(holders) if container is None else container in holders


@contextmanager
def _leased(config: Config, job: str, command: str, container: int | None) -> Iterator[None]:
    with closing(checkpoint_manager(config, job)) as leases:
        own = leases.take_lease("run", container)
        await_lease(leases, job, own)
        check_leases(leases, config, job, command, container=container, own=own)
        yield


def await_lease(leases: CheckpointManager, job: str, own: str) -> None:
    """Return when others see the lease ``own``; with a warning where they do not, or it is not known."""
    until, why = time.monotonic() + _SEEN_WITHIN_S, ""
    wait = Wait(f"{job}: waiting until the broker shows other starts of the job that it runs here")
    while own and not why:
        holders = known_leases(leases, job)
        if holders is None or any(each.name == own for each in holders):
            return
        if leases.is_lease_refused:
            why = "the user of the job may not join the group of its leases"
        elif time.monotonic() >= until:
            why = f"its lease was not taken within {_SEEN_WITHIN_S:g} s"
        else:
            wait.pause(_AGAIN_S)
    if why:
        log.warning("%s: other starts of the job do not see this one: %s", job, why)


def _has_inputs(config: Config, job: str) -> bool:
    try:
        with closing(Systems(config)) as systems:
            systems.inputs(all_inputs(config))
    except StreambenchError as error:
        log.debug("%s: %s", job, error)
        return False
    return True
