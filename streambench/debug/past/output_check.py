"""The check of outputs that nothing sends: it refuses what the outbox of a container does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambench.container.outputs.outbox import stream_of
from streambench.container.outputs.outgoing_batch import ColumnarWriter, OutgoingBatch
from streambench.container.outputs.stream_writers import OnUnserialisable, Write, stream_writer
from streambench.model import SystemStream
from streambench.serde.streams import StreamSerdes

_MANY = 1 << 16
"""The partitions of a stream that the container has not sent to: their number is not known."""


class OutputCheck:
    """Encodes outputs, and calls ``refuse`` with those that can be sent to no system, or to no partition of
    their stream. A limit of one system, such as its largest message, is not known here.

    ``partitions``: those of the streams that the container has sent to."""

    def __init__(
        self, partitions: Mapping[SystemStream, int], serdes: StreamSerdes, refuse: OnUnserialisable
    ) -> None:
        self._partitions = partitions
        self._serdes = serdes
        self._refuse = refuse
        self._single: dict[SystemStream, Write] = {}
        self._columns: dict[SystemStream, Write] = {}

    def __call__(self, task: str, output: Any) -> None:
        """Check one output. Raises what ``refuse`` raises, and SerdeError for what is no message."""
        if isinstance(output, OutgoingBatch):
            put = self._columns.get(output.stream) or self._columns_to(output.stream)
        else:
            stream = stream_of(task, output)
            put = self._single.get(stream) or self._single_to(stream)
        put(task, output)

    def _single_to(self, stream: SystemStream) -> Write:
        serdes, count = self._serdes.for_stream(stream), self._partitions.get(stream, _MANY)
        made = stream_writer(stream, _send_nothing, None, count, *serdes, self._refuse)
        self._single[stream] = made.put
        return made.put

    def _columns_to(self, stream: SystemStream) -> Write:
        serdes, count = self._serdes.for_stream(stream), self._partitions.get(stream, _MANY)
        put = ColumnarWriter(stream, _send_nothing, self, count, *serdes, self._refuse).put
        self._columns[stream] = put
        return put


def _send_nothing(*message: Any) -> None:
    """Take an encoded message, or columns of them."""
