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
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Protocol

from streambench.checkpoint.api import CheckpointManager
from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.job.running import (
    DEPLOYMENT_LOCK,
    IfRunning,
    check_leases,
    check_not_running,
    deployer,
    known_leases,
    running_error,
)
from streambench.job.starting import await_lease, turn_to_start
from streambench.locks import Held, is_locked
from streambench.planning.checkpoint_managers import checkpoint_manager

log = logging.getLogger(__name__)

_GLANCE_S = 0.2
_GONE_S = 2.0
# A lease that the broker has ended, of a process that lives, is there again within seconds: 15 s of absence.
_ABSENT_LOOKS = 7
_LOOK_S = 2.5


class DeploymentLock:
    """The lock, or the lease, of the deployments of one job, and the check that no container of it is at
    work. ``leased_as``: the name of the lease; empty where it has none."""

    def __init__(self, config: Config, job: str, if_running: IfRunning) -> None:
        self._config = config
        self._job = job
        self._takes_over = if_running == "take-over"
        self._held: Held | None = None
        self._leases: CheckpointManager | None = None
        self.leased_as = ""

    def acquire(self) -> None:
        """Hold the job from now on, and look for others only then: of two that begin at one moment one is
        refused. Raises JobRunningError as ``check``, and then holds no more than before."""
        was_held = self._is_held
        try:
            with self._turn_to_start():
                self._take()
                self.check()
        except BaseException:
            if not was_held:
                self.release()  # a service that tries again later must not keep others away until then
            raise

    def check(self) -> None:
        """Raise JobRunningError where another deployment or a container is at work, unless it is to be taken
        over. Containers get a moment to end."""
        if self._takes_over:
            return
        if self._leases is not None:
            check_leases(self._leases, self._config, self._job, "deploy", own=self.leased_as)
        check_not_running(self._config, self._job, "deploy", is_deploying=self._is_held)

    @property
    def _is_held(self) -> bool:
        return self._held is not None or self._leases is not None

    def _take(self) -> None:
        if self._is_held:
            return
        path = self._path()
        if path is None:
            self._take_lease()
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held = _locked(path)
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

    def seen_lease(self) -> str:
        """The name of the lease where others see it now; else empty."""
        holders = known_leases(self._leases, self._job) if self._leases is not None else None
        return self.leased_as if any(each.name == self.leased_as for each in holders or ()) else ""

    def release(self) -> None:
        """Leave the lock to others."""
        if self._held is not None:
            self._held.release()
            self._held = None
        leases, self._leases, self.leased_as = self._leases, None, ""
        if leases is not None:
            leases.close()

    def _take_lease(self) -> None:
        """Hold a lease that others see."""
        self._leases = checkpoint_manager(self._config, self._job)
        self.leased_as = self._leases.take_lease("deploy")
        await_lease(self._leases, self._job, self.leased_as)

    def _turn_to_start(self) -> AbstractContextManager[object]:
        """The lock of starts: a run that begins at this moment is seen then, and sees this deployment."""
        path = None if self._is_held else self._path()
        if path is None:
            return nullcontext()
        return turn_to_start(path.parent, self._job, "deploy", self.check, refuses=not self._takes_over)

    def _path(self) -> Path | None:
        manager = checkpoint_manager(self._config, self._job)
        manager.close()
        return None if manager.directory is None else manager.directory / DEPLOYMENT_LOCK


def _locked(path: Path) -> Held:
    """The lock of a file. Raises as ``Held.locked``. A look at a lock takes it for a moment: that is waited
    for."""
    until = time.monotonic() + _GLANCE_S
    while True:
        try:
            return Held.locked(path)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(_GLANCE_S / 20)


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

    The deployment has seen its lease before it started containers. Only answers count: a broker that is away
    is no proof."""

    def __init__(self, config: Config, job: str, name: str) -> None:
        self._manager = checkpoint_manager(config, job)
        self._name = name
        self._gone, self._ended = threading.Event(), threading.Event()
        threading.Thread(target=self._look, name="lease-watch", daemon=True).start()

    def is_gone(self) -> bool:
        """True once the lease was absent in several answers, one after the other."""
        return self._gone.is_set()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _look(self) -> None:
        absent = 0
        with closing(self._manager):
            while not self._ended.is_set():
                absent = absent + 1 if self._is_there() is False else 0
                if absent >= _ABSENT_LOOKS:
                    self._gone.set()
                    return
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
