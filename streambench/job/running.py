"""Other starts of the same job: a new one would end them at their last commit, and asks first.

Where the checkpoints lie in a directory, containers hold their claims, and a deployment a lock beside the
checkpoints, between its rounds, too. Where they are in a Kafka, processes hold leases, which outlive one that
was killed for some seconds.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from streambench.checkpoint.api import CheckpointManager, LeaseHolder
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.config import Config
from streambench.errors import CheckpointError, ConfigError, StreambenchError, StreamSystemError
from streambench.job.membership import living
from streambench.job.waits import Wait
from streambench.locks import is_locked
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.process_identity import has_ended, is_stopped

log = logging.getLogger(__name__)

IfRunning = Literal["refuse", "take-over"]

DEPLOYMENT_LOCK = "deployment.lock"
# Containers of a process that was killed live a little longer than it.
_PATIENCE_S = 5.0
_AGAIN_S = 0.1
# A broker ends a lease a little later than it has promised. Where a process was killed while it took one, the
# time of that begins only when its other lease has ended.
_LEASES, _LATE_S = 2, 5.0
_LEASES_WITHIN_S = 5.0


class JobRunningError(StreambenchError):
    """The job runs already, and was not to be taken over. Nothing was started or stopped."""


def check_if_running(if_running: str) -> None:
    """Raise ConfigError for anything but ``refuse`` and ``take-over``."""
    if if_running not in get_args(IfRunning):
        raise ConfigError(f"if_running='{if_running}': give refuse or take-over")


def check_not_running(
    config: Config, job: str, command: str, *, container: int | None = None, join: bool = False,
    is_deploying: bool = False,
) -> None:  # fmt: skip
    """Raise JobRunningError where a deployment or a container of a job is at work. Containers get a moment to
    end, and so do the leases of processes that have ended. ``command``: the one that is refused.

    ``container``: the only one that is to be started; ``join``: as a member of the job's group. The others
    may run then. ``is_deploying``: the caller holds the lock of deployments."""
    with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
        if manager.lease_s and not is_deploying:
            check_leases(manager, config, job, command, container=container)
        if not isinstance(manager, JournalCheckpointManager) or manager.directory is None:
            return
        path, journal = manager.directory / DEPLOYMENT_LOCK, manager
        if not is_deploying and is_locked(path):
            raise running_error(job, f"is being deployed by {deployer(path)}", command)
        wait = Wait(f"{job}: waiting for its containers that are at work: they may just be ending")
        if holders := remaining(lambda: _others(config, journal, container, join=join), _PATIENCE_S, wait):
            raise running_error(job, f"is running: {described_holders(holders)}", command)


def check_leases(
    manager: CheckpointManager, config: Config, job: str, command: str, *, container: int | None = None,
    own: str = "",
) -> None:  # fmt: skip
    """As ``check_not_running``, by the leases of a job. ``own``: the name of that of the caller.

    Of two that see each other the younger one is refused, and the older one waits until that has gone. The
    processes of a job are not always known. That must not keep the job from its start."""
    until = wait = None
    while found := known_leases(manager, job):
        since_ms = next((each.since_ms for each in found if each.name == own), None)
        holders = _concerned(config, manager, container, [each for each in found if each.name != own])
        older = [each for each in holders if since_ms is None or each.since_ms <= since_ms]
        at_work = [each for each in older if not _is_left(each)]
        longest_s = _LEASES * manager.lease_s
        until = until or time.monotonic() + longest_s + _LATE_S
        if not holders:
            return
        if at_work or time.monotonic() >= until:
            holder = (at_work or holders)[0]
            doing = "is being deployed" if holder.work == "deploy" else "is running: it is run"
            more = f"; if it was killed, its lease ends within {longest_s:.0f} s of its death"
            raise running_error(job, f"{doing} by {holder}", command, more)
        wait = wait or Wait(f"{job}: waiting for the end of the lease of {holders[0]}")
        wait.pause(_AGAIN_S)


def known_leases(manager: CheckpointManager, job: str) -> list[LeaseHolder] | None:
    """The holders of leases of a job; None, with one warning, where the user of it may not see them."""
    try:
        return manager.lease_holders()
    except StreamSystemError as error:
        _warn_of_unseen(job, str(error))
        return None


@cache
def _warn_of_unseen(job: str, why: str) -> None:
    log.warning("%s: it is not known if another process works for it: %s", job, why)


def _concerned(
    config: Config, manager: CheckpointManager, container: int | None, holders: list[LeaseHolder]
) -> list[LeaseHolder]:
    """The holders that a start of this one container would end."""
    last = manager.last_generation() if container is not None else None
    if last is None or len(last.assignment) != config.integer("job.container.count"):
        return holders
    return [each for each in holders if each.container in (None, container)]


def _is_left(holder: LeaseHolder) -> bool:
    """True for the lease of a process of this machine that was killed, or stands still."""
    return has_ended(holder.host, holder.process) or is_stopped(holder.host, holder.process)


def _others(
    config: Config, manager: JournalCheckpointManager, container: int | None, *, join: bool
) -> dict[int, str]:
    """The containers at work that such a start would end, each with its process. One that is stopped is
    replaced, as one that was killed."""
    try:
        holders = manager.holders(with_stopped=False)
    except CheckpointError as error:
        # A rewind mends damaged checkpoints; any other start says itself what is wrong.
        log.debug("it is not known if another process runs the job: %s", error)
        return {}
    if join and holders and manager.directory is not None:
        session_s = config.integer("job.group.session.ms") / 1000
        members = {str(each) for each in living(manager.directory / "members", session_s)}
        return {number: process for number, process in holders.items() if process not in members}
    last = manager.last_generation() if container is not None else None
    if container is None or last is None or len(last.assignment) != config.integer("job.container.count"):
        return holders
    return {container: holders[container]} if container in holders else {}


def described_holders(holders: dict[int, str]) -> str:
    """The processes that have containers, in words."""
    number, process = min(holders.items())
    more = f", and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"{process} has container {number}{more}"


def running_error(job: str, what: str, command: str, more: str = "") -> JobRunningError:
    """The error of a command that would end what runs. ``what``: that, with its process; ``more``: what else
    is known of it."""
    in_python = "" if command == "rewind" else ' (if_running="take-over")'
    return JobRunningError(
        f"{job} {what}: stop that first, or {command} with --if-running take-over{in_python}, which ends it "
        f"at its last commit{more}"
    )


def work_elsewhere(config: Config, job: str) -> str:
    """The processes that are at work for a job, in words; empty where there are none, or that is not known
    within seconds. Of leases, those of other processes: its own end a little later than its containers.
    Raises ConfigError."""
    with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
        if isinstance(manager, JournalCheckpointManager):
            if holders := manager.holders():
                return described_holders(holders)
            path = None if manager.directory is None else manager.directory / DEPLOYMENT_LOCK
            return f"{deployer(path)} deploys it" if path is not None and is_locked(path) else ""
    return _leased_work(config, job) if manager.lease_s else ""


def _leased_work(config: Config, job: str) -> str:
    found: list[LeaseHolder] = []

    def ask() -> None:
        with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
            try:
                found.extend(manager.lease_holders())
            except StreambenchError as error:
                log.debug("it is not known if another process works for %s: %s", job, error)

    asking = threading.Thread(target=ask, name="leases", daemon=True)  # a broker may not answer for long
    asking.start()
    asking.join(_LEASES_WITHIN_S)
    own = os.getpid(), socket.gethostname()
    others = [each for each in found if (each.process, each.host) != own and not _is_left(each)]
    if not others:
        return ""
    first = others[0]
    container = f"has container {first.container}" if first.container is not None else "runs it"
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    return f"{first} {'deploys it' if first.work == 'deploy' else container}{more}"


def container_holders(config: Config, job: str) -> dict[int, str]:
    """Per container of the last start that is at work, its process; empty where that is not known."""
    with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
        return manager.holders() if isinstance(manager, JournalCheckpointManager) else {}


def remaining(
    holders: Callable[[], dict[int, str]], patience_s: float, wait: Wait | None = None
) -> dict[int, str]:
    """The holders that are left when all are gone, or so many seconds later."""
    until = time.monotonic() + patience_s
    pause = time.sleep if wait is None else wait.pause
    while (found := holders()) and time.monotonic() < until:
        pause(_AGAIN_S)
    return found


class LockRecord(Struct):
    """The record in the file of a lock: the process that holds it, its host, and since when (ms)."""

    process: int
    host: str
    since_ms: int

    def __str__(self) -> str:
        return f"{self.process} on {self.host} since {self.since_ms}"

    @classmethod
    def of_this_process(cls) -> bytes:
        """The record of a lock that this process has just taken, as it stands in the file."""
        record = cls(os.getpid(), socket.gethostname(), time.time_ns() // 10**6)
        return msgspec.json.encode(record)

    @classmethod
    def read(cls, path: Path) -> LockRecord | None:
        """The record in a file; None where there is none."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None


def deployer(path: Path) -> str:
    """The process that holds the lock of a deployment, since when."""
    record = LockRecord.read(path)
    if record is None:
        return "another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.since_ms / 1000))
    return f"process {record.process} on {record.host} since {since}"


def holding_process(path: Path) -> tuple[str, int] | None:
    """The host and the number of the process that holds the lock of a deployment; None where it is not
    known."""
    record = LockRecord.read(path)
    return None if record is None else (record.host, record.process)
