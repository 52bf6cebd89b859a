"""The reaper: ends the processes that tests have started, however the run of the tests ends.

It is a process of its own, out of reach of Ctrl-C, which remembers what descends from the run. Once the run
has ended or is gone (interrupted, terminated, killed), all of that is killed: also what has a session of its
own, was stopped, or lost its parent.

Descendants of a worker are killed as soon as the worker is gone. A process that a test forked holds the
worker's pipe to the run open, and the run would wait for the end of that pipe for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

MARK = "STREAMBENCH_TEST_RUN"
MAKE = "STREAMBENCH_TEST_MAKE"
"""In the environment: the process id of the ``make`` without which the run shall not go on."""

_EVERY_S = 2.0
_RETRY_S = 0.1
_GRACE_S = 60.0
"""So long may an interrupted run take to end by itself."""

_reapers: list[subprocess.Popen[bytes]] = []


def pytest_configure(config: Any) -> None:
    """Start it, for all workers of a run together."""
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = mark = uuid.uuid4().hex
        command = [sys.executable, str(Path(__file__)), str(os.getpid()), mark]
        _reapers.append(subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """Announce a worker of the run."""
    popen = getattr(node.gateway._io, "popen", None)  # execnet has no public name for it
    if popen is not None:
        _notify(f"worker {popen.pid}")


def pytest_keyboard_interrupt() -> None:
    """Limit the time that the run may take to end."""
    _notify("interrupted")


def pytest_unconfigure(config: Any) -> None:
    """Have everything killed that is left, and wait for that."""
    _notify("ended")
    while _reapers:
        reaper = _reapers.pop()
        reaper.communicate()


def _notify(line: str) -> None:
    for reaper in _reapers:
        assert reaper.stdin is not None
        with contextlib.suppress(OSError):
            reaper.stdin.write(f"{line}\n".encode())
            reaper.stdin.flush()


class Descendants:
    """The processes that descend from a run, also those that have lost their parent since."""

    def __init__(self, run: int) -> None:
        self._run = run
        #: Each with the child of the run through which it descends.
        self._seen: dict[int, tuple[Any, int]] = {}

    def look(self) -> None:
        """Add what was started since the last look, and forget what has ended."""
        import psutil

        self._seen = {pid: each for pid, each in self._seen.items() if lives(each[0])}
        parents = {each.pid: (each, each.info["ppid"]) for each in psutil.process_iter(["ppid"])}
        for pid in parents:
            line = []
            while pid in parents and pid not in self._seen and pid not in (self._run, os.getpid()):
                line.append(pid)
                pid = parents[pid][1]
            if pid == self._run and line:
                branch = line[-1]
            elif pid in self._seen:
                branch = self._seen[pid][1]
            else:
                continue
            self._seen.update((each, (parents[each][0], branch)) for each in line)

    def all(self) -> list[Any]:
        return [each for each, _ in self._seen.values()]

    def of(self, branch: int) -> list[Any]:
        """All that descend through this child of the run."""
        return [each for each, its in self._seen.values() if its == branch]

    def __contains__(self, pid: int) -> bool:
        return pid in self._seen


def main(run: int, mark: str) -> None:
    import psutil

    descendants = Descendants(run)
    make = psutil.Process(int(os.environ[MAKE])) if os.environ.get(MAKE) else None
    if not follow(run, descendants, make):
        with contextlib.suppress(OSError):
            os.kill(run, signal.SIGKILL)
    while True:
        descendants.look()
        found = [*descendants.all(), *marked(mark)]
        left = [each for each in found if each.pid not in (os.getpid(), run) and lives(each)]
        if not left:
            return
        kill(left)
        time.sleep(_RETRY_S)


def follow(run: int, descendants: Descendants, make: Any) -> bool:
    """Remember what the run starts until it has ended, is gone, or shall not go on; False for the last."""
    workers: set[int] = set()
    end_at: float | None = None
    received = b""
    while os.getppid() == run:
        if end_at is not None and time.monotonic() >= end_at:
            return False
        if make is not None and not lives(make):
            return False
        if select.select([0], [], [], _EVERY_S)[0]:
            data = os.read(0, 4096)
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                word, *rest = line.decode().split()
                if word == "worker":
                    workers.add(int(rest[0]))
                elif word == "interrupted":
                    end_at = time.monotonic() + _GRACE_S
            if not data or b"ended" in lines:
                return True
        descendants.look()
        for worker in [each for each in workers if each not in descendants]:
            left = descendants.of(worker)
            kill(left)
            if not left:
                workers.discard(worker)
    return True


def marked(mark: str) -> list[Any]:
    """The processes that were started with the environment of the run."""
    import psutil

    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if each.environ().get(MARK) == mark:
                found.append(each)
    return found


def kill(processes: list[Any]) -> None:
    import psutil

    for each in processes:
        with contextlib.suppress(psutil.Error):
            each.kill()


def lives(process: Any) -> bool:
    """Tell if a process runs; one that waits to be collected by its parent does not."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
