"""Takeovers: a session that stands still notices that another start of its job has taken over."""

from __future__ import annotations

import logging
import threading
import weakref

from streambench.debug.control.driving import notice_waiting
from streambench.debug.control.stops import Stops
from streambench.debug.past.past import Past
from streambench.errors import StreambenchError

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5


class TakenOver(Stops):
    """A session whose job another process may take over.

    A run notices that by itself. In a session that stands still no loop runs, and the other process would
    wait for its stores where these keep files. So a thread looks at the claim, and has the container fail
    between two steps."""

    _takeover: StreambenchError | None = None

    @property
    def is_takeover_unreported(self) -> bool:
        """True where another process has taken over, and no command has said so yet. Waits for the thread
        that closes the container: only then it is known why."""
        while self.container.state == "failed" and not self._is_driver and not self._stands_still(None):
            notice_waiting()
        return self._takeover is not None

    def report_takeover(self) -> None:
        """Raise FencedError, once, where another process has taken over and no command has said so yet; or
        what reading its record raised."""
        if self.is_takeover_unreported:
            error, self._takeover = self._takeover, None
            assert error is not None
            raise error

    def notice_takeover(self) -> None:
        """Fail the container where another process has taken over. Nothing happens while another thread
        drives it. A branch is not dropped: it notices when it has returned to the newest position."""
        if not self.container.is_replaced or not self._driving.acquire(blocking=False):
            return
        try:
            if self._thread is None and not self.branched:
                with self._hold():
                    self._noted(self.container.fail_if_replaced)
        except StreambenchError as error:
            self.error = self._takeover = error
            self._reopen_past()
        finally:
            self._driving.release()
        if self._takeover is not None:
            self._changed()

    def _reopen_past(self) -> None:
        """Stand at the same position of the past, over the entries that were kept of the closed stores. Where
        none were, return to the newest position."""
        past, self._past = self._past, None
        if past is not None and past.history.is_kept:
            again = Past(past.history)
            again.go_to(past.position)
            self._past = again

    def _require_running(self) -> None:
        self.report_takeover()
        super()._require_running()

    def _watch_claim(self) -> None:
        """Look for a takeover until the container has released its stores, where these keep files."""
        runtime = self.container.runtime
        if runtime.task_stores.locks_files and runtime.checkpoints.directory is not None:
            threading.Thread(
                target=_watch, args=[weakref.ref(self)], name=f"claim of {self.name}", daemon=True
            ).start()


def _watch(watched: weakref.ref[TakenOver]) -> None:
    """Look from time to time, until the session is closed or gone."""
    pause = threading.Event()
    while True:
        pause.wait(_LOOK_EVERY_S)
        session = watched()
        if session is None or session.container.is_released:
            return
        try:
            session.notice_takeover()
        except BaseException:
            # What closing its tasks raises is logged by the container.
            log.debug("%s: while a takeover was noticed", session.name, exc_info=True)
        del session
