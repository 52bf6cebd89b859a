"""Deployments of a job: the lock or lease that one holds while at work, and the watch for its process.

Where the checkpoints lie in a directory, a deployment holds a lock beside them, between its rounds, too.
Where they are in a Kafka, the process that deploys or runs the job holds a lease.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from contextlib import AbstractContextManager, closing, nullcontext
from functools import cache
from pathlib import Path

from streambench.checkpoint.api import CheckpointManager
from streambench.config import Config
from streambench.errors import CheckpointError, StreambenchError
from streambench.fsync import temporary_beside
from streambench.job.running import (
    DEPLOYMENT_LOCK,
    IfRunning,
    LockRecord,
    check_leases,
    check_not_running,
    deployer,
    holding_process,
    known_leases,
    running_error,
)
from streambench.job.starting import await_lease, turn_to_start
from streambench.locks import Held, has_holder, is_held_elsewhere, is_locked
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.process_identity import is_stopped

log = logging.getLogger(__name__)

_GLANCE_S = 0.2
_GONE_S = 2.0
# A deployment that is taken over looks at its lock once a second, and its containers are killed within 10 s.
_ENDS_WITHIN_S = 30.0
# A lease that the broker has ended, of a process that lives, is there again within seconds: 15 s of absence.
_ABSENT_LOOKS = 7
_LOOK_S = 2.5
_NEWER_S = 5.0
# Of file systems that have no locks.
_WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class DeploymentLock:
    """The lock, or the lease, of the deployments of one job, and the check that no container of it is at
    work. ``leased_as``: the name of the lease; empty where it has none."""

    def __init__(self, config: Config, job: str, if_running: IfRunning) -> None:
        self._config = config
        self._job = job
        self._takes_over = if_running == "take-over"
        self._held: Held | None = None
        self._path_held: Path | None = None
        self._leases: CheckpointManager | None = None
        self.leased_as = ""

    def acquire(self) -> bool:
        """Hold the job from now on, and look for others only then: of two that begin at one moment one is
        refused. True where it was taken over from another deployment, which has ended by then or gets no
        more time. Raises JobRunningError as ``check``, CheckpointError where the lock cannot be had, and then
        holds no more than before."""
        was_held = self._is_held
        try:
            with self._turn_to_start():
                former = self._take()
                self.check()
        except BaseException:
            if not was_held:
                self.release()  # a service that tries again later must not keep others away until then
            raise
        if former is None:
            return False
        former.await_end(self._job)
        return True

    def taken_over_by(self) -> str:
        """The process that has taken the lock over from this one; empty where there is none."""
        path = self._path_held
        if self._held is None or path is None or self._held.is_of(path):
            return ""
        return deployer(path) if path.exists() else ""

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

    def _take(self) -> _Former | None:
        """Hold the lock or a lease; the former holder, where there is one to be taken over."""
        if self._is_held:
            return None
        path = self._path()
        if path is None:
            self._take_lease()
            return None
        self._path_held, former = path, None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._held = _locked(path)
                self._held.write(LockRecord.of_this_process())
            except BlockingIOError:
                if not self._takes_over:
                    raise running_error(
                        self._job, f"is being deployed by {deployer(path)}", "deploy"
                    ) from None
                former = _Former(path)
                self._held = _put_in_place(path)
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise CheckpointError(
                    f"{self._job}: its deployment cannot hold {path}, which keeps others away: "
                    f"{error.strerror or error}; the directory of its checkpoints must be one that may be "
                    "written to, with space left"
                ) from error
            _warn_without_locks(self._job, path, error.strerror)
            return None
        return former

    @property
    def lock_path(self) -> str:
        """The file whose lock shows that this deployment lives; empty where it has none."""
        return "" if self._held is None else str(self._path_held)

    @property
    def holders(self) -> list[str]:
        """This deployment as the history names it; empty where it holds nothing."""
        if self.leased_as:
            return [self.leased_as]
        record = LockRecord.read(Path(self.lock_path)) if self.lock_path else None
        return [] if record is None else [str(record)]

    @property
    def is_visible(self) -> bool:
        """True where others see that the lock is held."""
        return self._held is not None and self._path_held is not None and is_locked(self._path_held)

    @property
    def directory(self) -> Path | None:
        """The directory of the job's checkpoints; None where they are elsewhere, or it has no locks."""
        return Path(self.lock_path).parent if self.lock_path else None

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


@cache
def _warn_without_locks(job: str, path: Path, reason: str) -> None:
    log.warning(
        "%s: %s cannot be locked (%s): other starts of the job do not see this deployment", job, path, reason
    )


