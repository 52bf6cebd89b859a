"""The admin of a Kafka system: topics, made, grown and deleted, and where their partitions begin and end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import OffsetSpec

from streambench.errors import ConfigError, StreamExistsError, StreamSystemError, UnknownStreamError
from streambench.model import StreamsMetadata, SystemStream, SystemStreamPartition
from streambench.system.kafka.clients import (
    LookUps,
    new_admin,
    no_topic,
    slow_logged,
    translated,
    unreachable,
)
from streambench.system.kafka.hanging import OpenTransaction, find_open, still_hanging
from streambench.system.kafka.settings import CHECKPOINTS, DEPLOYMENTS, Settings
from streambench.system.kafka.topics import describe_topics, is_unknown
from streambench.system.numbered import NumberedAdmin, numbered_metadata

_UNTIL_KNOWN_S = 15.0
_AGAIN_S = 0.1
_GLANCE_MS = 2_000
_REST_S = 10.0
_LOOK_AGAIN_S = 3.0
# Of a broker that leads a partition this client may not have heard; it has the number -1 where there is none
# at the moment.
_PASSING = (kafka_errors.RetriableError, kafka_errors.UnknownBrokerIdError)
_NO_ID = str(uuid.UUID(int=0))  # of brokers before 2.8
_NO_GROUP = "GroupIdNotFoundError"
# Of a group whose broker has just started, or has just been replaced.
_NO_COORDINATOR = (
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorError,
)
_Answer = TypeVar("_Answer")
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class KafkaAdmin(NumberedAdmin):
    """Answers for one Kafka cluster; a stream is a topic.

    Kafka does not say how much of a topic was compacted, so that ``compacted_to`` returns None. A changelog's
    ``min.compaction.lag.ms`` promises how far back the state of a job can be brought.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Any = None
        self._look_ups = LookUps(settings)
        self._numbers: dict[str, list[int]] = {}
        self._topic_ids: dict[str, str] = {}
        self._away_until = 0.0
        self._seen: dict[TopicPartition, list[OpenTransaction]] = {}

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        wanted = list(streams)
        there = self._there(wanted)
        self._numbers.update(there)
        return self._ends(wanted, there)

    def metadata_of(self, partitions: Iterable[SystemStreamPartition]) -> StreamsMetadata:
        asked = list(partitions)
        wanted = sorted({ssp.system_stream for ssp in asked})
        self._numbers.update(self._there(wanted))
        return self._ends(wanted, self._known(asked))

    def glance(self, partitions: Iterable[SystemStreamPartition]) -> StreamsMetadata:
        asked = list(partitions)
        if any(ssp.stream not in self._numbers for ssp in asked):
            return self.metadata_of(asked)
        if time.monotonic() < self._away_until:
            raise unreachable(self._settings)
        try:
            return self._ends({ssp.system_stream for ssp in asked}, self._known(asked), _GLANCE_MS)
        except StreamSystemError:
            # To wait in vain again and again would hold up everything else as well.
            self._away_until = time.monotonic() + _REST_S
            raise

    def _there(self, wanted: Collection[SystemStream]) -> dict[str, list[int]]:
        """Per topic, the numbers of its partitions. Raises UnknownStreamError."""
        if not wanted:
            return {}
        there = self.partitions([stream.stream for stream in wanted])
        for stream in wanted:
            if stream.stream not in there:
                raise no_topic(self._settings, stream)
        return there

    def _known(self, partitions: Iterable[SystemStreamPartition]) -> dict[str, list[int]]:
        """Those of these partitions that are there, as of the last look."""
        asked: dict[str, set[int]] = {}
        for ssp in partitions:
            asked.setdefault(ssp.stream, set()).add(ssp.partition)
        # In the order of their numbers, as the last look found them.
        return {
            topic: [number for number in self._numbers[topic] if number in numbers]
            for topic, numbers in asked.items()
        }

    def _ends(
        self, wanted: Iterable[SystemStream], there: Mapping[str, list[int]], timeout_ms: int | None = None
    ) -> StreamsMetadata:
        all_of_them = [TopicPartition(topic, each) for topic, numbers in there.items() for each in numbers]
        oldest = self._look_ups.oldest(all_of_them, timeout_ms=timeout_ms)
        upcoming = self._look_ups.upcoming(all_of_them, timeout_ms=timeout_ms)
        found: StreamsMetadata = {}
        for stream in wanted:
            partitions = [TopicPartition(stream.stream, number) for number in there[stream.stream]]
            found[stream] = {
                each.partition: numbered_metadata(oldest[each], upcoming[each]) for each in partitions
            }
        return found

    def exists(self, stream: SystemStream) -> bool:
        """True where there is such a stream."""
        return self._count(stream) > 0

    def _count(self, stream: SystemStream) -> int:
        """The number of its partitions, 0 where there is no such topic."""
        return len(self.partitions([stream.stream]).get(stream.stream, ()))

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        configs = self._settings.topic(stream.stream, settings)
        copies = configs.pop("replication.factor", str(self._settings.replication_factor))
        if not copies.lstrip("-").isdecimal():
            key = f"systems.{stream.system}.streams.{stream.stream}.replication.factor"
            raise ConfigError(f"{key}: '{copies}' is not a whole number", key=key)
        # Asked first, so that a job that starts again needs none of those brokers that make topics.
        if self._is_there(stream, partitions):
            return False
        topic = {"num_partitions": partitions, "replication_factor": int(copies), "configs": configs}

        def make() -> None:
            self._admin().create_topics({stream.stream: topic}, wait_for_metadata=True)

        try:
            self._asked(f"creating {stream}", make)
        except StreamSystemError as error:
            if not isinstance(error.__cause__, kafka_errors.TopicAlreadyExistsError):
                raise
            if not self._is_there(stream, partitions):
                raise
            return False
        return True

    def _is_there(self, stream: SystemStream, partitions: int) -> bool:
        present = self._count(stream)
        if present not in (0, partitions):
            raise StreamExistsError(
                f"{stream} is there already, with {present} partitions and not {partitions}"
            ) from None
        return present > 0

    def grow(self, stream: SystemStream, partitions: int) -> None:
        present = self._count(stream)
        if not present:
            raise UnknownStreamError(f"{stream}: there is no such topic")
        if present < partitions:
            with self._asking(f"adding partitions to {stream}"):
                self._admin().create_partitions({stream.stream: partitions})
            self._wait_until(lambda: self._count(stream) >= partitions, f"{stream} to grow")

    def identity(self, ssp: SystemStreamPartition, position: str) -> str | None:
        topic_id = self._topic_ids.get(ssp.stream)
        return None if topic_id == _NO_ID else topic_id

    def streams(self) -> list[SystemStream]:
        topics = self._asked("listing topics", lambda: self._admin().list_topics())
        return [
            SystemStream(self._settings.system, each)
            for each in sorted(topics)
            if each not in _INTERNAL and not each.startswith((CHECKPOINTS, DEPLOYMENTS))
        ]

    def checkpoint_topics(self) -> list[str]:
        """The topics that hold the checkpoints of jobs."""
        topics = self._asked("listing topics", lambda: self._admin().list_topics())
        return [each for each in topics if each.startswith(CHECKPOINTS)]

    def members(self, group: str) -> list[dict[str, Any]]:
        """The members of a consumer group, as ``describe_groups`` has them. Raises StreamSystemError."""

        def ask() -> list[dict[str, Any]]:
            found = self._admin().describe_groups([group])[group]
            error = found["error"]
            if error and _NO_GROUP not in error:
                kinds = (each for each in _NO_COORDINATOR if each.__name__ in error)
                raise next(kinds, kafka_errors.KafkaError)(error)
            members: list[dict[str, Any]] = found["members"]
            return members

        return self._asked(f"asking for the members of {group}", ask)

    def delete(self, stream: SystemStream) -> None:
        with self._asking(f"deleting {stream}"):
            self._admin().delete_topics([stream.stream])
        self._wait_until(lambda: not self.exists(stream), f"{stream} to be gone")

    def delete_before(self, stream: SystemStream, partition: int, offset: int) -> None:
        """Delete all messages of a partition that stand before an offset."""
        with self._asking(f"deleting messages of {stream}"):
            self._admin().delete_records({TopicPartition(stream.stream, partition): offset})

    def largest_message(self, topic: str) -> int | None:
        """The topic's limit of a message, in bytes; None where it may not be asked for."""
        from kafka.admin import ConfigResource

        def ask() -> Any:
            return self._admin().describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")

        try:
            described = self._asked(f"asking for the settings of {topic}", ask)
            return int(described["topic"][topic]["max.message.bytes"]["value"])
        except StreamSystemError as error:
            if isinstance(error.__cause__, kafka_errors.AuthorizationError):
                return None
            raise
        except (KeyError, TypeError, ValueError):
            return None

    def identities(self, topics: Iterable[str]) -> dict[str, str | None]:
        """The id of each topic, which one of the same name that is made later does not have; None: there
        is certainly no such topic.

        Those for which that is not known now are left out."""
        try:
            described = describe_topics(self._admin(), sorted(topics))
        except (kafka_errors.KafkaError, StreamSystemError):
            return {}
        known = [each for each in described if is_unknown(each) or not each["error_code"]]
        return {each["name"]: None if is_unknown(each) else each["topic_id"] for each in known}

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last message of each partition, committed or not."""
        wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
        found = self._asked("asking for offsets", lambda: self._admin().list_partition_offsets(wanted))
        return {partition: found[partition].offset for partition in wanted}

    def readable(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one behind the last that can be read as committed."""

        def asked(spec: OffsetSpec) -> int:
            found = self._admin().list_partition_offsets({partition: spec}, isolation_level="read_committed")
            return int(found[partition].offset)

        doing = "asking for offsets"
        oldest = self._asked(doing, lambda: asked(OffsetSpec.EARLIEST))
        return oldest, self._asked(doing, lambda: asked(OffsetSpec.LATEST))

    def open_at(self, partition: TopicPartition) -> list[OpenTransaction]:
        """The transactions that are open at a partition; none where that is not known."""
        try:
            return find_open(self._admin(), [partition])
        except (kafka_errors.KafkaError, StreamSystemError, KeyError, ValueError):
            self._forget()
            return []

    def hanging(self, partition: TopicPartition) -> list[OpenTransaction]:
        """The transactions that hang at a partition, so far as that is known: those that the look before
        has found, too."""
        now = self.open_at(partition)
        before, self._seen[partition] = self._seen.get(partition, []), now
        return still_hanging(before, now)

    def abort_hanging(
        self, stream: SystemStream, *, force: bool = False
    ) -> tuple[list[OpenTransaction], list[OpenTransaction]]:
        """End the transactions that hang in a stream. Which they were; and those that no coordinator knows
        of, which are let alone unless ``force``: whether they will be ended is not known. Takes some
        seconds where there may be any."""
        numbers = self.partitions([stream.stream]).get(stream.stream)
        if numbers is None:
            raise no_topic(self._settings, stream)
        partitions = [TopicPartition(stream.stream, number) for number in numbers]

        def look() -> list[OpenTransaction]:
            doing = f"looking for transactions in {stream}"
            return self._asked(doing, lambda: find_open(self._admin(), partitions))

        before = look()
        if all(each.is_live for each in before):
            return [], []
        time.sleep(_LOOK_AGAIN_S)
        hanging = still_hanging(before, look())
        ended = [each for each in hanging if force or each.state is not None]
        with self._asking(f"ending transactions in {stream}"):
            for each in ended:
                each.abort(self._admin())
        return ended, [each for each in hanging if each not in ended]

    def is_complete(self, identity: str) -> bool:
        """True where the last transaction of an identity has reached all its partitions, or where that is not
        known."""
        try:
            state = self._admin().describe_transactions([identity])[identity].state
        except (kafka_errors.KafkaError, KeyError, ValueError):
            return True
        return state.value not in ("PrepareCommit", "PrepareAbort")

    def close(self) -> None:
        client, self._client = self._client, None
        self._look_ups.close()
        if client is not None:
            client.close()

    def _admin(self) -> Any:
        if self._client is None:
            self._client = new_admin(self._settings)
        return self._client

    def _asked(self, doing: str, ask: Callable[[], _Answer]) -> _Answer:
        """The answer to a question, as soon as a broker gives one: one that was there may be away for a
        while."""
        began = time.monotonic()
        end, known = began + self._settings.patience_ms / 1000, began + _UNTIL_KNOWN_S
        with slow_logged(self._settings, doing):
            while True:
                try:
                    with self._asking(doing):
                        return ask()
                except StreamSystemError as error:
                    now, cause = time.monotonic(), error.__cause__
                    if not isinstance(cause, _PASSING) or self._client is None or now > end:
                        raise
                    if isinstance(cause, kafka_errors.UnknownTopicOrPartitionError) and now > known:
                        raise
                time.sleep(_AGAIN_S)

    def _forget(self) -> None:
        """Have the client ask for the brokers, and for the one that takes changes. By itself it asks for
        brokers every five minutes, so that it misses a new leader. It never asks again for the one that takes
        changes, even if that has died."""
        if self._client is not None:
            self._client._controller_id = None
            self._client._manager.cluster.request_update()

    @contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        try:
            with translated(self._settings, doing):
                yield
        except StreamSystemError:
            self._forget()
            raise

    def partitions(self, topics: list[str]) -> dict[str, list[int]]:
        """The partitions of those of the topics that there are."""
        described = self._asked("asking for topics", lambda: describe_topics(self._admin(), topics))
        self._topic_ids.update(
            {each["name"]: str(each["topic_id"]) for each in described if not each["error_code"]}
        )
        # A topic that is not there has an error, or no partitions.
        return {
            each["name"]: sorted(partition["partition_index"] for partition in each["partitions"])
            for each in described
            if not each["error_code"] and each["partitions"]
        }

    def _wait_until(self, is_so: Any, what: str) -> None:
        end = time.monotonic() + _UNTIL_KNOWN_S
        while not is_so():
            if time.monotonic() > end:
                raise StreamSystemError(f"Kafka took more than {_UNTIL_KNOWN_S:.0f} seconds for {what}")
            time.sleep(0.05)
