"""The outputs of a replay: they stay in memory, and are refused where their recorded system refuses them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from streambench.errors import StreambenchError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.recording.recording import Recording
from streambench.rows import Rows
from streambench.system.api import Sender, accept
from streambench.system.memory import MemoryProducer, MemoryStreams, MemorySystemFactory
from streambench.system.systems import Systems

log = logging.getLogger(__name__)


class RecordedChecks:
    """The checks of the streams of a recorded job, by its configuration and by the limits that brokers gave
    it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._systems = Systems(recording.config, MemorySystemFactory())

    def is_in_memory(self, system: str) -> bool:
        """True for a system that is in memory in the recorded job, too."""
        try:
            return type(self._systems.factory(system)) is MemorySystemFactory
        except StreambenchError:
            return False

    def of(self, stream: SystemStream) -> Sender:
        """The check of a stream. One that is not known here, such as that of a plug-in of another machine,
        accepts everything. A warning says so, once for all replays of a shrink."""
        try:
            return self._systems.check(stream, self._recording.size_limits.get(stream))
        except StreambenchError as error:
            if stream.system not in self._recording.warned_of:
                self._recording.warned_of.add(stream.system)
                log.warning(
                    "%s: the limits of '%s' are not known here, so this replay refuses no output to it: %s",
                    self._recording.job, stream.system, error,
                )  # fmt: skip
            return accept


class CheckedProducer(MemoryProducer):
    """A producer in memory that checks each message first. ``check_of``: the check of a stream."""

    def __init__(self, streams: MemoryStreams, check_of: Callable[[SystemStream], Sender]) -> None:
        super().__init__(streams)
        self._check_of = check_of
        self._checks: dict[SystemStream, Sender] = {}

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        check = self._check(envelope.system_stream)
        check(source, envelope, envelope.key, envelope.message, envelope.partition or 0)
        super().send(source, envelope)

    def sender(self, stream: SystemStream) -> Sender:
        check, send = self._check(stream), super().sender(stream)

        def checked(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            check(source, envelope, key, message, partition)
            send(source, envelope, key, message, partition)

        return checked

    def check_sizes(self, rows: Rows) -> None:
        stream, number = rows.ssp.system_stream, rows.ssp.partition
        check = self._check(stream)
        for key, message in zip(rows.keys, rows.messages, strict=True):
            check("", OutgoingMessageEnvelope(stream, message, key, None, number), key, message, number)

    def _check(self, stream: SystemStream) -> Sender:
        if stream not in self._checks:
            self._checks[stream] = self._check_of(stream)
        return self._checks[stream]
