"""A connection on a thread of its own: it answers the broker's heartbeats however long a task takes, and
reconnects."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pika.exceptions import AMQPError

from streambench.errors import StreambenchError, StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.system.amqp.broker import explained, parameters
from streambench.system.amqp.frames import Connection
from streambench.system.amqp.settings import Settings

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_LASTING_S = 2.0
_SMALLEST_FRAME = 4096
_AROUND_FRAME = 8


class Link:
    """Keeps one connection to a broker.

    ``opened(connection)`` is called on the link's thread whenever there is a new connection, and ``lost()``
    whenever that is gone. ``failed(error)`` is called once, when it does not return (``patience.ms``), or
    never for long. Nothing is called after that.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        metrics: MetricsRegistry,
        *,
        opened: Callable[[Any], None],
        lost: Callable[[], None],
        failed: Callable[[StreambenchError], None],
    ) -> None:
        self._settings = settings
        self._parameters = parameters(settings)
        self._reconnects = metrics.counter(f"{settings.system}-reconnects", "amqp")
        self._opened = opened
        self._lost = lost
        self._failed = failed
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._is_decided = threading.Event()
        self._stopping = threading.Event()
        self._start_error: StreambenchError | None = None
        self._lock = threading.Lock()
        self._connection: Any = None
        self._reason: BaseException | None = None
        self._is_open = False
        self._opened_at: float | None = None
        self.is_blocked = False
        """True if the broker takes no messages for now: it lacks memory or disk."""
        self.frame_bytes = _SMALLEST_FRAME
        """The size limit for the properties of a message, as agreed with the broker."""

    def start(self) -> None:
        """Return when there is a connection. Raises StreamSystemError where there is none."""
        self._thread.start()
        self._is_decided.wait()
        if self._start_error is not None:
            raise self._start_error

    def call(self, what: Callable[[], None]) -> None:
        """Have ``what`` called on the link's thread, soon and in order; without a connection nothing is
        called."""
        with self._lock:
            if self._connection is not None and self._is_open:
                self._connection.ioloop.add_callback_threadsafe(what)

    def stop(self) -> None:
        """Close the connection, after what was asked for by ``call``; may be called more than once, and
        without ``start``.

        A broker that does not answer in time is left behind. Raises StreamSystemError where even that takes
        too long.
        """
        self._stopping.set()
        self._soon(self._close)
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        limit = (
            f"within {self._settings.connect_s:g} seconds "
            f"(systems.{self._settings.system}.connect.timeout.ms)"
        )
        self._thread.join(self._settings.connect_s)
        if self._thread.is_alive():
            log.warning(
                "%s: the broker at %s did not answer %s; the connection is cut",
                self._thread.name,
                self._settings.name,
                limit,
            )
            self._soon(self._cut)
            self._thread.join(self._settings.connect_s)
        if self._thread.is_alive():
            raise StreamSystemError(f"the {self._thread.name} did not stop {limit}")

    def abort(self, error: StreambenchError) -> None:
        """Give up: on the link's thread, for a reason that another connection would not mend."""
        self._stopping.set()
        self._failed(error)
        self._close()

    def _close(self) -> None:
        connection = self._connection
        if connection is not None and not (connection.is_closing or connection.is_closed):
            connection.close()

    def _cut(self) -> None:
        connection = self._connection
        if connection is not None and not connection.is_closed:
            # As pika itself does when no heartbeat comes.
            connection._terminate_stream(ConnectionError("it did not answer"))

    def _soon(self, what: Callable[[], None]) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.ioloop.add_callback_threadsafe(what)

    def _live(self) -> None:
        pause, gone_since = _FIRST_PAUSE_S, None
        while not self._stopping.is_set():
            self._opened_at = None
            try:
                self._connect_and_serve()
            except (AMQPError, OSError) as error:
                self._reason = error
                if self._opened_at is not None:
                    self._lost()
            except Exception as error:
                self._stopping.set()
                self._failed(explained(self._settings, error))
                break
            if self._stopping.is_set():
                break
            why = explained(self._settings, self._reason or ConnectionError("the connection was closed"))
            if not self._is_decided.is_set():
                self._start_error = why
                break
            now = time.monotonic()
            if self._opened_at is not None:
                log.warning("%s: the connection is gone (%s); trying again", self._thread.name, why)
            # One that is lost at once, again and again, is as good as none.
            if gone_since is None or (self._opened_at is not None and now - self._opened_at >= _LASTING_S):
                pause, gone_since = _FIRST_PAUSE_S, now
            elif now - gone_since > self._settings.patience_s:
                self._stopping.set()
                self._failed(why)
                break
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        self._is_decided.set()

    def _connect_and_serve(self) -> None:
        """One connection, from its beginning to its end."""
        connection = Connection(
            self._parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_open_error,
            on_close_callback=self._on_close,
        )
        with self._lock:
            self._connection = connection
        try:
            if not self._stopping.is_set():
                connection.ioloop.start()
        finally:
            with self._lock:
                self._connection = None
                self._is_open = False
                connection.ioloop.close()

    def _on_open(self, connection: Any) -> None:
        self._is_open = True
        self._opened_at = time.monotonic()
        self.is_blocked = False
        self.frame_bytes = connection.params.frame_max - _AROUND_FRAME
        connection.add_on_connection_blocked_callback(lambda *_: self._set_blocked(True))
        connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(False))
        if self._stopping.is_set():
            connection.close()
            return
        if self._is_decided.is_set():
            self._reconnects.inc()
        self._opened(connection)
        self._is_decided.set()

    def _on_open_error(self, connection: Any, error: BaseException) -> None:
        self._reason = error
        connection.ioloop.stop()

    def _on_close(self, connection: Any, reason: BaseException) -> None:
        self._reason = reason
        self._is_open = False
        self._lost()
        connection.ioloop.stop()

    def _set_blocked(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked
        if is_blocked:
            log.warning(
                "%s: the broker lacks memory or disk, and takes no messages for now", self._thread.name
            )
