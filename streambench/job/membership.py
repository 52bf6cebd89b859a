"""Membership: processes that share the tasks of one job come and go, and agree on their shares.

In the directory ``members`` of the job each member has a file. It keeps the file locked, so that its death is
noticed at once, and touches it, so that a hang is noticed. The member that came first is the coordinator,
which runs the *rounds*.

A round begins when a member has come or gone: all members commit, release their tasks, and report that. The
last one may have reported, or late members are excluded once the time is over. Then the coordinator opens a
generation of the job with the new shares. That fences late members and completes the round.

Every file is replaced as a whole: a new coordinator can continue from whatever the last one left. A
coordinator that is frozen is replaced like any silent member. It notices that before it opens a generation,
and the round that it was about to put in place goes with its temporary file.

Clocks of different machines are never compared. A member is silent when its file has not changed for a time
that the observer measures by its own clock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from streambench.errors import CheckpointError, LockLostError
from streambench.locks import Held, LeasedLock, Sightings, beating, has_holder
from streambench.planning.model import JobModel

Rebalancer = Callable[[list[str], Mapping[str, list[str]]], "Assignment | None"]
"""Opens a generation in which these members have their shares; None where that cannot be done just now. Given
what each member had before."""

log = logging.getLogger(__name__)

_Version = tuple[int, int, int]
_ROUND = "round.json"


class Assignment(Struct, frozen=True):
    """Outcome of a round: the ``generation``, its ``model``, and per member its container (none for those
    that only stand by)."""

    generation: int
    model: JobModel
    containers: dict[str, int]

    def tasks(self) -> dict[str, list[str]]:
        """The tasks of each member."""
        dealt = {
            container.number: [task.name for task in container.tasks] for container in self.model.containers
        }
        return {member: dealt[number] for member, number in self.containers.items()}


class Rebalance(Struct, frozen=True):
    """A round: its number and members, and those that were ``late`` for it. Once it is complete, it has the
    ``shares``. ``former``: the tasks that members had before it."""

    number: int
    members: list[str]
    began: float
    former: dict[str, list[str]]
    late: list[str] = []
    shares: Assignment | None = None


class MemberInfo(Struct, frozen=True):
    """A member as it presents itself."""

    name: str
    process: int
    host: str
    since: float

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Membership:
    """One member of the group of a job, whose own directory is ``directory``. ``tick`` is to be called
    several times per second, on any one thread; everything else may be called from others."""

    def __init__(self, directory: Path, *, session_s: float, rebalance_s: float) -> None:
        """``session_s``: a process that is silent for so long is no member any more; ``rebalance_s``: how
        long others are waited for."""
        self._directory = directory / "members"
        self._session_s = session_s
        self._rebalance_s = rebalance_s
        self.name = uuid.uuid4().hex[:12]
        self._handle: Held | None = None
        self._last: tuple[_Version, Rebalance] | None = None
        self._sightings = Sightings()
        path = self._directory / ".coordinator"
        self._coordinating = LeasedLock(path, f"the members in {self._directory}", session_s, self._take_over)

    def join(self) -> None:
        """Become a member."""
        self._directory.mkdir(parents=True, exist_ok=True)
        info = MemberInfo(self.name, os.getpid(), socket.gethostname(), time.time())
        # Locked before it can be seen: a file without a lock is that of a dead one.
        hidden = self._directory / f".{self.name}"
        self._handle = Held.locked(hidden)
        self._handle.write(msgspec.json.encode(info))
        os.replace(hidden, self._path(self.name))

    def leave(self) -> None:
        """End the membership; the others notice it at once."""
        for name in (f"{self.name}.member", f"{self.name}.ready"):
            (self._directory / name).unlink(missing_ok=True)
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.release()

    def ready(self, number: int) -> None:
        """Report that this member holds no tasks, as round ``number`` requires."""
        self._write(f"{self.name}.ready", str(number).encode())

    def round(self) -> Rebalance | None:
        """The last round, the same object as long as it is the same; None before the first. Raises
        CheckpointError where it cannot be read."""
        try:
            found = (self._directory / _ROUND).stat()
        except FileNotFoundError:
            return None
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        last = self._last
        if last is None or last[0] != version:
            # Read after the look at its version: what is newer is read once more.
            read = read_round(self._directory)
            if read is None:
                return None
            last = self._last = (version, read)
        return last[1]

    def tick(self, rebalance: Rebalancer) -> None:
        """Show that this one is alive and, as the coordinator, run the rounds."""
        self._touch()
        present = [each.name for each in living(self._directory, self._session_s, self._sightings)]
        # One that wakes up from a long sleep may still take itself for the first.
        if present[:1] != [self.name] or not self._coordinating.try_acquire():
            return
        try:
            present = [each.name for each in living(self._directory, self._session_s, self._sightings)]
            if present[:1] == [self.name]:
                self._coordinate(present, rebalance)
        except LockLostError as error:
            log.warning("%s", error)
        finally:
            self._coordinating.release()

    def check_coordinator(self) -> None:
        """Raise LockLostError where another member has taken over as the coordinator."""
        self._coordinating.check()

    def _take_over(self) -> None:
        """Take from a frozen coordinator what it was about to put in place."""
        for temporary in self._directory.glob(f".{_ROUND}.*"):
            temporary.unlink(missing_ok=True)

    def _coordinate(self, present: list[str], rebalance: Rebalancer) -> None:
        current = self.round()
        if current is None:
            current = self._begin(1, present, {}, [])
        joined = [
            name for name in present if name not in current.late or self._is_ready(name, current.number)
        ]
        if joined != current.members:
            former = current.shares.tasks() if current.shares is not None else current.former
            # A round does not wait once more for a member that was late.
            late = [name for name in current.late if name in present and name not in joined]
            current = self._begin(current.number + 1, joined, former, late)
        if current.shares is None and current.members:
            waiting = [name for name in current.members if not self._is_ready(name, current.number)]
            in_time = [name for name in current.members if name not in waiting]
            # By this member's own clock: the round may have begun on another machine.
            waited = self._sightings.unchanged_s(_ROUND, current.number)
            if not in_time or (waiting and waited < self._rebalance_s):
                return
            # Slow work, such as questions to systems, must not make this member seem dead.
            touching, coordinating = self._touch, self._coordinating.beat
            with beating(touching, self._session_s), beating(coordinating, self._session_s):
                shares = rebalance(in_time, current.former)
            if shares is None:
                return
            late = [*(name for name in current.late if name in present), *waiting]
            self._put(msgspec.structs.replace(current, members=in_time, late=late, shares=shares))

    def _begin(
        self, number: int, members: list[str], former: dict[str, list[str]], late: list[str]
    ) -> Rebalance:
        begun = Rebalance(number, members, time.time(), former, late)
        self._put(begun)
        return begun

    def _touch(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._path(self.name))

    def _is_ready(self, name: str, number: int) -> bool:
        try:
            return int((self._directory / f"{name}.ready").read_text() or 0) >= number
        except (FileNotFoundError, ValueError):
            return False

    def _put(self, what: Rebalance) -> None:
        self._write(_ROUND, msgspec.json.encode(what), self.check_coordinator)

    def _write(self, name: str, data: bytes, check: Callable[[], None] | None = None) -> None:
        temporary = self._directory / f".{name}.{self.name}"
        temporary.write_bytes(data)
        if check is not None:
            check()
        try:
            os.replace(temporary, self._directory / name)
        except FileNotFoundError:
            if check is not None:
                check()
            raise

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.member"


def read_round(directory: Path) -> Rebalance | None:
    """The last round of the members in a directory, None before the first. Raises CheckpointError."""
    file = directory / _ROUND
    try:
        return msgspec.json.decode(file.read_bytes(), type=Rebalance)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise CheckpointError(
            f"{file}: who has which tasks cannot be read ({error}); delete it where no member runs"
        ) from None


def living(directory: Path, session_s: float, sightings: Sightings | None = None) -> list[MemberInfo]:
    """The members in a directory that are alive, in the order in which they came. The files of the dead are
    removed.

    ``sightings``: of the one that looks, over and over; without any, the time of a file is compared with this
    machine's."""
    found = []
    for file in directory.glob("*.member"):
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            if has_holder(file):
                changed = file.stat().st_mtime_ns
                silent = (
                    time.time() - changed / 1e9
                    if sightings is None
                    else sightings.unchanged_s(file.name, changed)
                )
                if silent <= session_s:
                    found.append(msgspec.json.decode(file.read_bytes(), type=MemberInfo))
            else:
                file.with_suffix(".ready").unlink(missing_ok=True)
                file.unlink(missing_ok=True)
    return sorted(found, key=lambda each: (each.since, each.name))
