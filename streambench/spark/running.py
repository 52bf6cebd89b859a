"""Other starts of the same job: a deployment would end them at their last commit, and asks first.

A deployment holds a lock beside the job's checkpoints, between its rounds, too; containers hold their claims.
Both are known only where the checkpoints lie in a directory. A Kafka does not say who is at work.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError
from streambench.locks import Held, is_locked
from streambench.planning.checkpoint_managers import checkpoint_manager

IfRunning = Literal["refuse", "take-over"]

_FILE = "deployment.lock"
# Containers of a driver that was killed live a little longer than it.
_PATIENCE_S = 5.0
_AGAIN_S = 0.1
_GONE_S = 2.0


class JobRunningError(StreambenchError):
    """The job runs already, and was not to be taken over. Nothing was started or stopped."""


def check_if_running(if_running: str) -> None:
    """Raise ConfigError for anything but ``refuse`` and ``take-over``."""
    if if_running not in get_args(IfRunning):
        raise ConfigError(f"if_running='{if_running}': give refuse or take-over")


class DeploymentLock:
    """The lock of the deployments of one job, and the check that no container of it is at work."""

    def __init__(self, config: Config, job: str, if_running: IfRunning) -> None:
        self._config = config
        self._job = job
        self._takes_over = if_running == "take-over"
        self._held: Held | None = None

    def check(self) -> None:
        """Raise JobRunningError where another deployment or a container is at work, unless it is to be taken
        over. Containers get a moment to end."""
        if self._takes_over:
            return
        path = self._path()
        if path is not None and self._held is None and is_locked(path):
            raise self._error(f"is being deployed by {_holder(path)}")
        if holders := remaining(lambda: container_holders(self._config, self._job), _PATIENCE_S):
            number, process = min(holders.items())
            more = f", and {len(holders) - 1} more" if len(holders) > 1 else ""
            raise self._error(f"is running: {process} has container {number}{more}")

    def acquire(self) -> None:
        """Hold the lock from now on. Raises JobRunningError as ``check``."""
        path = self._path()
        if path is None or self._held is not None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._held = Held.locked(path)
        except BlockingIOError:
            if not self._takes_over:
                raise self._error(f"is being deployed by {_holder(path)}") from None
        except OSError:
            return  # a file system without locks
        else:
            about = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since_ms": time.time_ns() // 10**6,
            }
            self._held.write(json.dumps(about).encode())

    @property
    def lease(self) -> str:
        """The file whose lock shows that this deployment lives; empty where it has none."""
        path = self._path() if self._held is not None else None
        return "" if path is None else str(path)

    @property
    def directory(self) -> Path | None:
        """The directory of the job's checkpoints; None where they are elsewhere, or it has no locks."""
        return Path(self.lease).parent if self.lease else None

    def release(self) -> None:
        """Leave the lock to others."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def _path(self) -> Path | None:
        manager = checkpoint_manager(self._config, self._job)
        manager.close()
        return None if manager.directory is None else manager.directory / _FILE

    def _error(self, what: str) -> JobRunningError:
        return JobRunningError(
            f"{self._job} {what}: stop that first, or deploy with --if-running take-over (if_running="
            '"take-over"), which ends it at its last commit'
        )


class DriverWatch:
    """Looks if the process that deploys a container is gone. Spark Connect goes on with the job of a
    client that was killed, to its end.

    A file system that does not show the locks of other machines is no proof: the lock must have been seen."""

    def __init__(self, lease: str) -> None:
        self._path = Path(lease)
        self._is_seen = bool(lease) and is_locked(self._path)
        self._free_since: float | None = None

    def is_gone(self) -> bool:
        """True once the lock was seen, and has been free for some seconds."""
        if not self._is_seen or is_locked(self._path):
            self._free_since = None
            return False
        now = time.monotonic()
        self._free_since = self._free_since or now
        return now - self._free_since >= _GONE_S


def is_being_deployed(directory: Path) -> bool:
    """True where a deployment of the job with this directory is at work."""
    return is_locked(directory / _FILE)


def container_holders(config: Config, job: str) -> dict[int, str]:
    """Per container of the last start that is at work, its process; empty where that is not known."""
    manager = checkpoint_manager(config, job)
    try:
        return manager.holders() if isinstance(manager, JournalCheckpointManager) else {}
    finally:
        manager.close()


def remaining(holders: Callable[[], dict[int, str]], patience_s: float) -> dict[int, str]:
    """The holders that are left when all are gone, or so many seconds later."""
    until = time.monotonic() + patience_s
    while (found := holders()) and time.monotonic() < until:
        time.sleep(_AGAIN_S)
    return found


def _holder(path: Path) -> str:
    try:
        about = json.loads(path.read_text())
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["since_ms"] / 1000))
        return f"process {about['process']} on {about['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
