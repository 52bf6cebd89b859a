"""Running the containers of a job side by side, one operating-system process for each.

The process that runs the job starts them, listens to what they report, and is asked by each that has caught up whether there is more:
a container may send to what another one reads, so the job has caught up only when nobody had anything to do in a whole round.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

import streambench
from streambench.container.snapshot import ContainerSnapshot
from streambench.errors import StreambenchError
from streambench.held import not_for_children
from streambench.job.drive import EVERY_S
from streambench.job.failure import Failure
from streambench.job.order import Again, CaughtUp, Enough, Order, Report, Stop, Surroundings
from streambench.job.restarts import Restart, Restarts
from streambench.job.result import ContainerRun
from streambench.job.signals import STOPPING
from streambench.job.tally import Tally

OnSnapshots = Callable[[Sequence[ContainerSnapshot]], object]
OnRestart = Callable[[Restart], object]

log = logging.getLogger(__name__)

_HOME = str(Path(streambench.__file__).parent.parent)
_KILL_AFTER_S = 5.0


class Died(Struct, frozen=True):
    """Instead of a report: the process has ended without one. ``how``: for the end of a sentence."""

    how: str


class Processes:
    """The processes of one run.

    One that dies without saying why (killed, out of memory, a crash in native code) is started again from its checkpoint, while the
    others go on. What a container *reports* as its failure ends the job: its task, its configuration or its data would fail in the
    same way again.
    """

    def __init__(
        self,
        orders: Sequence[Order],
        *,
        on_snapshots: OnSnapshots | None = None,
        on_restart: OnRestart | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        config = orders[0].config
        # How long containers get to stop: all of them after a signal, the others after one of them has failed.
        self._shutdown_s = config.integer("task.shutdown.ms") / 1000
        self._posts = [_Post(order, Restarts.of(config, order.number)) for order in orders]
        self._on_snapshots = on_snapshots
        self._on_restart = on_restart
        self._every_s = every_s
        self._latest: dict[int, ContainerSnapshot] = {}
        self._failure: Failure | None = None
        self._problem: Exception | None = None
        self._deadline: float | None = None
        self._stopping = threading.Event()
        self._woken, self._waker = Pipe(duplex=False)
        self._is_unsure = False
        self._shown = 0.0

    def stop_soon(self) -> None:
        """Have all containers stop cleanly. From any thread, at any time."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._waker.send_bytes(b"!")

    def kill(self) -> None:
        """End all processes at once. From any thread, at any time."""
        for post in self._posts:
            post.kill()

    def run(self) -> list[ContainerRun]:
        """Start the processes and stay with them until all have ended. Raises what one of them failed with, or what an onlooker raised,
        when the others have stopped."""
        try:
            for post in self._posts:
                post.start()
            while any(post.is_open for post in self._posts):
                self._listen()
            self._show(last=True)
        finally:
            for post in self._posts:
                post.end()
            self._woken.close()
            self._waker.close()
        if self._failure is not None:
            raise self._failure.error()
        if self._problem is not None:
            raise self._problem
        return [post.run for post in self._posts if post.run is not None]

    def _listen(self) -> None:
        ready = wait([self._woken, *(post.child.connection for post in self._posts if post.child is not None)], self._time_left())
        if self._woken in ready:
            self._woken.recv_bytes()
            self._stop_all()
        for post in self._posts:
            if post.child is not None and post.child.connection in ready:
                self._hear(post, post.child)
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            for post in self._posts:
                post.kill()
        for post in self._posts:
            if post.due is not None and now >= post.due:
                self._start_again(post)
        self._show()

    def _time_left(self) -> float | None:
        """How long there is nothing to do unless somebody says something."""
        times = [post.due for post in self._posts if post.due is not None]
        if self._deadline is not None and any(post.child is not None and not post.is_killed for post in self._posts):
            times.append(self._deadline)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _stop_all(self) -> None:
        if self._deadline is None:
            # A container that hangs says so by itself, as long as it can.
            self._deadline = time.monotonic() + self._shutdown_s + _KILL_AFTER_S
        for post in self._posts:
            if post.due is not None:
                post.due = None
                self._failed(post.failure(f"{post.died}; the job was stopped before it was started again"))
            post.tell(Stop())

    def _hear(self, post: _Post, child: _Child) -> None:
        report = child.hear()
        if isinstance(report, ContainerSnapshot):
            self._latest[report.container] = post.saw(report)
        elif isinstance(report, CaughtUp):
            post.caught_up = report
        elif isinstance(report, Died):
            post.end()
            too_late = f"did not stop within {self._shutdown_s * 1000:g} ms (task.shutdown.ms) and was killed"
            self._died(post, too_late if post.is_killed else report.how)
        elif isinstance(report, Failure):
            post.end()
            self._failed(report)
        else:
            post.finish(report)
            # What it sent since its last report may be news to others that have caught up.
            self._is_unsure = True
            if report.ended == "signal":
                # Somebody stopped this one process: a job without it would be half a job.
                self.stop_soon()
        if not isinstance(report, ContainerSnapshot):
            self._answer()

    def _died(self, post: _Post, how: str) -> None:
        restart = None if self._stopping.is_set() else post.restarts.after_death(how, time.monotonic())
        if restart is None:
            self._failed(post.failure(how if self._stopping.is_set() else how + post.restarts.gave_up()))
            return
        # What it sent since its last report may be news to others that have caught up.
        self._is_unsure = True
        post.has_died(how)
        post.due = time.monotonic() + restart.pause_s
        log.warning("%s", restart)
        if post.order.number in self._latest:
            self._latest[post.order.number] = structs.replace(self._latest[post.order.number], state="restarting", reason=str(restart))
        if self._on_restart is not None:
            self._look(lambda show: show(restart), self._on_restart)
        self._shown = 0.0

    def _start_again(self, post: _Post) -> None:
        try:
            post.start()
        except OSError as error:
            self._died(post, f"no process can be started for it ({error})")

    def _answer(self) -> None:
        """Once every container that has not ended has caught up: send all of them on, or to their end."""
        there = [post for post in self._posts if post.is_open]
        reports = [post.caught_up for post in there]
        known = [report for report in reports if report is not None]
        if not there or len(known) < len(there):
            return
        anything = sum(report.processed for report in known) and sum(report.sent for report in known)
        again, self._is_unsure = anything or self._is_unsure, False
        for post in there:
            post.caught_up = None
            post.tell(Again() if again else Enough())

    def _failed(self, failure: Failure) -> None:
        if self._failure is None:
            self._failure = failure
            self._deadline = time.monotonic() + self._shutdown_s
        self.stop_soon()

    def _show(self, *, last: bool = False) -> None:
        if self._on_snapshots is None or not self._latest:
            return
        now = time.monotonic()
        if last or (now - self._shown >= self._every_s and len(self._latest) == len(self._posts)):
            self._shown = now
            self._look(lambda show: show([self._latest[number] for number in sorted(self._latest)]), self._on_snapshots)

    def _look(self, at: Callable[[Any], object], onlooker: Callable[[Any], object]) -> None:
        """Let an onlooker see something. One that raises has seen enough, and the job stops cleanly."""
        try:
            at(onlooker)
        except Exception as error:
            self._problem = self._problem or error
            self._on_snapshots = self._on_restart = None
            self.stop_soon()


