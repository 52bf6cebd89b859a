"""The process of one container of a job: ``python -m streambench.job.worker FD``.

FD is the process's end of a connection to the one that runs the job. It gets its order there, reports there, and dies with it: when
the other end is gone, however that came about, this process ends at once, as in a crash. Nothing is lost by that, since the next
start goes on from the last commit.
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
from streambench.container.snapshot import ContainerSnapshot
from streambench.errors import StreambenchError, represented
from streambench.held import not_for_children
from streambench.job.drive import EVERY_S, Driver
from streambench.job.failure import Failure
from streambench.job.order import Again, CaughtUp, Order, Report, Stop, Surroundings
from streambench.job.result import ContainerRun
from streambench.job.shipping import bring_names, unshipped
from streambench.job.signals import STOPPING, StopSignals
from streambench.metrics.log_reporter import show_on_stderr


def main() -> None:
    """Take an order, carry it out, report. Exit code 1 after a failure."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # who gave the order gets it as well
    connection: Connection[Any, Any] = not_for_children(Connection(int(sys.argv[1])))
    os.set_inheritable(connection.fileno(), False)  # it had to be, to come here; no program that the task starts is to have it
    _settle(connection.recv())
    show_on_stderr()
    logging.getLogger(config.__name__).setLevel(logging.ERROR)  # who gave the order has warned already
    order: Order = pickle.loads(connection.recv_bytes())
    desk = _Desk(connection)
    try:
        run = _carry_out(order, desk)
    except BaseException as error:
        desk.report(Failure.of(error, order.number))
        sys.exit(1)
    desk.report(run)


def _settle(surroundings: Surroundings) -> None:
    sys.path[:] = surroundings.path
    if surroundings.python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = surroundings.python_path


def _carry_out(order: Order, desk: _Desk) -> ContainerRun:
    bring_names(order.names)
    task = None if order.task is None else unshipped(order.task)
    container = Container(
        order.config, task, model=order.model, number=order.number, generation=order.generation,
        remember_choices=0 if order.every_s is None else 1,
    )  # fmt: skip

    def give_up(error: StreambenchError) -> None:
        desk.report(Failure.of(error, order.number))
        os._exit(1)

    on_snapshot = None if order.every_s is None else desk.show
    driver = Driver(container, on_snapshot=on_snapshot, every_s=order.every_s or EVERY_S, on_hang=give_up)
    with StopSignals(driver.stop_soon, [signal.SIGTERM]):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        desk.attach(driver)
        return driver.run(order.until, desk.next_round)


class _Desk:
    """This process's side of the connection. It listens from the beginning: the other side may be gone before the container is made."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._driver: Driver | None = None
        self._stopped = threading.Event()
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def attach(self, driver: Driver) -> None:
        """From now on, a Stop is for this driver; also one that came before."""
        self._driver = driver
        if self._stopped.is_set():
            driver.stop_soon()

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
                said = self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)
            if isinstance(said, Stop):
                self._stopped.set()
                if self._driver is not None:
                    self._driver.stop_soon()
            self._answers.put(isinstance(said, Again))


def _plain(key: Any) -> Any:
    return key if key is None or type(key) in (str, bytes, int, float, bool) else represented(key)


if __name__ == "__main__":
    main()
