"""Encoded messages that tasks hand to the driver, which writes them in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from streambench.model import SystemStream, SystemStreamPartition
from streambench.rows import Rows
from streambench.system.log.staging import STAGED


class HandedRows:
    """The messages of one task, by partition."""

    def __init__(self) -> None:
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    def send(self, source: str, partition: int, columns: pa.RecordBatch) -> None:
        """Take encoded messages, as a ``SendColumns`` does."""
        self._batches.setdefault(partition, []).append(columns.cast(STAGED))

    def packed(self) -> dict[int, bytes]:
        """All of them, as they travel: per partition a stream of Arrow, compressed."""
        return {number: _packed(batches) for number, batches in self._batches.items()}


def unpacked(stream: SystemStream, tasks: Sequence[Mapping[int, bytes]]) -> list[Rows]:
    """The messages of tasks, in the order of the tasks; each partition once."""
    found: dict[int, Rows] = {}
    for task in tasks:
        for number, data in task.items():
            rows = found.setdefault(number, Rows(stream.partition(number), [], []))
            for batch in _batches(data):
                rows.extend(_rows(rows.ssp, batch))
    return [found[number] for number in sorted(found)]


def _packed(batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, STAGED, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _batches(data: bytes) -> Iterable[pa.RecordBatch]:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        yield from reader


def _rows(ssp: SystemStreamPartition, batch: pa.RecordBatch) -> Rows:
    timestamps, headers = batch.column(2), batch.column(3)
    return Rows(
        ssp,
        batch.column(0).to_pylist(),
        batch.column(1).to_pylist(),
        None if timestamps.null_count == len(batch) else timestamps.to_pylist(),
        None
        if headers.null_count == len(batch)
        else [None if each is None else dict(each) for each in headers.to_pylist()],
    )
