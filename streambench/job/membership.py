"""Membership: processes that share the tasks of one job come and go, and agree on who has what.

In the directory ``members`` of the job each member has a file that it keeps locked (so that its death is seen at once) and touches (so that
it is missed when it hangs). The one that came first is the coordinator and sees to the *rounds*. A round begins when a member has come or
gone: all of them commit and let go of their tasks, and say so. When the last has (or did not in time, and is left out), the coordinator
opens a generation of the job with the new shares, which fences whoever is late, and the round is settled. Everything is a file that is
replaced as a whole; a coordinator that dies leaves nothing that another one could not go on from.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from streambench.errors import CheckpointError
from streambench.held import Held
from streambench.planning.model import JobModel

Settle = Callable[[list[str], Mapping[str, list[str]]], "Shares | None"]
"""Opens a generation in which these members have their shares; None where that cannot be done just now. Given what each member had
before."""

_Version = tuple[int, int, int]
_TOUCHES = 5  # within the time after which one counts as dead


class Shares(Struct, frozen=True):
    """What became of a round: the ``generation``, its ``model``, and per member its container (none for those that only stand by)."""

    generation: int
    model: JobModel
    containers: dict[str, int]

    def tasks(self) -> dict[str, list[str]]:
        """The tasks of each member."""
        dealt = {container.number: [task.name for task in container.tasks] for container in self.model.containers}
        return {member: dealt[number] for member, number in self.containers.items()}


class Round(Struct, frozen=True):
    """A round: its number and members, those that were ``late`` for it, and, once it is settled, the ``shares``; ``former``: the tasks
    that members had before it."""

    number: int
    members: list[str]
    began: float
    former: dict[str, list[str]]
    late: list[str] = []
    shares: Shares | None = None


class MemberInfo(Struct, frozen=True):
    """A member as it presents itself."""

    name: str
    process: int
    host: str
    since: float

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Membership:
    """One member of the group of a job, whose own directory is ``directory``. ``tick`` is to be called several times per second, on any
    one thread; everything else may be called from others."""

    def __init__(self, directory: Path, *, session_s: float, rebalance_s: float) -> None:
        """``session_s``: who is silent for so long is no member any more; ``rebalance_s``: how long others are waited for."""
        self._directory = directory / "members"
        self._session_s = session_s
        self._rebalance_s = rebalance_s
        self.name = uuid.uuid4().hex[:12]
        self._handle: Held | None = None
        self._last: tuple[_Version, Round] | None = None

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
        """Be no member any more; the others see it at once."""
        for name in (f"{self.name}.member", f"{self.name}.ready"):
            (self._directory / name).unlink(missing_ok=True)
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.release()

    def ready(self, number: int) -> None:
        """Say that this member holds nothing, as round ``number`` wants it."""
        self._write(f"{self.name}.ready", str(number).encode())

    def round(self) -> Round | None:
        """The last round, the same object as long as it is the same; None before the first. Raises CheckpointError where it cannot be
        read."""
        try:
            found = (self._directory / "round.json").stat()
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

    def tick(self, settle: Settle) -> None:
        """Show that this one is alive and, as the coordinator, see to the rounds."""
        self._touch()
        try:
            # One that wakes up from a long sleep may still take itself for the first.
            coordinator = Held.locked(self._directory / ".coordinator")
        except BlockingIOError:
            return
        try:
            present = [each.name for each in living(self._directory, self._session_s)]
            if present[:1] == [self.name]:
                self._coordinate(present, settle)
        finally:
            coordinator.release()

    def _coordinate(self, present: list[str], settle: Settle) -> None:
        current = self.round()
        if current is None:
            current = self._begin(1, present, {}, [])
        joined = [name for name in present if name not in current.late or self._is_ready(name, current.number)]
        if joined != current.members:
            former = current.shares.tasks() if current.shares is not None else current.former
            # Who is late is not waited for once more.
            late = [name for name in current.late if name in present and name not in joined]
            current = self._begin(current.number + 1, joined, former, late)
        if current.shares is None and current.members:
            waiting = [name for name in current.members if not self._is_ready(name, current.number)]
            in_time = [name for name in current.members if name not in waiting]
            if not in_time or (waiting and time.time() - current.began < self._rebalance_s):
                return
            with self._touching():
                shares = settle(in_time, current.former)
            if shares is None:
                return
            late = [*(name for name in current.late if name in present), *waiting]
            self._put(msgspec.structs.replace(current, members=in_time, late=late, shares=shares))

    def _begin(self, number: int, members: list[str], former: dict[str, list[str]], late: list[str]) -> Round:
        begun = Round(number, members, time.time(), former, late)
        self._put(begun)
        return begun

    def _touch(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._path(self.name))

    @contextlib.contextmanager
    def _touching(self) -> Iterator[None]:
        """Be alive to others however long it takes what is done meanwhile: it asks systems, which may be slow."""
        done = threading.Event()

        def touch() -> None:
            while not done.wait(self._session_s / _TOUCHES):
                self._touch()

        thread = threading.Thread(target=touch, name="membership is alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _is_ready(self, name: str, number: int) -> bool:
        try:
            return int((self._directory / f"{name}.ready").read_text() or 0) >= number
        except (FileNotFoundError, ValueError):
            return False

    def _put(self, what: Round) -> None:
        self._write("round.json", msgspec.json.encode(what))

    def _write(self, name: str, data: bytes) -> None:
        temporary = self._directory / f".{name}.{self.name}"
        temporary.write_bytes(data)
        os.replace(temporary, self._directory / name)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.member"


def read_round(directory: Path) -> Round | None:
    """The last round of the members in a directory, None before the first. Raises CheckpointError."""
    file = directory / "round.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=Round)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{file}: who has which tasks cannot be read ({error}); delete it where no member runs") from None


def living(directory: Path, session_s: float) -> list[MemberInfo]:
    """The members in a directory that are alive, in the order in which they came. The files of the dead are removed."""
    found = []
    for file in directory.glob("*.member"):
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            if _is_locked(file):
                if time.time() - file.stat().st_mtime <= session_s:
                    found.append(msgspec.json.decode(file.read_bytes(), type=MemberInfo))
            else:
                file.with_suffix(".ready").unlink(missing_ok=True)
                file.unlink(missing_ok=True)
    return sorted(found, key=lambda each: (each.since, each.name))


def _is_locked(file: Path) -> bool:
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
