"""Two replays that advance alternately, so that both are as far when they are interrupted."""

from __future__ import annotations

from streambench.debug.control.session import Session
from streambench.debug.replay.replay import run_to_end
from streambench.debug.stopping.interrupt import noted_interrupts
from streambench.debug.stopping.slices import Progress, Slices
from streambench.errors import StreambenchError


class SideBySide:
    """Two sessions over the same messages. ``errors``: the failures that ended them. ``interrupted``: a
    KeyboardInterrupt ended them; both stand behind as many messages then."""

    def __init__(self, a: Session, b: Session) -> None:
        self.sessions = (a, b)
        self.errors: list[str | None] = [None, None]
        self.interrupted = False
        self._has_ended = [False, False]

    def run(self, total: int, progress: Progress) -> None:
        """Run both to their ends, to failures, or to an interrupt."""
        try:
            slices = Slices()
            with noted_interrupts() as interrupted:
                while not all(self._has_ended):
                    for at in range(2):
                        self._advance(at, slices.size)
                    slices.end()
                    progress(min(each.position for each in self.sessions), total)
                    if interrupted.is_set():
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            self.interrupted = True
            self._stand_alike()

    def _advance(self, at: int, count: int) -> None:
        session = self.sessions[at]
        if self._has_ended[at]:
            return
        try:
            if session.step(count) == count:
                return
            run_to_end(session)  # the windows behind the last message
        except StreambenchError as problem:
            self.errors[at] = str(problem)
        self._has_ended[at] = True

    def _stand_alike(self) -> None:
        """Have the one that is further go back to where the other stands."""
        for each in self.sessions:
            each.pause()
        both = zip(self.sessions, self._has_ended, strict=True)
        left = [session.position for session, has_ended in both if not has_ended]
        for session, error in zip(self.sessions, self.errors, strict=True):
            if error is None and left and session.position > min(left):
                session.goto(min(left))
