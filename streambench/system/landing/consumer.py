"""The consumer of a landed system in a container: it reads the log, and receives into it on a thread of its
own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import ClassVar

from streambench.chunk import ArrowChunk, Chunk
from streambench.errors import StreambenchError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.landing.admin import LandedAdmin, LandedLog
from streambench.system.landing.receiver import Receiver
from streambench.system.log.consumer import LogConsumer


class LandedConsumer(LogConsumer):
    """Reads what was landed. ``receiver`` works from ``start`` to ``stop``; what ends it ends the next poll.
    At its head a partition is only when all is read of it and the receiver, too, has nothing more to bring.
    """

    polled_by_loop: ClassVar[bool] = True

    def __init__(
        self,
        system: str,
        log: LandedLog,
        admin: LandedAdmin,
        metrics: MetricsRegistry,
        receiver: Receiver | None,
        stop_ms: int,
    ) -> None:
        """``receiver`` None: others receive. ``stop_ms``: how long a stop waits for it."""
        super().__init__(system, log, metrics)
        self._admin = admin
        self._receiver = receiver
        self._stop_ms = stop_ms
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._heads: frozenset[str] | None = None

    def start(self) -> None:
        try:
            for stream in sorted({ssp.system_stream for ssp in self._wanted}):
                self._admin.prepare(stream)
        finally:
            self._admin.close()
        super().start()
        if self._receiver is not None:
            self._thread = threading.Thread(
                target=self._receive, name=f"receiver of {self._system}", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(self._stop_ms / 1000)
        super().stop()
        if thread is not None and thread.is_alive():
            raise StreambenchError(
                f"the {thread.name} did not stop within {self._stop_ms} ms (task.shutdown.ms)"
            )

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        self._check_receiver()
        return super().poll_chunks(wanted, timeout_ms)

    def poll_batches(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[ArrowChunk]:
        self._check_receiver()
        return super().poll_batches(wanted, timeout_ms)

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        is_brought = self._receiver is None or (self._heads is not None and ssp.stream in self._heads)
        return is_brought and super().at_head(ssp)

    def _check_receiver(self) -> None:
        """Before the log is read: what the receiver brings afterwards does not count as read."""
        if self._failure is not None:
            raise self._failure
        if self._receiver is not None:
            self._heads = self._receiver.heads

    def _receive(self) -> None:
        assert self._receiver is not None
        try:
            self._receiver.run(self._stopping)
        except BaseException as error:
            self._failure = error
