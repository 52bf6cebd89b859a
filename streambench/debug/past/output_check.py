"""The check of outputs that nothing sends: it refuses what the outbox of a container does."""

from __future__ import annotations

from typing import Any

from streambench.container.outputs.outbox import Outbox, stream_of
from streambench.container.outputs.outgoing_batch import (
    ColumnarWriter,
    OutgoingBatch,
    RowReport,
    skip_oversized,
)
from streambench.container.outputs.stream_writers import OnUnserialisable, Write, stream_writer
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.streams import StreamSerdes
from streambench.system.api import Sender
from streambench.system.systems import Systems

_MANY = 1 << 16
"""The partitions of a stream that the container has not sent to: their number is not known."""


class OutputCheck:
    """Encodes outputs, and calls ``refuse`` with those that can be sent to no system, or to no partition of
    their stream. Likewise with those that the producer of their system refuses (``Checking``).

    ``outbox``: that of the container, which knows the partitions and limits of the streams it has sent to."""

    def __init__(
        self, outbox: Outbox, systems: Systems, serdes: StreamSerdes, refuse: OnUnserialisable
    ) -> None:
        self._outbox = outbox
        self._systems = systems
        self._serdes = serdes
        self._on_refused = refuse
        self._has_refused = False
        self._single: dict[SystemStream, Write] = {}
        self._columns: dict[SystemStream, Write] = {}

    def __call__(self, task: str, output: Any) -> bool:
        """Check an output; false where ``refuse`` was called with it as a whole. A batch notes its own rows.
        Raises what ``refuse`` raises, and SerdeError for what is no message."""
        self._has_refused = False
        if isinstance(output, OutgoingBatch):
            put = self._columns.get(output.stream) or self._columns_to(output.stream)
        else:
            stream = stream_of(task, output)
            put = self._single.get(stream) or self._single_to(stream)
        put(task, output)
        return not self._has_refused or isinstance(output, OutgoingBatch)

    def _refuse(self, task: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
        self._on_refused(task, envelope, error)
        self._has_refused = True

    def _single_to(self, stream: SystemStream) -> Write:
        serdes, send = self._serdes.for_stream(stream), self._sender_to(stream)
        made = stream_writer(stream, send, None, self._partitions(stream), *serdes, self._refuse)
        self._single[stream] = made.put
        return made.put

    def _columns_to(self, stream: SystemStream) -> Write:
        serdes, send = self._serdes.for_stream(stream), self._sender_to(stream)
        report, count = RowReport(self._refuse), self._partitions(stream)
        single = stream_writer(stream, send, None, count, *serdes, report).put
        columns = skip_oversized(stream, None, send, report)
        put = ColumnarWriter(stream, columns, single, count, *serdes, report).put
        self._columns[stream] = put
        return put

    def _partitions(self, stream: SystemStream) -> int:
        return self._outbox.streams.get(stream, _MANY)

    def _sender_to(self, stream: SystemStream) -> Sender:
        """A sender that sends nothing."""
        return self._systems.check(self._systems.output(stream), self._outbox.size_limits.get(stream))
