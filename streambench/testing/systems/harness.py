"""A system under test, and what its tests have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from streambench.config import Config
from streambench.errors import do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    OLDEST,
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import SystemAdmin, SystemConsumer, SystemProducer
from streambench.system.systems import Systems

SYSTEM = "sys"
SOURCE = "Partition 0"
_FIRST_WAIT_MS = 5
_WAIT_MS = 250

_Test = TypeVar("_Test", bound=Callable[..., None])
_Error = TypeVar("_Error", bound=Exception)
Envelopes = list[IncomingMessageEnvelope]


def needs(*abilities: str) -> Callable[[_Test], _Test]:
    """Marks a test of what not every system has."""

    def mark(test: _Test) -> _Test:
        test.needs = abilities  # type: ignore[attr-defined]
        return test

    return mark


class SystemUnderTest:
    """A system under test, with one stream."""

    def __init__(self, settings: Mapping[str, Any], directory: Path) -> None:
        self.directory = directory
        self.config = Config({f"systems.{SYSTEM}.{name}": value for name, value in settings.items()})
        self.systems = Systems(self.config)
        self.stream = SystemStream(SYSTEM, "stream")
        self._producer: SystemProducer | None = None
        self._consumers: list[SystemConsumer] = []

    @property
    def admin(self) -> SystemAdmin:
        return self.systems.admin(SYSTEM)

    @property
    def producer(self) -> SystemProducer:
        if self._producer is None:
            self._producer = self.new_producer()
        return self._producer

    def ssp(self, partition: int = 0) -> SystemStreamPartition:
        return SystemStreamPartition(self.stream.system, self.stream.stream, partition)

    def metadata(self, partition: int = 0) -> PartitionMetadata:
        return self.admin.metadata([self.stream])[self.stream][partition]

    def start(self, here: PartitionMetadata) -> str:
        """Oldest offset of a partition."""
        return here.oldest or here.upcoming or OLDEST

    def new_producer(self) -> SystemProducer:
        producer = self.systems.producer(SYSTEM, MetricsRegistry())
        producer.register(SOURCE)
        producer.start()
        return producer

    def new_consumer(self) -> SystemConsumer:
        consumer = self.systems.consumer(SYSTEM, MetricsRegistry())
        self._consumers.append(consumer)
        return consumer

    def consumer(self, starts: Mapping[SystemStreamPartition, str]) -> SystemConsumer:
        """A consumer at work."""
        consumer = self.new_consumer()
        for ssp, offset in starts.items():
            consumer.register(ssp, offset)
        consumer.start()
        return consumer

    def send(
        self,
        message: Any,
        *,
        key: Any = None,
        partition: int = 0,
        timestamp: int | None = None,
        headers: Any = None,
    ) -> None:
        self.producer.send(
            SOURCE, OutgoingMessageEnvelope(self.stream, message, key, None, partition, timestamp, headers)
        )

    def flush(self) -> None:
        self.producer.flush(SOURCE)

    @staticmethod
    def wait_ms(consumer: SystemConsumer) -> int:
        """Timeout with which a container would poll."""
        return 0 if consumer.polled_by_loop else _WAIT_MS

    def drain(self, consumer: SystemConsumer, *ssps: SystemStreamPartition) -> Envelopes:
        """Messages that a consumer returns of some partitions (the first one, if none is named) until they
        are at their heads."""
        wanted, found = dict.fromkeys(ssps or [self.ssp()], 1_000), []
        wait_ms = _FIRST_WAIT_MS
        while True:
            found += consumer.poll(wanted, min(wait_ms, self.wait_ms(consumer)))
            if all(map(consumer.at_head, wanted)):
                return found
            wait_ms *= 2

    def read(self, start: str, ssp: SystemStreamPartition | None = None) -> Envelopes:
        """Messages that a partition (the first one, if none is named) holds from an offset on."""
        ssp = ssp or self.ssp()
        consumer = self.consumer({ssp: start})
        try:
            return self.drain(consumer, ssp)
        finally:
            consumer.stop()

    def read_all(self, partitions: int) -> dict[SystemStreamPartition, Envelopes]:
        """Messages that so many partitions hold, read by one consumer."""
        starts = {self.ssp(number): self.start(self.metadata(number)) for number in range(partitions)}
        found: dict[SystemStreamPartition, Envelopes] = {ssp: [] for ssp in starts}
        for each in self.drain(self.consumer(starts), *starts):
            found[each.ssp].append(each)
        return found

    def close(self) -> None:
        do_all([each.stop for each in self._consumers])
        if self._producer is not None:
            self._producer.stop()
        self.systems.close()


class Harness(ABC):
    """Abilities that a system is said to have, and how its tests get at it."""

    requires: ClassVar[tuple[str, ...]] = ()
    """The fixtures that all tests of a class need, beside what each of them is marked with."""

    replayable: ClassVar[bool] = True
    """True where what was read can be read again, from an offset (``SystemAdmin.replayable``). Where not, the
    tests of ``Deliveries`` take the place of those of reading again."""
    redelivers: ClassVar[bool] = False
    """Of a system that is not replayable: it keeps by itself what was not acknowledged, and gives it to the
    next consumer; else its sender does."""

    most_partitions: ClassVar[int] = 20
    """Largest number of partitions of a stream."""
    keys: ClassVar[bool] = True
    """Messages have keys."""
    chooses_partitions: ClassVar[bool] = True
    """A message goes to the partition that it names."""
    tombstones: ClassVar[bool] = True
    """A message may be None."""
    empty_messages: ClassVar[bool] = True
    """A message may be b""."""
    any_bytes: ClassVar[bool] = True
    """A message may be any bytes; else it is text in one line."""
    timestamps: ClassVar[bool] = True
    """Messages keep the timestamp with which they were sent."""
    headers: ClassVar[bool] = True
    """Messages have headers."""
    ordered: ClassVar[bool] = True
    """Offsets can be compared."""
    bounds: ClassVar[bool] = True
    """The admin knows where partitions begin and end."""
    creates: ClassVar[bool] = True
    """The admin creates streams."""
    deletes: ClassVar[bool] = True
    """The admin deletes streams."""
    grows: ClassVar[bool] = True
    """The admin adds partitions."""
    lists: ClassVar[bool] = True
    """The admin lists which streams there are."""
    survives: ClassVar[bool] = True
    """Durable data is there for the next process."""
    large: ClassVar[int] = 5 << 20
    """Messages may have so many bytes."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.several_partitions = cls.most_partitions > 1 and cls.chooses_partitions
        cls.transient = not cls.replayable
        if "requires" in vars(cls):
            for name, test in vars(cls).items():
                if name.startswith("test_"):
                    test.needs = (*cls.requires, *getattr(test, "needs", ()))
            return
        for name in dir(cls):
            test = next((found for each in cls.__mro__ if (found := vars(each).get(name)) is not None), None)
            needed = getattr(test, "needs", ())
            if needed:
                setattr(cls, name, test if all(getattr(cls, ability) for ability in needed) else None)

    several_partitions: ClassVar[bool] = True
    transient: ClassVar[bool] = False

    @abstractmethod
    def settings(self, directory: Path) -> Mapping[str, Any]:
        """The settings below ``systems.sys.`` in a job's configuration. The system may keep its files in
        ``directory``; a second call with the same one is what the next process does."""

    def create(self, system: SystemUnderTest, name: str, partitions: int) -> None:
        """Make a stream, by whatever means."""
        system.admin.create(SystemStream(SYSTEM, name), partitions)

    def message(self, number: int) -> bytes:
        """A message that differs from others by its number."""
        return b'{"n":%d}' % number

    @contextmanager
    def _opened(
        self, directory: Path, partitions: int = 1, *, create: bool = True
    ) -> Iterator[SystemUnderTest]:
        with closing(SystemUnderTest(self.settings(directory), directory)) as system:
            if create:
                self.create(system, system.stream.stream, partitions)
            yield system

    def _send(self, system: SystemUnderTest, numbers: Iterable[int]) -> list[Any]:
        """Send messages to the first partition, durably."""
        messages = list(map(self.message, numbers))
        for message in messages:
            system.send(message)
        system.flush()
        return messages

    def _first(self, system: SystemUnderTest) -> str:
        return system.start(system.metadata())


def raised(kind: type[_Error], call: Callable[[], object]) -> _Error:
    """The error of a kind that a call raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")
