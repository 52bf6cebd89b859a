"""The process of one container of a job: ``python -m streambench.job.worker FD``.

FD is the end of a connection to the process that runs the job. The instruction arrives there, reports are
sent there, and the process ends with it. When the other end is gone, for whatever reason, it ends at once, as
in a crash. Nothing is lost by that, since the next start goes on from the last commit.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from streambench import config
from streambench.container.container import Container
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.errors import StreambenchError, represented
from streambench.job.failure import Failure
from streambench.job.messages import (
    CaughtUp,
    ImportPaths,
    Initialising,
    KeepRunning,
    Report,
    StartContainer,
    Stop,
)
from streambench.job.pickling import bring_names
from streambench.job.result import ContainerRun
from streambench.job.runner import EVERY_S, ContainerRunner
from streambench.job.signals import STOPPING, StopSignals
from streambench.locks import not_for_children
from streambench.metrics.log_reporter import show_on_stderr
from streambench.planning.model import PlannedContainer


def main() -> None:
    """Take the instruction, run the container, report. Exit code 1 after a failure."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the job's process gets it as well
    connection: Connection[Any, Any] = not_for_children(Connection(int(sys.argv[1])))
    os.set_inheritable(
        connection.fileno(), False
    )  # it had to be, to come here; no program that the task starts is to have it
    _apply_paths(connection.recv())
    show_on_stderr()
    logging.getLogger(config.__name__).setLevel(logging.ERROR)  # the job's process has warned already
    start: StartContainer = pickle.loads(connection.recv_bytes())
    channel = WorkerChannel(connection)
    try:
        run = _run_container(start, channel)
    except BaseException as error:
        channel.report(Failure.of(error, start.number))
        sys.exit(1)
    channel.report(run)


def _apply_paths(paths: ImportPaths) -> None:
    sys.path[:] = paths.path
    if paths.python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = paths.python_path


def _run_container(start: StartContainer, channel: WorkerChannel) -> ContainerRun:
    bring_names(start.names)
    task = None if start.task is None else pickle.loads(start.task)
    container = Container(
        start.config, task, planned=PlannedContainer(start.model, start.number, start.generation),
        remember_choices=0 if start.every_s is None else 1,
    )  # fmt: skip

    def give_up(error: StreambenchError) -> None:
        channel.report(Failure.of(error, start.number))
        os._exit(1)

    on_snapshot = None if start.every_s is None else channel.show
    runner = ContainerRunner(
        container, on_snapshot=on_snapshot, every_s=start.every_s or EVERY_S, on_hang=give_up,
        on_init=lambda task: channel.report(Initialising(start.number, task)),
    )  # fmt: skip
    with StopSignals(runner.stop_soon, [signal.SIGTERM], after=runner.under_way):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        channel.attach(runner)
        return runner.run(start.until, channel.next_round)


class WorkerChannel:
    """This process's side of the connection. It listens from the beginning: the other side may be gone before
    the container is made."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._runner: ContainerRunner | None = None
        self._stopped = threading.Event()
        threading.Thread(target=self._listen, name="instructions", daemon=True).start()

    def attach(self, runner: ContainerRunner) -> None:
        """From now on, a Stop is for this runner; also one that came before."""
        self._runner = runner
        if self._stopped.is_set():
            runner.stop_soon()

    def report(self, what: Report) -> None:
        with self._sending:
            try:
                self._connection.send(what)
            except OSError:
                os._exit(1)

    def show(self, snapshot: ContainerSnapshot) -> None:
        """Report a snapshot; keys travel as text where they are no plain values."""
        choices = tuple(msgspec.structs.replace(each, key=_plain(each.key)) for each in snapshot.choices)
        self.report(msgspec.structs.replace(snapshot, choices=choices))

    def next_round(self, processed: int, sent: int) -> bool:
        self.report(CaughtUp(processed, sent))
        return self._answers.get()

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)
            if isinstance(message, Stop):
                self._stopped.set()
                if self._runner is not None:
                    self._runner.stop_soon()
            self._answers.put(isinstance(message, KeepRunning))


def _plain(key: Any) -> Any:
    return key if key is None or type(key) in (str, bytes, int, float, bool) else represented(key)


if __name__ == "__main__":
    main()
