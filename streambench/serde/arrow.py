"""Arrow: each message is a batch of rows, as an Arrow IPC stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streambench.errors import SerdeError
from streambench.serde.api import Serde


class ArrowSerde(Serde):
    """pyarrow RecordBatches and Tables: what was sent as the one comes back as the one, with its schema and
    metadata.

    Streams written by others: one batch is read as a RecordBatch, any other number as a Table.
    """

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, (pa.RecordBatch, pa.Table)):
            raise TypeError(f"takes a pyarrow RecordBatch or Table, not {type(value).__name__}")
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, value.schema) as writer:
            if isinstance(value, pa.RecordBatch):
                writer.write_batch(value)
            else:
                batches = value.to_batches()
                for batch in batches:
                    writer.write_batch(batch)
                if len(batches) == 1:
                    # So that it is not read as a RecordBatch.
                    writer.write_batch(batches[0].slice(0, 0))
        data: bytes = out.getvalue().to_pybytes()
        return data

    def from_bytes(self, data: bytes) -> Any:
        source = pa.BufferReader(data)
        try:
            with pa.ipc.open_stream(source) as reader:
                batches = list(reader)
                schema = reader.schema
            for batch in batches:
                # Wrong offsets in it would be followed to anywhere in memory.
                batch.validate(full=True)
        except MemoryError as error:
            raise SerdeError(f"the message announces more than it holds: {error}") from error
        if source.tell() != len(data):
            raise SerdeError(f"{len(data) - source.tell()} bytes are left over behind the Arrow stream")
        return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches, schema)
