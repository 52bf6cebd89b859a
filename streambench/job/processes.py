"""Running the containers of a job side by side, one operating-system process for each.

The process that runs the job starts them and receives their reports. A container may send to what another one
reads. So the job has caught up only when no container had anything to do in a whole round. Each container
asks for a round when it has caught up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
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

from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.errors import StreambenchError
from streambench.job.cumulative_counts import CumulativeCounts
from streambench.job.failure import Failure
from streambench.job.messages import (
    CaughtUp,
    Finish,
    ImportPaths,
    Initialising,
    KeepRunning,
    Report,
    StartContainer,
    Stop,
)
from streambench.job.restarts import Restart, Restarts
from streambench.job.result import ContainerRun
from streambench.job.runner import EVERY_S, awaited
from streambench.job.signals import STOPPING
from streambench.locks import not_for_children

OnSnapshots = Callable[[Sequence[ContainerSnapshot]], object]
OnRestart = Callable[[Restart], object]

log = logging.getLogger(__name__)

_HOME = str(Path(__file__).parents[2])
_KILL_AFTER_S = 5.0
# A callback may keep the thread that reads the reports.
_ANSWER_WITHIN_S = 1.0
_STOP, _ASK = b"!", b"?"


class Died(Struct, frozen=True):
    """Instead of a report: the process has ended without one. ``how``: for the end of a sentence."""

    how: str


class Processes:
    """The processes of one run.

    One that dies without an error (killed, out of memory, a crash in native code) is started again from its
    checkpoint, while the others continue. What a container *reports* as its failure ends the job: its task,
    its configuration or its data would fail in the same way again.
    """

    def __init__(
        self,
        start_messages: Sequence[StartContainer],
        *,
        on_snapshots: OnSnapshots | None = None,
        on_restart: OnRestart | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        config = start_messages[0].config
        # How long containers get to stop: all of them after a signal, the others after one of them has
        # failed.
        self._shutdown_s = config.integer("task.shutdown.ms") / 1000
        self._handles = [
            WorkerHandle(start_message, Restarts.of(config, start_message.number))
            for start_message in start_messages
        ]
        self._on_snapshots = on_snapshots
        self._on_restart = on_restart
        self._every_s = every_s
        self._latest: dict[int, ContainerSnapshot] = {}
        self._failure: Failure | None = None
        self._problem: Exception | None = None
        self._deadline: float | None = None
        self._stopping = threading.Event()
        self._woken, self._waker = Pipe(duplex=False)
        self._asked: queue.SimpleQueue[queue.SimpleQueue[str]] = queue.SimpleQueue()
        self._is_unsure = False
        self._shown = 0.0

    def stop_soon(self) -> None:
        """Have all containers stop cleanly. From any thread, at any time."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._waker.send_bytes(_STOP)

    def under_way(self) -> str:
        """The calls that a stop waits for, in words; by all reports that had arrived when it was asked. From
        any thread but that of ``run``."""
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asked.put(answer)
        with contextlib.suppress(OSError, queue.Empty):
            self._waker.send_bytes(_ASK)
            return answer.get(timeout=_ANSWER_WITHIN_S)
        return self._reported_calls()

    def _reported_calls(self) -> str:
        return awaited([each.initialising for each in self._handles if each.is_open and each.initialising])

    def kill(self) -> None:
        """End all processes at once. From any thread, at any time."""
        for handle in self._handles:
            handle.kill()

    def run(self) -> list[ContainerRun]:
        """Start the processes and stay with them until all have ended. Raises what one of them failed with,
        or what a callback raised, when the others have stopped."""
        try:
            for handle in self._handles:
                handle.start()
            while any(handle.is_open for handle in self._handles):
                self._listen()
            self._show(last=True)
        finally:
            for handle in self._handles:
                handle.end()
            self._waker.close()
            self._woken.close()
            self._answer_askers()
        if self._failure is not None:
            raise self._failure.error()
        if self._problem is not None:
            raise self._problem
        return [handle.run for handle in self._handles if handle.run is not None]

    def _listen(self) -> None:
        ready = wait([self._woken, *self._connections()], self._time_left())
        if self._woken in ready:
            if self._woken.recv_bytes() == _STOP:
                self._stop_all()
            else:
                self._receive_all()
                self._answer_askers()
                return
        self._receive_from(ready)
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            for handle in self._handles:
                handle.kill()
        for handle in self._handles:
            if handle.due is not None and now >= handle.due:
                self._start_again(handle)
        self._show()

    def _connections(self) -> list[Connection[Any, Any]]:
        return [handle.child.connection for handle in self._handles if handle.child is not None]

    def _receive_from(self, ready: Sequence[object]) -> None:
        for handle in self._handles:
            if handle.child is not None and handle.child.connection in ready:
                self._receive(handle, handle.child)

    def _receive_all(self) -> None:
        """Read all reports that have arrived."""
        while ready := wait(self._connections(), 0):
            self._receive_from(ready)

    def _answer_askers(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait().put(self._reported_calls())

    def _time_left(self) -> float | None:
        """Seconds until the next deadline; None where only a report is waited for."""
        times = [handle.due for handle in self._handles if handle.due is not None]
        if self._deadline is not None and any(
            handle.child is not None and not handle.is_killed for handle in self._handles
        ):
            times.append(self._deadline)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _stop_all(self) -> None:
        if self._deadline is None:
            # A container that hangs says so by itself, as long as it can.
            self._deadline = time.monotonic() + self._shutdown_s + _KILL_AFTER_S
        for handle in self._handles:
            if handle.due is not None:
                handle.due = None
                how = f"{handle.died}; the job was stopped before it was started again"
                self._failed(handle.failure(how))
            handle.send(Stop())

    def _receive(self, handle: WorkerHandle, child: ChildProcess) -> None:
        report = child.receive()
        if isinstance(report, ContainerSnapshot):
            self._latest[report.container] = handle.note_snapshot(report)
        elif isinstance(report, Initialising):
            handle.initialising = report.task
        elif isinstance(report, CaughtUp):
            handle.caught_up = report
        elif isinstance(report, Died):
            handle.end()
            too_late = f"did not stop within {self._shutdown_s * 1000:g} ms (task.shutdown.ms) and was killed"
            self._died(handle, too_late if handle.is_killed else report.how)
        elif isinstance(report, Failure):
            handle.end()
            self._failed(report)
        else:
            handle.finish(report)
            # What it sent since its last report may be news to others that have caught up.
            self._is_unsure = True
            if report.ended == "signal":
                # This one process was stopped from outside: a job without it would be half a job.
                self.stop_soon()
        if not isinstance(report, ContainerSnapshot | Initialising):
            self._answer()

    def _died(self, handle: WorkerHandle, how: str) -> None:
        restart = None if self._stopping.is_set() else handle.restarts.after_death(how, time.monotonic())
        if restart is None:
            self._failed(handle.failure(how if self._stopping.is_set() else how + handle.restarts.gave_up()))
            return
        # What it sent since its last report may be news to others that have caught up.
        self._is_unsure = True
        handle.has_died(how)
        handle.due = time.monotonic() + restart.pause_s
        log.warning("%s", restart)
        number = handle.start_message.number
        if (latest := self._latest.get(number)) is not None:
            self._latest[number] = structs.replace(latest, state="restarting", reason=str(restart))
        if self._on_restart is not None:
            self._call(self._on_restart, restart)
        self._shown = 0.0

    def _start_again(self, handle: WorkerHandle) -> None:
        try:
            handle.start()
        except OSError as error:
            self._died(handle, f"no process can be started for it ({error})")

    def _answer(self) -> None:
        """Once every container that has not ended has caught up: have all of them continue, or finish."""
        there = [handle for handle in self._handles if handle.is_open]
        reports = [handle.caught_up for handle in there]
        known = [report for report in reports if report is not None]
        if not there or len(known) < len(there):
            return
        anything = sum(report.processed for report in known) and sum(report.sent for report in known)
        again, self._is_unsure = anything or self._is_unsure, False
        for handle in there:
            handle.caught_up = None
            handle.send(KeepRunning() if again else Finish())

    def _failed(self, failure: Failure) -> None:
        if self._failure is None:
            self._failure = failure
            self._deadline = time.monotonic() + self._shutdown_s
        self.stop_soon()

    def _show(self, *, last: bool = False) -> None:
        if self._on_snapshots is None or not self._latest:
            return
        now = time.monotonic()
        if last or (now - self._shown >= self._every_s and len(self._latest) == len(self._handles)):
            self._shown = now
            self._call(self._on_snapshots, [self._latest[number] for number in sorted(self._latest)])

    def _call(self, callback: Callable[[Any], object], argument: object) -> None:
        """Call a callback. If it raises, the job stops cleanly, and no callback is called again."""
        try:
            callback(argument)
        except Exception as error:
            self._problem = self._problem or error
            self._on_snapshots = self._on_restart = None
            self.stop_soon()


class WorkerHandle:
    """One container of the job, whichever process does its work. ``run`` is set once it has ended cleanly;
    ``due``: when its next process is to be started, while it has none."""

    def __init__(self, start_message: StartContainer, restarts: Restarts) -> None:
        self.start_message = start_message
        self.restarts = restarts
        self.child: ChildProcess | None = None
        self.caught_up: CaughtUp | None = None
        self.run: ContainerRun | None = None
        self.due: float | None = None
        self.died = ""
        self.initialising = ""
        self.is_killed = False
        self._counts = CumulativeCounts()
        self._last: ContainerSnapshot | None = None

    @property
    def is_open(self) -> bool:
        """True while it has a process, or is to get one."""
        return self.child is not None or self.due is not None

    def start(self) -> None:
        """Start a process for it. Raises OSError."""
        self.due = self.caught_up = None
        self.initialising = ""
        self.child = ChildProcess(self.start_message)

    def send(self, what: KeepRunning | Finish | Stop) -> None:
        """Send its process an instruction; one that has ended gets none, and its end is reported."""
        if self.child is not None:
            self.child.send(what)

    def note_snapshot(self, snapshot: ContainerSnapshot) -> ContainerSnapshot:
        """Note a snapshot of its process. Returns it with the counts of earlier processes added."""
        self._last = snapshot
        return self._counts.over(snapshot)

    def has_died(self, how: str) -> None:
        """Note that its process has died, and that another one will follow."""
        self.died = how
        if self._last is not None:
            self._counts.add(self._last.processed, self._last.error_counts)
            self._last = None

    def finish(self, run: ContainerRun) -> None:
        """Note that it has ended cleanly."""
        self.run = structs.replace(self._counts.of(run), restarts=self.restarts.done)
        self.end()

    def failure(self, how: str) -> Failure:
        """The failure that the end of its process stands for."""
        return Failure(self.start_message.number, StreambenchError.__name__, f"its process {how}", "")

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


class ChildProcess:
    """One process of a container, seen from outside.

    Its death is the end of the connection, also where other processes have its side of it open. Those may be
    forked by the process, or here while it was started. Reports that it had sent come before that.
    """

    def __init__(self, start_message: StartContainer) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(True)  # whatever this program's default is
        theirs.setblocking(True)
        self.connection: Connection[Any, Any] = not_for_children(Connection(ours.detach()))
        self._theirs = not_for_children(theirs)
        self._is_open = True
        self._sending = threading.Lock()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [_HOME, os.environ.get("PYTHONPATH")])),
        }
        command = [sys.executable, "-P", "-m", "streambench.job.worker", str(theirs.fileno())]
        # A Ctrl-C of the terminal, and its end, reach the whole group. Until the process knows what to do
        # about it, it must not be hit.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        except BaseException:
            theirs.close()
            self.connection.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._waiting = threading.Thread(
            target=self._await_end, name=f"end of container {start_message.number}", daemon=True
        )
        self._waiting.start()
        self._send(self.connection.send, ImportPaths(list(sys.path), os.environ.get("PYTHONPATH")))
        self._send(self.connection.send_bytes, pickle.dumps(start_message))

    def send(self, what: KeepRunning | Finish | Stop) -> None:
        """Send an instruction."""
        self._send(self.connection.send, what)

    def receive(self) -> Report | Died:
        """The next report."""
        try:
            report: Report = self.connection.recv()
        except (EOFError, OSError):
            self._is_open = False
            return Died(self._ending())
        if not isinstance(report, (ContainerSnapshot, Initialising, CaughtUp)):
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
            # Unlike a close, this is the end for all processes that have this side open.
            self._theirs.shutdown(socket.SHUT_RDWR)

    def _ending(self) -> str:
        code = self._process.wait()
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"

    def _send(self, send: Callable[[Any], None], what: Any) -> None:
        with self._sending, contextlib.suppress(OSError):
            send(what)
