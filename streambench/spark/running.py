"""Deployments of a job: the lock or lease that one holds while at work, and the watch for its process.

Where the checkpoints lie in a directory, a deployment holds a lock beside them, between its rounds, too.
Where they are in a Kafka, the process that deploys or runs the job holds a lease.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Protocol

from streambench.checkpoint.api import CheckpointManager, LeaseHolder
from streambench.config import Config
from streambench.errors import StreambenchError, StreamSystemError
from streambench.job.running import (
    DEPLOYMENT_LOCK,
    IfRunning,
    JobRunningError,
    check_not_running,
    deployer,
    running_error,
)
from streambench.locks import Held, is_locked
from streambench.planning.checkpoint_managers import checkpoint_manager

log = logging.getLogger(__name__)

_AGAIN_S = 0.1
_GONE_S = 2.0
# A lease that the broker has ended, of a process that lives, is there again after a moment.
_ABSENT_S = 5.0
_LOOK_S = 2.0
_SEEN_WITHIN_S = 10.0


class DeploymentLock:
    """The lock, or the lease, of the deployments of one job, and the check that no container of it is at
    work. ``leased_as``: the name of the lease; empty where it has none."""

    def __init__(self, config: Config, job: str, if_running: IfRunning) -> None:
        self._config = config
        self._job = job
        self._takes_over = if_running == "take-over"
        self._held: Held | None = None
        self._leases: CheckpointManager | None = None
        self._lease_s = 0.0
        self._is_warned = False
        self.leased_as = ""

    def check(self) -> None:
        """Raise JobRunningError where another deployment or a container is at work, unless it is to be taken
        over. Containers get a moment to end."""
        if self._takes_over:
            return
        self._refuse_others()
        check_not_running(self._config, self._job, "deploy", is_deploying=self._held is not None)

    def acquire(self) -> None:
        """Hold the lock from now on. Raises JobRunningError as ``check``."""
        path = self._path()
        if path is None:
            self._take_lease()
            return
        if self._held is not None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._held = Held.locked(path)
        except BlockingIOError:
            if not self._takes_over:
                raise running_error(
                    self._job, f"is being deployed by {deployer(path)}", "deploy"
                ) from None
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
        leases, self._leases, self.leased_as = self._leases, None, ""
        if leases is not None:
            leases.close()

    def _take_lease(self) -> None:
        """Hold a lease that others see. Two that begin at the same moment both see the other, and end."""
        if self._leases is not None:
            return
        self._leases = checkpoint_manager(self._config, self._job)
        self.leased_as = self._leases.take_lease("deploy")
        if self.leased_as:
            self._await_lease()
        if not self._takes_over:
            try:
                self._refuse_others()
            except JobRunningError:
                self.release()  # a service that tries again later must not keep others away until then
                raise

    def _await_lease(self) -> None:
        """Wait until others see the lease."""
        until = time.monotonic() + _SEEN_WITHIN_S
        while (holders := self._lease_holders()) is not None:
            if any(each.name == self.leased_as for each in holders):
                return
            if time.monotonic() >= until:
                log.warning(
                    "%s: other deployments do not see this one: its lease was not taken within %g s",
                    self._job,
                    _SEEN_WITHIN_S,
                )
                return
            time.sleep(_AGAIN_S)

    def _refuse_others(self) -> None:
        others = [each for each in self._lease_holders() or () if each.name != self.leased_as]
        if others:
            doing = "is being deployed" if others[0].work == "deploy" else "is running: it is run"
            raise self._error(f"{doing} by {others[0]}", self._lease_s)

    def _lease_holders(self) -> list[LeaseHolder] | None:
        """The holders of leases, None where that cannot be found out. That must not keep the job from being
        deployed: a user without the right to see groups may still deploy."""
        manager = self._leases or checkpoint_manager(self._config, self._job)
        self._lease_s = manager.lease_s
        try:
            return manager.lease_holders()
        except StreamSystemError as error:
            level = logging.DEBUG if self._is_warned else logging.WARNING
            self._is_warned = True
            log.log(level, "%s: it is not known if another process works for it: %s", self._job, error)
            return None
        finally:
            if manager is not self._leases:
                manager.close()

    def _path(self) -> Path | None:
        manager = checkpoint_manager(self._config, self._job)
        manager.close()
        return None if manager.directory is None else manager.directory / DEPLOYMENT_LOCK

    def _error(self, what: str, lease_s: float = 0.0) -> JobRunningError:
        killed = f"; if it was killed, its lease ends {lease_s:.0f} s after its death" if lease_s else ""
        return running_error(self._job, what, "deploy", killed)


class DriverWatch(Protocol):
    """Looks if the process that deploys a container is gone. Spark Connect goes on with the job of a
    client that was killed, to its end."""

    def is_gone(self) -> bool:
        """True where it is known to be gone."""

    def close(self) -> None:
        """Look no more."""


class LockWatch:
    """Looks at the lock of the deployment. A file system that does not show the locks of other machines is no
    proof: the lock must have been seen."""

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

    def close(self) -> None:
        """Have nothing to close."""


class LeaseWatch:
    """Looks at the lease of the deployment, on a thread of its own: a broker may take long to answer.

    Only answers count: a broker that is away is no proof, and the lease must have been seen."""

    def __init__(self, config: Config, job: str, name: str) -> None:
        self._manager = checkpoint_manager(config, job)
        self._name = name
        self._gone, self._ended = threading.Event(), threading.Event()
        threading.Thread(target=self._look, name="lease-watch", daemon=True).start()

    def is_gone(self) -> bool:
        """True once the lease was seen, and has been absent for some seconds."""
        return self._gone.is_set()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _look(self) -> None:
        is_seen, absent_since = False, None
        with closing(self._manager):
            while not self._gone.is_set() and not self._ended.is_set():
                is_there, now = self._is_there(), time.monotonic()
                is_seen = is_seen or is_there is True
                absent_since = (absent_since or now) if is_seen and is_there is False else None
                if absent_since is not None and now - absent_since >= _ABSENT_S:
                    self._gone.set()
                self._ended.wait(_LOOK_S)

    def _is_there(self) -> bool | None:
        """True where the lease is there; None where that is not known."""
        try:
            return any(each.name == self._name for each in self._manager.lease_holders())
        except StreambenchError as error:
            log.debug("it is not known if the process that deploys the job lives: %s", error)
            return None


def is_being_deployed(directory: Path) -> bool:
    """True where a deployment of the job with this directory is at work."""
    return is_locked(directory / DEPLOYMENT_LOCK)
