"""From ``systems.<s>.*`` to the parts of a file system."""

from __future__ import annotations

from typing import Any, ClassVar

from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.api import Sender, SystemFactory
from streambench.system.file.admin import FileAdmin
from streambench.system.file.consumer import FileConsumer
from streambench.system.file.line_check import check_line
from streambench.system.file.producer import FileProducer
from streambench.system.file.streams import SETTINGS, FileStreams


class FileSystemFactory(SystemFactory):
    """``systems.<s>.samza.factory=file``. ``systems.<s>.path`` is a file, or the directory with the files of
    all streams.

    **Offsets** are byte positions. The offset of a message is the position of its last byte (usually of the
    newline), so that the next message begins one byte later. To begin at a position is to begin with the
    message that holds this byte. Of a compressed file the positions are those of its contents, and beginning
    in its middle means to read up to there.

    **Messages** are, by format: of ``jsonl`` the lines as they are, without blank ones; of ``text`` all
    lines. Of ``csv`` they are the rows as JSON objects of strings, named by the header. ``key.field`` takes
    the key from a field. ``follow=false``: a stream ends where its file ended when reading began, with or
    without a newline. ``follow=true``: what is appended is read as it comes, whole lines only.

    **A file that replaces another one** is recognised by its beginning: a checkpoint remembers the first 4096
    bytes of what was processed. Where they differ, ``samza.offset.default`` says where the new file is begun.
    """

    keys: ClassVar[frozenset[str] | None] = SETTINGS.system_names
    settings: ClassVar[tuple[Key, ...]] = SETTINGS.keys
    is_local: ClassVar[bool] = True
    holds_changelogs: ClassVar[bool] = False
    keeps_headers: ClassVar[bool] = False
    creates_streams = False

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> FileConsumer:
        return FileConsumer(FileStreams(system, config))

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> FileProducer:
        return FileProducer(FileStreams(system, config))

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> FileAdmin:
        return FileAdmin(FileStreams(system, config))

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        streams = FileStreams(system, config)
        try:
            files = streams.partitions(stream.stream)
        except StreamSystemError:
            files = [streams.new_file(stream.stream)]  # a replay elsewhere

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            file = files[min(partition, len(files) - 1)]
            name = f"{stream}.{partition}"
            check_line(name, file.path, is_json=file.format == "jsonl", message=message)

        return send
