"""Restart policy for the process of a container that died: the number of restarts, and the pauses."""

from __future__ import annotations

from msgspec import Struct

from streambench.config import Config

_PREFIX = "cluster-manager.container.retry."
_LONGEST_PAUSE_S = 30.0


class Restart(Struct, frozen=True):
    """A container's process died and is started again in ``pause_s`` seconds: for the ``attempt``-th time in
    quick succession, of ``of`` (None: without a bound). ``reason``: how it died."""

    container: int
    reason: str
    attempt: int
    of: int | None
    pause_s: float

    def __str__(self) -> str:
        bound = "" if self.of is None else f" of {self.of}"
        return (
            f"container {self.container}: {self.reason}; it is started again in {self.pause_s:g} s "
            f"({self.attempt}{bound})"
        )


class Restarts:
    """The restarts of one container.

    Samza's rule: a container that dies more than ``count`` times, each time within ``window_s`` seconds after
    the time before, has a deeper problem. The pause doubles with each of these times.
    """

    def __init__(self, container: int, count: int, window_s: float, pause_s: float) -> None:
        """``count`` 0: it is never started again; negative: always."""
        self.done = 0
        self._container = container
        self._count = count
        self._window_s = window_s
        self._pause_s = pause_s
        self._in_a_row = 0
        self._died_at: float | None = None

    @classmethod
    def of(cls, config: Config, container: int) -> Restarts:
        """As ``cluster-manager.container.retry.*`` says. Raises ConfigError."""
        pause, window = (f"{_PREFIX}{name}" for name in ("delay.ms", "window.ms"))
        for key in (pause, window):
            if config.integer(key) < 0:
                raise config.error(key, f"{config[key]} is less than nothing: give milliseconds, 0 or more")
        return cls(
            container,
            config.integer(f"{_PREFIX}count"),
            config.integer(window) / 1000,
            config.integer(pause) / 1000,
        )

    def after_death(self, reason: str, now: float) -> Restart | None:
        """The restart after the process died at ``now`` (monotonic seconds); None: it died too often."""
        quick = self._died_at is not None and now - self._died_at < self._window_s
        self._in_a_row = self._in_a_row + 1 if quick else 1
        self._died_at = now
        if 0 <= self._count < self._in_a_row:
            return None
        self.done += 1
        pause = min(self._pause_s * 2 ** min(self._in_a_row - 1, 30), max(_LONGEST_PAUSE_S, self._pause_s))
        return Restart(
            self._container, reason, self._in_a_row, self._count if self._count > 0 else None, pause
        )

    def gave_up(self) -> str:
        """For the end of the sentence about the last death."""
        if self._count == 0:
            return f"; {_PREFIX}count=0, so it was not started again"
        return f"; it has died {self._in_a_row} times in quick succession ({_PREFIX}count={self._count})"
