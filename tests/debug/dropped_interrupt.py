"""An interrupt that Python drops."""

from __future__ import annotations

import signal
import weakref


class DroppedInterrupt:
    """Ctrl-C while the callback of a weak reference runs: Python drops the KeyboardInterrupt. Those
    of temporary directories run all the time."""

    def __init__(self) -> None:
        self._thing: set[int] | None = {1}
        self._callback = weakref.ref(self._thing, lambda _: signal.raise_signal(signal.SIGINT))

    def press(self) -> None:
        """Press Ctrl-C, the first time that this is called."""
        self._thing = None
        assert self._callback() is None
