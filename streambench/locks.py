"""Locks: files that one process at a time holds, the leases on them, and what is not for forked processes.

A lock is one of the kernel's (``flock``): it ends with the process that has it. A process that is *frozen*
(stopped, or waiting for a disk that does not answer) keeps it. So a lock that others wait for is a
``LeasedLock``. A holder that shows no sign of life for the time of its lease is replaced, and learns that
before it does anything more.

A forked child (a worker of multiprocessing, for example) has all open files of its parent. A lock would stay
taken, and a port in use, for as long as the child lives, though the process that took them is dead. So the
child closes them first of all.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from streambench.errors import LockLostError

log = logging.getLogger(__name__)

_RECORD = 1024
_MARK = 1  # of the first byte
_UNRECOVERED, _RECOVERED = b"?", b"!"
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02
_REPORT_AFTER_S = 2.0
_REPORT_EVERY_S = 30.0
# What passes unseen between two looks counts no more than this: the one that waits may have been frozen
# itself.
_LONGEST_LOOK_S = 1.0
_BEATS = 5  # within a lease
_LONGEST_COMMAND = 120


class _Closes(Protocol):
    def close(self) -> object: ...


_C = TypeVar("_C", bound=_Closes)

_ours: WeakSet[_Closes] = WeakSet()
# No fork comes between the opening of a file and the note of it.
_noting = threading.RLock()


def not_for_children(what: _C) -> _C:
    """Have this (a socket, for example) closed in every process that is forked from this one. ``close`` is
    called there; it must leave alone what the parent does with it."""
    with _noting:
        _ours.add(what)
    return what


class Held:
    """The lock that a file stands for, until ``release`` or the end of this process. Children do not have
    it."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor: int | None = descriptor
        self._path = path

    @classmethod
    def locked(
        cls, path: Path, *, create: bool = True, flags: int = os.O_RDWR, is_shared: bool = False
    ) -> Held:
        """Take the lock; the file is created if need be, and if it may be. ``flags``: how it is opened.
        ``is_shared``: with all others that share it. Raises BlockingIOError where another one has it, and
        other OSErrors."""
        with _noting:
            opened = os.open(path, flags | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
            held = not_for_children(cls(opened, path))
        try:
            kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
            fcntl.flock(held.descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            held.close()
            raise
        return held

    @property
    def descriptor(self) -> int:
        assert self._descriptor is not None, "this lock has been released"
        return self._descriptor

    def is_of(self, path: Path) -> bool:
        """True where it is held, and the file is the one of that name: not another one in its place."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self.descriptor), os.stat(path))
        except FileNotFoundError:
            return False

    def write(self, data: bytes) -> None:
        """Have the file say this, and nothing else. Raises OSError, which names the file."""
        try:
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, data, 0)
        except OSError as error:
            error.filename = os.fspath(self._path)
            raise

    def release(self) -> None:
        """Leave the lock to others, whatever processes have the file open."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.close()

    def close(self) -> None:
        """Drop it unreleased: it stays locked while another process has it by a fork."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def take_lock(path: Path) -> Held | None:
    """Lock a file that is there until that is released, or until the process ends; None where it cannot be
    locked."""
    try:
        return Held.locked(path, create=False)
    except OSError:
        return None


def is_locked(path: Path) -> bool:
    """Return True where a process has the lock of a file; False where that is unknown. Only for reports: it
    may change at once."""
    try:
        return has_holder(path)
    except OSError:
        return False


def has_holder(path: Path) -> bool:
    """As ``is_locked``, but raises OSError where it is unknown."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return is_held_elsewhere(handle)
    finally:
        os.close(handle)


def is_held_elsewhere(handle: int) -> bool:
    """True where a process has the lock of this open file; else it is shared with others until it is
    closed. Raises OSError where it is unknown."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


class Sightings:
    """Time for which things have not changed, by this process's own clock.

    No two machines agree on the time, so the times that files bear are compared with nothing but themselves.
    The time for which this process did not look does not count: it may have been frozen.
    """

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[Any, float, float]] = {}

    def unchanged_s(self, thing: Any, stamp: object) -> float:
        """Seconds for which ``thing`` has been seen with this stamp, without another one in between."""
        now = time.monotonic()
        before = self._seen.get(thing)
        unchanged = 0.0
        if before is not None and before[0] == stamp:
            unchanged = before[1] + min(now - before[2], _LONGEST_LOOK_S)
        self._seen[thing] = stamp, unchanged, now
        return unchanged

    def forget(self, thing: Any) -> None:
        """Begin from nothing with the next look."""
        self._seen.pop(thing, None)


class LeasedLock:
    """A lock that is taken over from a process which shows no sign of life for ``lease_s`` seconds while it
    has it.

    The lock is a file with a *successor* for each time that it was taken over: ``.lock``, ``.lock.1``,
    ``.lock.2``. Only the last one counts. A successor is created by a link, so that one process alone creates
    it, and none of these files is ever removed. A holder that was replaced therefore need only look if there
    is a successor. Each holder writes its name into the file, and a number that was never there before. Those
    that wait observe if these bytes change.

    One that was frozen may be past every look when it is replaced. So ``recover`` is called before anything
    else is done under a successor; again, if that process dies or freezes over it. It has to take away from
    the replaced one what that could still write to. For files that are put in place by a rename or a link,
    this means to remove the temporary ones. Call ``check`` between the creation of the temporary file and its
    renaming: then either the check fails or the renaming does.

    Not to be shared among threads, ``beat`` and ``check`` apart. Not reentrant.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        lease_s: float,
        recover: Callable[[], None] | None = None,
        *,
        note: str = "",
    ) -> None:
        """``what`` the lock is of, for reports; ``note``: for those that wait, instead of the process's
        name."""
        self._path = str(path)
        self._what = what
        self._lease_s = lease_s
        self._recover = recover
        self._note = note
        self._descriptor: int | None = None
        self._sightings = Sightings()
        # A beat must not write to a descriptor that was closed, and perhaps is that of another file by then.
        self._beating = threading.Lock()
        self.taken_over = False
        """The lock that is held was taken from a frozen process."""
        self._go_to(0)
        not_for_children(self)

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    @property
    def is_lost(self) -> bool:
        """Another process has taken it over since it was taken here."""
        return os.access(self._successor, os.F_OK)

    def acquire(self) -> None:
        """Take the lock, waiting for it; a wait of more than two seconds is logged, with the process that is
        waited for. Raises FileNotFoundError where its directory is not there, and what ``recover`` raises."""
        if self.try_acquire():
            return
        began = time.monotonic()
        report_after = _REPORT_AFTER_S
        pause = _SHORTEST_PAUSE_S
        while not self.try_acquire():
            waited = time.monotonic() - began
            if waited >= report_after:
                report_after = waited + _REPORT_EVERY_S
                log.warning(
                    "%s: waiting for %s, %s", self._what, self.holder() or "another process", self._terms()
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def check(self) -> None:
        """Raise LockLostError where another process has taken the lock over."""
        if os.access(self._successor, os.F_OK):
            raise self.lost()

    def lost(self) -> LockLostError:
        """The error of a process that has been replaced."""
        by = _holder(self._successor) or "another process"
        return LockLostError(
            f"{self._what}: this process showed no sign of life (it was stopped, or the disk hung) while it "
            f"held {self._current}, and was "
            f"replaced by {by}. What it was just writing there does not count; start it again"
        )

    def beat(self) -> None:
        """Show a sign of life."""
        with self._beating:
            if self._descriptor is not None:
                with contextlib.suppress(OSError):
                    os.pwritev(self._descriptor, [_next_record(self._note)], _MARK)

    def release(self) -> None:
        """Leave the lock to others."""
        if self._descriptor is not None:
            with self._beating:
                # Closing would not do where a process has been forked meanwhile, which has the file open,
                # too.
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                self.close()

    def close(self) -> None:
        """Have nothing to do with it any more, as a forked process."""
        # Without the lock of beats, which a thread of the parent may have had at the fork.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def holder(self) -> str:
        """The process that took the lock last, and when; empty where none is known."""
        while os.access(self._successor, os.F_OK):
            self._go_to(self._number + 1)
        return _holder(self._current)

    def note(self) -> str:
        """The note of the process that took the lock last; its name where it left none."""
        while os.access(self._successor, os.F_OK):
            self._go_to(self._number + 1)
        return str(_about(self._current).get("note") or _holder(self._current))

    def __enter__(self) -> LeasedLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _go_to(self, number: int) -> None:
        self._number = number
        self._current = f"{self._path}.{number}" if number else self._path
        self._successor = f"{self._path}.{number + 1}"
        self._is_recovered = number == 0

    def try_acquire(self) -> bool:
        """Take the lock if it is free, or if its holder has shown no sign of life for the time of the lease.
        These calls measure that time."""
        while True:
            create = 0 if self._number else os.O_CREAT
            try:
                descriptor = os.open(self._current, os.O_RDWR | os.O_CLOEXEC | create, 0o644)
            except FileNotFoundError:
                if not self._number:
                    raise
                self._go_to(0)  # the directory was deleted, and perhaps made again
                continue
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not os.access(self._successor, os.F_OK) and not self._succeed(descriptor):
                        return False
                    if self._descriptor is not None:
                        return True
                else:
                    if not os.access(self._successor, os.F_OK):
                        self._descriptor, descriptor = descriptor, -1
                        self.taken_over = False
                        self._begin()
                        return True
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
            self._go_to(self._number + 1)

    def _succeed(self, descriptor: int) -> bool:
        """Replace the holder if its lease has run out; True where it was replaced, here or by another
        process."""
        present = os.pread(descriptor, _RECORD, 0)
        if self._sightings.unchanged_s(self._number, present) < self._lease_s:
            return False
        replaced = _holder(self._current) or "a process"
        temporary = f"{self._path}.{os.getpid()}.{os.urandom(4).hex()}"
        made = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            # Locked before it can be seen by others.
            fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(made, _UNRECOVERED + _next_record(self._note), 0)
            os.link(temporary, self._successor)
        except FileExistsError:
            os.close(made)
            return True
        except BaseException:
            os.close(made)
            raise
        finally:
            os.unlink(temporary)
        self._sightings.forget(self._number)
        log.warning(
            "%s: %s has shown no sign of life for %g s and is replaced here",
            self._what,
            replaced,
            self._lease_s,
        )
        self._go_to(self._number + 1)
        self._descriptor = made
        self.taken_over = True
        self._begin()
        return True

    def _begin(self) -> None:
        """Begin to hold the lock: recover first, if that has not been done under this number."""
        assert self._descriptor is not None
        try:
            os.pwritev(self._descriptor, [_next_record(self._note)], _MARK)
            if not self._is_recovered:
                if os.pread(self._descriptor, _MARK, 0) != _RECOVERED and self._recover is not None:
                    self._recover()
                self.check()
                os.pwrite(self._descriptor, _RECOVERED, 0)
                self._is_recovered = True
        except BaseException:
            self.release()
            raise

    def _terms(self) -> str:
        if math.isinf(self._lease_s):
            return "until that process goes on or ends"
        return f"which is replaced if it shows no sign of life for {self._lease_s:g} s"


@contextlib.contextmanager
def beating(beat: Callable[[], object], lease_s: float) -> Iterator[None]:
    """Have signs of life shown meanwhile, several within a lease, by a thread: a process that is frozen shows
    none."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(lease_s / _BEATS):
            beat()

    thread = threading.Thread(target=repeat, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class _Counter:
    """Numbers that no other process has used, and this one not before."""

    def __init__(self) -> None:
        self.process = 0
        self.next = 0
        self.about: dict[str, bytes] = {}


_counter = _Counter()


def _next_record(note: str) -> bytes:
    counter = _counter
    process = os.getpid()
    if counter.process != process:
        counter.process, counter.next, counter.about = process, int.from_bytes(os.urandom(7), "big"), {}
    about = counter.about.get(note)
    if about is None:
        named: dict[str, Any] = {
            "process": process,
            "host": socket.gethostname(),
            "command": _command(),
            "note": note[:300],
        }
        # Of a fixed length, so that nothing is left of a longer one before it.
        about = counter.about[note] = json.dumps(named).encode()[: _RECORD - 32].ljust(_RECORD - 32)
    counter.next += 1
    return b"%020d%b" % (counter.next, about)


def _command() -> str:
    """The program that runs: arguments of other programs than ours may hold secrets."""
    path = sys.argv[0] if sys.argv and sys.argv[0] else "python"
    program = os.path.basename(path.removesuffix("/__main__.py"))
    arguments = sys.argv[1:3] if program == "streambench" else []
    return " ".join([program, *arguments])[:_LONGEST_COMMAND]


def _about(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            record = file.read(_RECORD)
            found = json.loads(record[_MARK + 20 :])
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _holder(path: str) -> str:
    about = _about(path)
    if not about:
        return ""
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(os.stat(path).st_mtime))
    except OSError:
        return ""
    named = f"process {about.get('process')} on {about.get('host')} ({about.get('command')})"
    return f"{named}, which has {path} since {since}"


def _close_all() -> None:
    _noting.release()
    for each in list(_ours):
        with contextlib.suppress(OSError):
            each.close()
    _ours.clear()


os.register_at_fork(before=_noting.acquire, after_in_parent=_noting.release, after_in_child=_close_all)
