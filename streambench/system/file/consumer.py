"""The consumer of files: one reader for each partition, polled by the event loop itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streambench.chunk import Unreadable
from streambench.errors import no_partition
from streambench.model import SystemStreamPartition
from streambench.system.adapters import ChunkConsumer
from streambench.system.api import Chunk
from streambench.system.file.reader import Reader, reader_of
from streambench.system.file.streams import FileStreams
from streambench.system.numbered import to_number


class FileConsumer(ChunkConsumer):
    """Reads partitions of one file system."""

    polled_by_loop: ClassVar[bool] = True

    def __init__(self, streams: FileStreams) -> None:
        self._streams = streams
        self._wanted: dict[SystemStreamPartition, int] = {}
        self._readers: dict[SystemStreamPartition, Reader] = {}

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._wanted[ssp] = to_number(offset, ssp)

    def start(self) -> None:
        files = {
            stream: self._streams.partitions(stream)
            for stream in sorted({ssp.stream for ssp in self._wanted})
        }
        for ssp, position in self._wanted.items():
            if ssp.partition >= len(files[ssp.stream]):
                raise no_partition(ssp.system_stream, ssp.partition, len(files[ssp.stream]))
            self._readers[ssp] = reader_of(files[ssp.stream][ssp.partition], position)

    def stop(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        chunks = []
        for ssp, at_most in wanted.items():
            reader = self._readers[ssp]
            read = reader.read(at_most) if at_most > 0 else None
            if read is None:
                continue
            offsets = list(map(str, read.ends))
            if read.broken is None:
                chunks.append(Chunk(ssp, offsets, read.keys, read.messages))
            else:
                chunks.append(Unreadable(ssp, offsets, read.keys, read.messages, error=read.broken.error()))
        return chunks

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        reader = self._readers.get(ssp)
        return reader is not None and reader.at_head

    def at_end(self, ssp: SystemStreamPartition) -> bool:
        reader = self._readers.get(ssp)
        return reader is not None and reader.at_head and reader.is_bounded
