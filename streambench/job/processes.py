"""Running the containers of a job side by side, one operating-system process for each.

The process that runs the job starts them, listens to what they report, and is asked by each that has caught up whether there is more:
a container may send to what another one reads, so the job has caught up only when nobody had anything to do in a whole round.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import streambench
from streambench.container.snapshot import ContainerSnapshot
from streambench.errors import StreambenchError
from streambench.job.drive import EVERY_S
from streambench.job.failure import Failure
from streambench.job.order import Again, CaughtUp, Enough, Order, Report, Stop, Surroundings
from streambench.job.result import ContainerRun

OnSnapshots = Callable[[Sequence[ContainerSnapshot]], object]

_HOME = str(Path(streambench.__file__).parent.parent)
_KILL_AFTER_S = 5.0


class Processes:
    """The processes of one run. ``shutdown_ms``: how long the others get to stop after one of them has failed."""

    def __init__(
        self, orders: Sequence[Order], *, shutdown_ms: int, on_snapshots: OnSnapshots | None = None, every_s: float = EVERY_S
    ) -> None:
        self._orders = orders
        self._shutdown_s = shutdown_ms / 1000
        self._on_snapshots = on_snapshots
        self._every_s = every_s
        self._children: list[_Child] = []
        self._latest: dict[int, ContainerSnapshot] = {}
        self._failure: Failure | None = None
        self._deadline: float | None = None
        self._stopping = threading.Event()
        self._shown = 0.0

    def stop_soon(self) -> None:
        """Have all containers stop cleanly. From any thread, at any time."""
        self._stopping.set()
        for child in list(self._children):
            child.tell(Stop())

    def run(self) -> list[ContainerRun]:
        """Start the processes and stay with them until all have ended. Raises what one of them failed with, when the others have
        stopped."""
        try:
            for order in self._orders:
                self._children.append(_Child(order))
            if self._stopping.is_set():
                self.stop_soon()
            while any(child.is_open for child in self._children):
                self._listen()
            self._show(last=True)
        finally:
            for child in self._children:
                child.end()
        if self._failure is not None:
            raise self._failure.error()
        return [child.run for child in self._children if child.run is not None]

    def _listen(self) -> None:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        ready = wait([child.connection for child in self._children if child.is_open], left)
        for child in self._children:
            if child.connection in ready:
                self._hear(child)
        if left is not None and not ready:
            for child in self._children:
                child.kill()
        self._show()

    def _hear(self, child: _Child) -> None:
        report = child.hear()
        if isinstance(report, ContainerSnapshot):
            self._latest[report.container] = report
        elif isinstance(report, CaughtUp):
            self._answer()
        elif isinstance(report, Failure):
            self._failed(report)
        elif report.ended == "signal":
            # Somebody stopped this one process: a job without it would be half a job.
            self.stop_soon()
        if not child.is_open:
            self._answer()

    def _answer(self) -> None:
        """Once every container that is still there has caught up: send all of them on, or to their end."""
        there = [child for child in self._children if child.is_open]
        reports = [child.caught_up for child in there]
        known = [report for report in reports if report is not None]
        if not there or len(known) < len(there):
            return
        anything = sum(report.processed for report in known) and sum(report.sent for report in known)
        for child in there:
            child.caught_up = None
            child.tell(Again() if anything else Enough())

    def _failed(self, failure: Failure) -> None:
        if self._failure is None:
            self._failure = failure
            self._deadline = time.monotonic() + self._shutdown_s
        self.stop_soon()

    def _show(self, *, last: bool = False) -> None:
        if self._on_snapshots is None or not self._latest:
            return
        now = time.monotonic()
        if last or (now - self._shown >= self._every_s and len(self._latest) == len(self._orders)):
            self._shown = now
            self._on_snapshots([self._latest[number] for number in sorted(self._latest)])


class _Child:
    """One container process, seen from outside. ``run`` is set once it has ended cleanly."""

    def __init__(self, order: Order) -> None:
        self.number = order.number
        self.run: ContainerRun | None = None
        self.caught_up: CaughtUp | None = None
        self.is_open = True
        self.connection, theirs = Pipe()
        self._sending = threading.Lock()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_HOME, os.environ.get("PYTHONPATH")]))}
        command = [sys.executable, "-P", "-m", "streambench.job.worker", str(theirs.fileno())]
        # A Ctrl-C of the terminal reaches the whole group. Until the process knows what to do about it, it must not be hit.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
        try:
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._send(self.connection.send, Surroundings(list(sys.path), os.environ.get("PYTHONPATH")))
        self._send(self.connection.send_bytes, pickle.dumps(order))

    def tell(self, what: Again | Enough | Stop) -> None:
        """Send an instruction; one that has ended does not hear it, which its end will tell."""
        if self.is_open:
            self._send(self.connection.send, what)

    def hear(self) -> Report:
        """The next report; the end of the process without one is a failure."""
        try:
            report: Report = self.connection.recv()
        except (EOFError, OSError):
            self.is_open = False
            return Failure(self.number, StreambenchError.__name__, f"its process {self._ending()}", "")
        if isinstance(report, CaughtUp):
            self.caught_up = report
        elif isinstance(report, ContainerRun):
            self.run = report
            self.is_open = False
        elif isinstance(report, Failure):
            self.is_open = False
        return report

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def end(self) -> None:
        """Wait until the process is gone; one that still runs, or does not go by itself, is killed."""
        if self.is_open:
            self._process.kill()
        try:
            self._process.wait(_KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.connection.close()

    def _ending(self) -> str:
        code = self._process.wait()
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"

    def _send(self, send: Callable[[Any], None], what: Any) -> None:
        with self._sending, contextlib.suppress(OSError):
            send(what)
