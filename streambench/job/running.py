"""Other starts of the same job: a new one would end them at their last commit, and asks first.

Containers hold their claims, and a deployment a lock beside the job's checkpoints, between its rounds, too.
Both are known only where the checkpoints lie in a directory. The leases in a Kafka outlive a process that was
killed: only a deployment asks for these.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal, get_args

from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.config import Config
from streambench.errors import CheckpointError, ConfigError, StreambenchError
from streambench.job.membership import living
from streambench.locks import is_locked
from streambench.planning.checkpoint_managers import checkpoint_manager

log = logging.getLogger(__name__)

IfRunning = Literal["refuse", "take-over"]

DEPLOYMENT_LOCK = "deployment.lock"
# Containers of a process that was killed live a little longer than it.
_PATIENCE_S = 5.0
_AGAIN_S = 0.1


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
    """Raise JobRunningError where a deployment or a container of a job is at work; containers get a moment to
    end. ``command``: the one that is refused.

    ``container``: the only one that is to be started; ``join``: as a member of the job's group. The others
    may run then. ``is_deploying``: the caller holds the lock of deployments."""
    with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
        if not isinstance(manager, JournalCheckpointManager) or manager.directory is None:
            return
        path, journal = manager.directory / DEPLOYMENT_LOCK, manager
        if not is_deploying and is_locked(path):
            raise running_error(job, f"is being deployed by {deployer(path)}", command)
        if holders := remaining(lambda: _others(config, journal, container, join=join), _PATIENCE_S):
            raise running_error(job, f"is running: {described_holders(holders)}", command)


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


def container_holders(config: Config, job: str) -> dict[int, str]:
    """Per container of the last start that is at work, its process; empty where that is not known."""
    with closing(checkpoint_manager(config, job, is_quiet=True)) as manager:
        return manager.holders() if isinstance(manager, JournalCheckpointManager) else {}


def remaining(holders: Callable[[], dict[int, str]], patience_s: float) -> dict[int, str]:
    """The holders that are left when all are gone, or so many seconds later."""
    until = time.monotonic() + patience_s
    while (found := holders()) and time.monotonic() < until:
        time.sleep(_AGAIN_S)
    return found


def deployer(path: Path) -> str:
    """The process that holds the lock of a deployment, since when."""
    try:
        about = json.loads(path.read_text())
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["since_ms"] / 1000))
        return f"process {about['process']} on {about['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
