"""Detects that Kafka acknowledges nothing of what was sent."""

from __future__ import annotations

import time

from streambench.system.kafka.settings import Settings

STALLED_S = 20.0
"""The time (s) without any acknowledgement after which the producer is given up for a new one. When a broker
dies, another has taken its place after ten seconds at most, and kafka-python has found it within a second or
two; a producer that has not by then may never do, and there is nothing to lose by another one. Shorter, and
brokers that are merely slow would be sent everything again and again."""

_LOOKS = 4


class StallDetector:
    """Looks at what is waited for, now and then."""

    def __init__(self, settings: Settings) -> None:
        self.most_s = min(STALLED_S + int(settings.producer["linger_ms"]) / 1000, settings.patience_ms / 1000)
        self._look_s = self.most_s / _LOOKS
        self._done = 0
        self.begin()

    def begin(self) -> None:
        """Start to watch: an acknowledgement is expected from now on."""
        self._moved = time.monotonic()

    def wait_s(self, until: float) -> float:
        """The time (s) to wait before the next look, which is not much later than ``until``."""
        return max(0.1, min(self._look_s, until - time.monotonic()))

    def has_stalled(self, done: int) -> bool:
        """True where nothing has moved for too long. ``done``: the number of acknowledgements until now, in
        all."""
        now = time.monotonic()
        if done != self._done:
            self._done, self._moved = done, now
        return now - self._moved > self.most_s