class _Former:
    """The holder of a lock whose file is about to be replaced. It sees that and ends."""

    def __init__(self, path: Path) -> None:
        self._who = deployer(path)
        self._process = holding_process(path)
        self._file = path.open("rb")

    def await_end(self, job: str) -> None:
        """Return when it has ended, or has not within half a minute: its containers are fenced then."""
        until = time.monotonic() + _ENDS_WITHIN_S
        with self._file:
            if not self._is_at_work():
                return
            log.warning("%s: taken over from %s; waiting for its end", job, self._who)
            while self._is_at_work():
                if time.monotonic() >= until:
                    text = "%s: %s has not ended; its containers stop at their next commit"
                    log.warning(text, job, self._who)
                    return
                time.sleep(_GLANCE_S)

    def _is_at_work(self) -> bool:
        """False where it does not hold its lock any more, or stands still."""
        if self._process is not None and is_stopped(*self._process):
            return False
        return is_held_elsewhere(self._file.fileno())


def _put_in_place(path: Path) -> Held:
    """A lock in the place of one that another process holds, from which that one sees that it has lost
    it."""
    with temporary_beside(path) as new:
        held = Held.locked(new)
        try:
            held.write(LockRecord.of_this_process())
            new.replace(path)
        except BaseException:
            held.release()
            raise
    return held


def _locked(path: Path) -> Held:
    """The lock of a file. Raises as ``Held.locked``. A look at a lock takes it for a moment: that is waited
    for."""
    until = time.monotonic() + _GLANCE_S
    while True:
        try:
            held = Held.locked(path)
            if held.is_of(path):
                return held
            held.release()  # it was replaced between its opening and its locking
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(_GLANCE_S / 20)


class DriverWatch:
    """Looks if the process that deploys a container is gone. Spark Connect goes on with the job of a client
    that was killed, to its end. This one looks at nothing, for containers that die with the process."""

    def is_gone(self) -> bool:
        """True where it is known to be gone. Only answers count: a directory out of sight is no proof, nor is
        a broker that is away."""
        return False

    def reason(self, host: str) -> str:
        """In words, for the start of a sentence, why it counts as gone on this host."""
        return "the process that deployed the job has ended"

    def close(self) -> None:
        """Look no more."""


class LockWatch(DriverWatch):
    """Looks at the lock of the deployment.

    ``is_visible``: others see the lock, so that a free one counts from the beginning. Else it must have been
    seen: a file system that does not show the locks of other machines is no proof."""

    def __init__(self, lock_path: str, *, is_visible: bool = False) -> None:
        self._path = Path(lock_path)
        self._is_visible = is_visible
        self._was_seen = False
        self._free_since: float | None = None
        self.is_gone()

    def is_gone(self) -> bool:
        """True once the lock has been free for some seconds."""
        is_held = self._is_held()
        self._was_seen = self._was_seen or is_held is True
        if is_held is not False or not (self._was_seen or self._is_visible):
            self._free_since = None
            return False
        now = time.monotonic()
        self._free_since = self._free_since or now
        return now - self._free_since >= _GONE_S

    def reason(self, host: str) -> str:
        """In words, also that this host may not see the lock, where it never was seen here."""
        ended = f"{super().reason(host)} ({self._path} is not locked on {host})"
        if self._was_seen:
            return ended
        return (
            f"{ended}, or {host} does not see locks that it holds on another machine. Mount "
            f"{self._path.parent} with locks that all machines see, as NFS does without nolock and "
            "local_lock, or keep the checkpoints in Kafka"
        )

    def _is_held(self) -> bool | None:
        """True where the lock is held; None where that is not known."""
        try:
            return has_holder(self._path)
        except OSError as error:
            log.debug("it is not known if the process that deploys the job lives: %s", error)
            return None


class LeaseWatch(DriverWatch):
    """Looks at the lease of the deployment, on a thread of its own: a broker may take long to answer.

    The deployment has seen its lease before it started containers."""

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


class GenerationWatch:
    """Looks for newer generations of a job whose deployment holds a lease, on a thread of its own.

    Where there is no lock that another start would take over, nothing else shows one between two rounds."""

    def __init__(self, config: Config, job: str) -> None:
        self._manager = checkpoint_manager(config, job)
        self._first: int | None = None
        self._last = 0
        self._ended = threading.Event()
        threading.Thread(target=self._look, name="generation-watch", daemon=True).start()

    def has_newer(self, generation: int) -> bool:
        """True where one was opened behind this one, the last that the deployment has opened. Where that is
        0, the first one seen counts. A broker that is away is no proof."""
        return self._first is not None and self._last > (generation or self._first)

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _look(self) -> None:
        with closing(self._manager):
            while not self._ended.is_set():
                try:
                    last = self._manager.last_generation()
                except StreambenchError as error:
                    log.debug("it is not known if a newer start has begun: %s", error)
                else:
                    self._last = 0 if last is None else last.number
                    self._first = self._last if self._first is None else self._first
                self._ended.wait(_NEWER_S)


def is_being_deployed(directory: Path) -> bool:
    """True where a deployment of the job with this directory is at work."""
    return is_locked(directory / DEPLOYMENT_LOCK)
