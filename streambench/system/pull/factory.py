"""The factory that a simple plug-in derives from."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from streambench.config import Config
from streambench.errors import StreamSystemError, UnknownStreamError, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Sender, SystemFactory
from streambench.system.numbered import compare_numbers
from streambench.system.pull.admin import PullAdmin
from streambench.system.pull.api import StreamConsumer, StreamProducer
from streambench.system.pull.consumer import PullConsumer
from streambench.system.pull.positions import Positions
from streambench.system.pull.producer import PullProducer, check_bytes


class PullSystemFactory(SystemFactory):
    """Derive from it, write ``partitions`` and ``consumer``, name the class in ``systems.<s>.samza.factory``,
    and there is a system::

        class TableSystem(PullSystemFactory):
            def partitions(self, system, stream, config):
                return 1

            def consumer(self, system, stream, partition, offset, config):
                return TableReader(config.path(f"systems.{system}.path"), stream, offset)

    It has one reader thread for each partition with a queue that is bounded, and its errors name the
    partition. Everything else has a default: ``producer`` makes it writable; ``numbered`` (or ``compare``)
    gives offsets an order. ``bounds`` says how far a partition goes, and when it has caught up: when the
    newest message was read.

    A system **without bounds** has limits. Where nothing else is known, reading begins at the oldest message,
    whatever ``samza.offset.default`` says. No lag is shown, and it is no input of a batch on Spark. It has
    caught up when ``get_message`` returns None.

    A system **without an order** of offsets has another limit. A container that reads a broadcast partition
    for several tasks stops where those were committed at different offsets.

    The methods here are called on different threads, at any time: keep nothing that is not safe to share.
    ``config`` is the whole configuration; ``config.path(key)`` and ``config.text(key)`` read the plug-in's
    own keys below ``systems.<s>.``.
    """

    numbered: ClassVar[bool] = False
    """True if all offset ids are whole numbers that grow, with gaps or without. Reading then goes on at the
    number behind the last one processed, and the consumer begins at the first message that has the offset it
    was given or a higher one."""

    @property
    def creates_streams(self) -> bool:
        """True where ``create`` is overridden."""
        return type(self).create is not PullSystemFactory.create

    @abstractmethod
    def partitions(self, system: str, stream: str, config: Config) -> int:
        """The number of partitions a stream has; 0 where there is no such stream."""

    @abstractmethod
    def consumer(
        self, system: str, stream: str, partition: int, offset: str | None, config: Config
    ) -> StreamConsumer:
        """A new consumer of one partition; ``offset``: the first message wanted, inclusively, None for the
        first there is.

        Raises OffsetError where reading cannot begin there."""

    def producer(self, system: str, stream: str, config: Config) -> StreamProducer:
        """A new producer for a stream that is there."""
        raise StreamSystemError(f"a {type(self).__name__} has no producer")

    def bounds(self, system: str, stream: str, partition: int, config: Config) -> PartitionMetadata | None:
        """The offsets of the oldest and the newest message as of now, both None in an empty partition;
        ``upcoming`` may be left None. None where that is not known.

        They decide when a partition has caught up, and so when a bootstrap stream no longer blocks others:
        the newest message has to be read. Asked whenever ``get_message`` returns None, about ten times a
        second in a partition that is idle: keep it cheap."""
        return None

    def compare(self, offset: str, other: str) -> int | None:
        """Return a number below 0, 0 or above 0 as one offset id comes before, is, or comes after another
        one. None where that is not known."""
        return compare_numbers(offset, other) if self.numbered else None

    def after(self, offset: str) -> str | None:
        """The offset at which to continue after this one, None where that is not known. The consumer is then
        made at ``offset`` again, and what it reads there is skipped."""
        return str(int(offset) + 1) if self.numbered else None

    def create(self, system: str, stream: str, partitions: int, config: Config) -> None:
        """Create a stream that is not there yet, durably."""
        raise UnknownStreamError(
            f"there is no stream {system}.{stream}, and this kind of system cannot create one: do it by "
            "other means"
        )

    def streams(self, system: str, config: Config) -> list[str]:
        """The names of all streams; nothing where they are not known."""
        return []

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> PullConsumer:
        admin = self.get_admin(system, config, metrics)

        def make(ssp: SystemStreamPartition, offset: str | None) -> StreamConsumer:
            number = admin.partitions(ssp.system_stream)
            if ssp.partition >= number:
                raise no_partition(ssp.system_stream, ssp.partition, number)
            made = self.consumer(system, ssp.stream, ssp.partition, offset, config)
            self._check(made, StreamConsumer)
            return made

        def bounds(ssp: SystemStreamPartition) -> PartitionMetadata | None:
            return self.bounds(system, ssp.stream, ssp.partition, config)

        return PullConsumer(make, self._positions(config), bounds)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> PullProducer:
        def make(stream: SystemStream) -> StreamProducer:
            made = self.producer(system, stream.stream, config)
            self._check(made, StreamProducer)
            return made

        return PullProducer(make, self.get_admin(system, config, metrics).partitions)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> PullAdmin:
        return PullAdmin(self, system, config, self._positions(config))

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        """The check that keys and messages are bytes. A plug-in whose producers refuse more has its own."""

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            check_bytes(stream, key, message)

        return send

    def _check(self, made: object, kind: type[Any]) -> None:
        if not isinstance(made, kind):
            raise StreamSystemError(
                f"{type(self).__name__} made a {type(made).__name__}, not a {kind.__name__}"
            )

    def _positions(self, config: Config) -> Positions:
        are_ordered = self.numbered or type(self).compare is not PullSystemFactory.compare
        return Positions(
            compare_ids=self.compare,
            next_id=self.after,
            numbered=self.numbered,
            are_ordered=are_ordered,
            rewind=config.command("checkpoints --rewind PARTITION@OFFSET"),
        )