class _Post:
    """One container of the job, whichever process does its work. ``run`` is set once it has ended cleanly; ``due``: when its next process
    is to be started, while it has none."""

    def __init__(self, order: Order, restarts: Restarts) -> None:
        self.order = order
        self.restarts = restarts
        self.child: _Child | None = None
        self.caught_up: CaughtUp | None = None
        self.run: ContainerRun | None = None
        self.due: float | None = None
        self.died = ""
        self.is_killed = False
        self._tally = Tally()
        self._last: ContainerSnapshot | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has a process, or is to get one."""
        return self.child is not None or self.due is not None

    def start(self) -> None:
        """Start a process for it. Raises OSError."""
        self.due = self.caught_up = None
        self.child = _Child(self.order)

    def tell(self, what: Again | Enough | Stop) -> None:
        """Give its process an instruction; one that has ended does not hear it, which its end will tell."""
        if self.child is not None:
            self.child.tell(what)

    def saw(self, snapshot: ContainerSnapshot) -> ContainerSnapshot:
        """Take note of a snapshot of its process; the same with what those before it did."""
        self._last = snapshot
        return self._tally.over(snapshot)

    def has_died(self, how: str) -> None:
        """Its process has, and another is to come."""
        self.died = how
        if self._last is not None:
            self._tally.add(self._last.processed, self._last.passed_over)
            self._last = None

    def finish(self, run: ContainerRun) -> None:
        """It has ended cleanly."""
        self.run = structs.replace(self._tally.of(run), restarts=self.restarts.done)
        self.end()

    def failure(self, how: str) -> Failure:
        """The failure that the end of its process is."""
        return Failure(self.order.number, StreambenchError.__name__, f"its process {how}", "")

    def kill(self) -> None:
        """End its process at once."""
        child = self.child
        if child is not None:
            self.is_killed = True
            child.kill()

    def end(self) -> None:
        """Wait until its process is gone; one that still runs, or does not go by itself, is killed."""
        child, self.child = self.child, None
        if child is not None:
            child.end()


class _Child:
    """One process of a container, seen from outside.

    Its death is the end of the connection, whoever else may have the process's side of it open by then: what the process has forked, or
    what was forked here while it was started. Reports that it had sent come before that.
    """

    def __init__(self, order: Order) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(True)  # whatever this program's default is
        theirs.setblocking(True)
        self.connection: Connection[Any, Any] = not_for_children(Connection(ours.detach()))
        self._theirs = not_for_children(theirs)
        self._is_open = True
        self._sending = threading.Lock()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_HOME, os.environ.get("PYTHONPATH")]))}
        command = [sys.executable, "-P", "-m", "streambench.job.worker", str(theirs.fileno())]
        # A Ctrl-C of the terminal, and its end, reach the whole group. Until the process knows what to do about it, it must not be hit.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        except BaseException:
            theirs.close()
            self.connection.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._waiting = threading.Thread(target=self._await_end, name=f"end of container {order.number}", daemon=True)
        self._waiting.start()
        self._send(self.connection.send, Surroundings(list(sys.path), os.environ.get("PYTHONPATH")))
        self._send(self.connection.send_bytes, pickle.dumps(order))

    def tell(self, what: Again | Enough | Stop) -> None:
        """Send an instruction."""
        self._send(self.connection.send, what)

    def hear(self) -> Report | Died:
        """The next report."""
        try:
            report: Report = self.connection.recv()
        except (EOFError, OSError):
            self._is_open = False
            return Died(self._ending())
        if not isinstance(report, (ContainerSnapshot, CaughtUp)):
            self._is_open = False
        return report

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def end(self) -> None:
        """Wait until the process is gone; one that still runs, or does not go by itself, is killed."""
        if self._is_open:
            self._process.kill()
        self._waiting.join(_KILL_AFTER_S)
        if self._waiting.is_alive():
            self._process.kill()
            self._waiting.join()
        self.connection.close()

    def _await_end(self) -> None:
        self._process.wait()
        with self._theirs:
            # Unlike a close, this is the end for everybody who has this side open.
            self._theirs.shutdown(socket.SHUT_RDWR)

    def _ending(self) -> str:
        code = self._process.wait()
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"

    def _send(self, send: Callable[[Any], None], what: Any) -> None:
        with self._sending, contextlib.suppress(OSError):
            send(what)
