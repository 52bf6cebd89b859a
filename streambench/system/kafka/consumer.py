"""The consumer of a Kafka system."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec
from kafka import TopicPartition
from kafka import errors as kafka_errors

from streambench.chunk import Chunk
from streambench.errors import OffsetError, StreamSystemError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.adapters import ChunkConsumer
from streambench.system.kafka import stall_detector
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.clients import LookUps, as_ours, new_consumer, unreachable
from streambench.system.kafka.settings import Settings
from streambench.system.numbered import to_number

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
_LOOK_MS = 2_000
_ASK_MS = 2_000
_CHECK_EVERY_S = 10.0


class KafkaConsumer(ChunkConsumer):
    """Reads partitions of one Kafka cluster.

    One client reads all partitions of a container, without a consumer group. A client for each partition
    would need a connection to every broker, a thread, and metadata of its own. It would also send a request
    for each partition, where one can ask for all that a broker has. The container sees a queue for each
    partition all the same. Records are handed over partition by partition. A partition without room is
    paused, which holds up no other and drops nothing.

    The heads of partitions are asked for over a connection of its own, after a poll. So ``at_head`` speaks of
    that moment, and not of an earlier fetch. Of a partition with transactions only what is
    committed is read, and its head is where the first open one begins. Brokers may be away for
    ``patience.ms``; then reading fails.

    Of headers with the same name the last one counts, as messages here have one of each.
    """

    def __init__(self, settings: Settings, metrics: MetricsRegistry, rewind: str) -> None:
        """``rewind``: the command that rewinds the job to its beginning, for errors."""
        self._settings = settings
        self._rewind = rewind
        self._client: Any = None
        self._look_ups = LookUps(settings)
        self._wanted: dict[SystemStreamPartition, int] = {}
        self._ssps: dict[TopicPartition, SystemStreamPartition] = {}
        self._partitions: dict[SystemStreamPartition, TopicPartition] = {}
        self._next: dict[TopicPartition, int] = {}
        self._paused: set[SystemStreamPartition] = set()
        self._heads: set[SystemStreamPartition] = set()
        self._looked = self._answered = 0.0
        # Nothing that it is asked is worth waiting for: not for a reader, and not for a caller that wants the
        # reader to stop.
        request_ms = min(_ASK_MS, settings.admin.get("request_timeout_ms", _ASK_MS))
        hasty = {**settings.admin, "request_timeout_ms": request_ms}
        patience_ms = min(_ASK_MS, settings.patience_ms)
        self._admin = KafkaAdmin(msgspec.structs.replace(settings, admin=hasty, patience_ms=patience_ms))
        self._identities: dict[str, str | None] = {}
        self._checked = 0.0
        self._most = int(settings.consumer["max_poll_records"])
        self._idle_since = float("inf")
        self._read = metrics.counter(f"{settings.system}-messages-read", "kafka")

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._wanted[ssp] = to_number(offset, ssp)

    def start(self) -> None:
        self._partitions = {ssp: TopicPartition(ssp.stream, ssp.partition) for ssp in self._wanted}
        self._ssps = {partition: ssp for ssp, partition in self._partitions.items()}
        self._next = {self._partitions[ssp]: offset for ssp, offset in self._wanted.items()}
        self._check_partitions()
        self._client = new_consumer(self._settings)
        oldest, upcoming = self._look_ups.oldest(self._ssps), self._look_ups.upcoming(self._ssps)
        for partition, offset in self._next.items():
            # Behind the end of what can be read there may be messages of a transaction that is still open.
            if offset < oldest[partition] or (offset > upcoming[partition] and not self._is_read_committed()):
                ssp = self._ssps[partition]
                raise _outside(ssp, offset, oldest[partition], upcoming[partition], self._rewind)
        self._check_topics()
        self._assign()
        self._answered = time.monotonic()

    def _assign(self) -> None:
        self._client.assign(list(self._ssps))
        for partition, offset in self._next.items():
            self._client.seek(partition, offset)

    def stop(self) -> None:
        client, self._client = self._client, None
        self._heads.clear()
        self._look_ups.close()
        self._admin.close()
        if client is not None:
            client.close(autocommit=False, timeout_ms=0)

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        asked = {ssp: number for ssp, number in wanted.items() if number > 0}
        if not asked:
            return []
        self._pause_all_but(asked)
        self._bring_back(asked)
        try:
            polled = self._client.poll(timeout_ms, max_records=min(self._most, *asked.values()))
        except kafka_errors.OffsetOutOfRangeError as error:
            raise self._out_of_range(error) from error
        except kafka_errors.UnknownBrokerIdError:
            # With a client that knows the brokers there are now: this one will ask that broker no more.
            self._read_on()
            return []
        except kafka_errors.KafkaError as error:
            raise as_ours(self._settings, f"reading from {self._settings.system}", error) from error
        chunks = []
        for partition, records in polled.items():
            ssp = self._ssps[partition]
            self._next[partition] = records[-1].offset + 1
            self._heads.discard(ssp)
            chunks.append(_chunk(ssp, records))
            self._read.inc(len(records))
        if chunks:
            self._idle_since = float("inf")
        elif self._idle_since == float("inf"):
            self._idle_since = time.monotonic()
        if not chunks or time.monotonic() - self._looked > _LOOK_EVERY_S:
            self._update_heads([ssp for ssp in asked if self._partitions[ssp] not in polled])
        return chunks

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return ssp in self._heads

    def _pause_all_but(self, wanted: Mapping[SystemStreamPartition, int]) -> None:
        paused = self._paused
        if paused:
            resumed = [ssp for ssp in paused if ssp in wanted]
            if resumed:
                self._client.resume(*(self._partitions[ssp] for ssp in resumed))
                paused.difference_update(resumed)
        if len(wanted) + len(paused) < len(self._partitions):
            unwanted = [ssp for ssp in self._partitions if ssp not in wanted and ssp not in paused]
            self._client.pause(*(self._partitions[ssp] for ssp in unwanted))
            paused.update(unwanted)

    def _bring_back(self, wanted: Mapping[SystemStreamPartition, int]) -> None:
        """Have what was fetched of a partition before it was paused come next.

        kafka-python 3.0 lays it aside, and takes it up again only when nothing is in line. But what is in
        line stays there when all of it was handed over. A partition that was paused in the middle of what was
        fetched of it would never be read again."""
        fetcher = self._client._fetcher
        aside = fetcher._paused_partition_records
        partition = next((each for each in aside if self._ssps[each] in wanted), None)
        if partition is not None:
            in_line, fetcher._next_partition_records = fetcher._next_partition_records, aside.pop(partition)
            if in_line:
                aside[in_line.topic_partition] = in_line

    def _update_heads(self, ssps: list[SystemStreamPartition]) -> None:
        """See which of the partitions that had nothing to give are at their heads."""
        now = time.monotonic()
        if not ssps or now < self._looked:
            return
        partitions = [self._partitions[ssp] for ssp in ssps]
        try:
            upcoming = self._look_ups.upcoming(partitions, timeout_ms=_LOOK_MS)
        except UnknownStreamError:
            raise
        except StreamSystemError as error:
            self._missed(error)
            return
        self._looked = self._answered = time.monotonic()
        if self._looked - self._checked > _CHECK_EVERY_S:
            self._check_topics()
            if self._is_read_committed():
                self._check_held({partition: upcoming[partition] for partition in partitions})
        for ssp, partition in zip(ssps, partitions, strict=True):
            end = upcoming[partition]
            # Only the position passes holes behind the last message: compacted and aborted messages, ends of
            # transactions.
            if self._next[partition] >= end or (self._client.position(partition, timeout_ms=0) or 0) >= end:
                self._heads.add(ssp)
            else:
                self._heads.discard(ssp)
        if self._heads.issuperset(ssps):
            self._idle_since = float("inf")
        elif self._looked - self._idle_since > stall_detector.STALLED_S:
            self._start_again()

    def _start_again(self) -> None:
        """Read on with another client: one that gets nothing although there is something may stay so."""
        log.warning(
            "%s: nothing was read for %.0f seconds although there is something; another client reads on",
            self._settings.system,
            self._looked - self._idle_since,
        )
        self._read_on()

    def _read_on(self) -> None:
        try:
            client = new_consumer(self._settings)
        except StreamSystemError as error:
            self._missed(error)
            return
        self._client.close(autocommit=False, timeout_ms=0)
        self._client = client
        self._paused.clear()
        self._assign()
        self._idle_since = float("inf")

    def _check_topics(self) -> None:
        """Raise UnknownStreamError where a topic is not the one any more that reading began with. Its offsets
        are then those of others; and there is no answer to a request for what was deleted."""
        self._checked = time.monotonic()
        for topic, identity in self._admin.identities({partition.topic for partition in self._ssps}).items():
            before = self._identities.setdefault(topic, identity)
            if identity is None or identity != before:
                again = "" if identity is None else " and made again"
                raise UnknownStreamError(
                    f"{self._settings.system}.{topic} was deleted{again} while it was read; the offsets of "
                    "its checkpoints are no longer valid: start again without it, or rewind the job to "
                    f"where it is to begin ({self._rewind})"
                )

    def _check_held(self, ends: Mapping[TopicPartition, int]) -> None:
        """Report transactions that will never end: what stands behind them is not read."""
        try:
            marks = self._admin.high_watermarks(ends)
            for partition in [each for each, end in ends.items() if end < marks[each]]:
                for hanging in self._admin.hanging(partition):
                    log.warning("%s", hanging.described(self._settings.system))
        except StreamSystemError as error:
            log.warning("%s: it is not known if transactions hang: %s", self._settings.system, error)

    def _missed(self, error: StreamSystemError) -> None:
        self._check_topics()
        now = time.monotonic()
        away = now - self._answered
        if away * 1000 > self._settings.patience_ms:
            key = f"systems.{self._settings.system}.patience.ms"
            raise unreachable(self._settings, f"reading failed for {away:.0f} seconds ({key})") from error
        if away > stall_detector.STALLED_S:
            self._look_ups.close()  # the next look is another client's
        log.warning(
            "%s does not answer (for %.0f seconds now); reading goes on when it does",
            self._settings.system,
            away,
        )
        self._looked = now + 1

    def _check_partitions(self) -> None:
        with closing(KafkaAdmin(self._settings)) as admin:
            there = admin.partitions(sorted({partition.topic for partition in self._ssps}))
        for partition, ssp in self._ssps.items():
            numbers = there.get(partition.topic, ())
            if partition.partition not in numbers:
                what = f"it has {len(numbers)} partitions" if numbers else "there is no such topic"
                raise UnknownStreamError(f"{ssp}: {what} at {','.join(self._settings.servers)}")

    def _is_read_committed(self) -> bool:
        return str(self._settings.consumer["isolation_level"]).lower() == "read_committed"

    def _out_of_range(self, error: kafka_errors.OffsetOutOfRangeError) -> OffsetError:
        offsets = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
        partition = next((each for each in offsets if each in self._ssps), None)
        if partition is None:
            return OffsetError(
                f"{self._settings.system}: a position lies outside of what its partition holds: {error}"
            )
        oldest, upcoming = self._look_ups.oldest([partition]), self._look_ups.upcoming([partition])
        return _outside(
            self._ssps[partition], offsets[partition], oldest[partition], upcoming[partition], self._rewind
        )


def _outside(ssp: SystemStreamPartition, offset: int, oldest: int, upcoming: int, rewind: str) -> OffsetError:
    why = "the topic may have been made again"
    if offset < oldest:
        why = "Kafka has deleted it (see the topic's retention.ms)"
    return OffsetError(
        f"{ssp}: offset {offset} is outside of what the partition holds, {oldest} to {upcoming}: {why}; "
        f"rewind the job to one of these: {rewind}"
    )


def _chunk(ssp: SystemStreamPartition, records: list[Any]) -> Chunk:
    headers: list[Mapping[str, bytes] | None] = [
        dict(record.headers) if record.headers else None for record in records
    ]
    return Chunk(
        ssp,
        [str(record.offset) for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp for record in records],
        headers if any(headers) else None,
    )
