"""The producer of a Kafka system."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka import errors as kafka_errors

from streambench.errors import ConfigError, StreamSystemError, UnknownStreamError, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.rows import Rows
from streambench.system.adapters import SenderProducer
from streambench.system.api import Sender
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.clients import (
    abandon,
    as_ours,
    new_producer,
    no_topic,
    replacement,
    unreachable,
)
from streambench.system.kafka.message_check import checked_size
from streambench.system.kafka.settings import Settings
from streambench.system.kafka.size_limit import SizeLimits
from streambench.system.kafka.stall_detector import StallDetector

log = logging.getLogger(__name__)

# The client itself gives up messages when brokers were away for too long.
_GRACE_S = 1.0

_Arguments = tuple[str, Any, Any, list[tuple[str, bytes]] | None, int, int | None]


class _Waiting(NamedTuple):
    """A message that is not known to be written. ``arguments``: of the client's ``send``, so that it can be
    sent again."""

    future: Any
    size: int
    ssp: SystemStreamPartition
    batch_size: int
    arguments: _Arguments


class KafkaProducer(SenderProducer):
    """Writes to one Kafka cluster, each message once and in order however often it has to be sent again (an
    idempotent producer).

    **Memory is bounded here**: kafka-python takes whatever it is given. ``send`` waits as long as more than
    ``buffer.bytes`` are not acknowledged. What fails is raised by the next ``send`` or ``flush``, and by
    every one after it. What follows a lost message must not look as if all were well.

    **Where nothing at all is acknowledged for long**, a new client replaces the old one. It sends again, in
    order, what is not acknowledged, which may then be there twice.

    **Sizes are checked before a message is sent**: one that the broker finds too large would make all that
    follow fail. Where a topic takes less than a batch of the usual size, its messages go through a client
    with smaller batches.

    **Changelogs.** Kafka fences no producer that sends without transactions: an older container may still be
    writing changes of state when a later one has restored it. So the producer knows, for partitions that
    belong to one source alone, the offset that each message is to get, and the end. Where a message gets
    another one, or more is there at a commit, another process has written. The container must then start
    again, which sets the changelog right.

    A message needs a key or a value, headers are bytes, and a timestamp is not before 1970. Anything else is
    a SerdeError, like what cannot be serialised.
    """

    def __init__(self, settings: Settings, metrics: MetricsRegistry) -> None:
        super().__init__()
        self.atomic = settings.cluster
        self._settings = settings
        self._admin = KafkaAdmin(settings)
        self._limits = SizeLimits(settings, self._admin)
        self._held: dict[SystemStreamPartition, Rows] | None = None
        self._clients: dict[int, Any] = {}
        self._waiting: deque[_Waiting] = deque()
        self._bytes = self._acknowledged = 0
        self._ends: dict[SystemStreamPartition, int] = {}
        self._resent: set[SystemStreamPartition] = set()
        self._failure: StreamSystemError | None = None
        self._sent = metrics.counter(f"{settings.system}-messages-sent", "kafka")

    def start(self) -> None:
        if self._held is None:
            self._client(int(self._settings.producer["batch_size"]))

    def stop(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        super().stop()
        self._waiting.clear()
        do_all([*(lambda client=client: abandon(client) for client in clients), self._admin.close])

    def _new_sender(self, stream: SystemStream) -> Sender:
        topic = stream.stream
        if not self._admin.exists(stream):
            raise no_topic(self._settings, stream)
        limit = self._limits.of(topic)
        held = self._held
        batch_size = min(int(self._settings.producer["batch_size"]), max(1, limit // 2))
        clients = self._clients
        if held is None:
            self._client(batch_size)
        ssps: dict[int, SystemStreamPartition] = {}
        waiting, most = self._waiting, self._settings.buffer_bytes

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            ssp = ssps.get(partition)
            if ssp is None:
                ssp = ssps[partition] = SystemStreamPartition(stream.system, topic, partition)
            headers, time_ms = envelope.headers, envelope.timestamp
            size = checked_size(ssp, key, message, time_ms, headers, limit)
            if held is not None:
                rows = held.get(ssp)
                if rows is None:
                    rows = held[ssp] = Rows(ssp, [], [])
                rows.add(key, message, time_ms, headers)
                return
            if self._bytes + size > most:
                self._make_room(size)
            if self._failure is not None:
                raise self._failure
            arguments = topic, message, key, list(headers.items()) if headers else None, partition, time_ms
            try:
                future = clients[batch_size].send(*arguments)
            except (kafka_errors.KafkaError, ValueError, TypeError) as error:
                raise self._refused(ssp, error) from error
            waiting.append(_Waiting(future, size, ssp, batch_size, arguments))
            self._bytes += size

        return send

    def largest_message(self, stream: SystemStream) -> int | None:
        return self._limits.known(stream.stream)

    def fence(
        self, source: str, partitions: Collection[SystemStreamPartition], generation: int, epoch: int
    ) -> None:
        if self._held is None:
            self._ends.update(self._high_watermarks(partitions))

    def _high_watermarks(
        self, partitions: Collection[SystemStreamPartition]
    ) -> dict[SystemStreamPartition, int]:
        if not partitions:
            return {}
        of = {ssp: TopicPartition(ssp.stream, ssp.partition) for ssp in partitions}
        found = self._admin.high_watermarks(of.values())
        return {ssp: found[partition] for ssp, partition in of.items()}

    def ends(self, partitions: Collection[SystemStreamPartition]) -> Mapping[SystemStreamPartition, str]:
        own = {ssp: self._ends[ssp] for ssp in partitions if ssp in self._ends}
        there = self._high_watermarks(own)
        for ssp, end in own.items():
            upcoming = there[ssp]
            if upcoming > end:
                raise self._not_alone(
                    ssp, f"the changes of state here end at offset {end}, and the partition at {upcoming}"
                )
        return {ssp: str(end) for ssp, end in own.items()}

    def hold(self) -> None:
        isolation = self._settings.consumer["isolation_level"]
        if str(isolation).lower() != "read_committed":
            raise ConfigError(
                f"systems.{self._settings.system}.consumer.isolation.level={isolation}: exactly-once reads "
                "its changelogs from here, and must not see what was never committed; leave it away (an "
                "input that is to be read so can have a system of its own)",
                key=f"systems.{self._settings.system}.consumer.isolation.level",
            )
        self._held = {}

    def take(self) -> list[Rows]:
        assert self._held is not None
        taken = list(self._held.values())
        self._held.clear()
        return taken

    def flush(self, source: str) -> None:
        if not self._waiting and self._failure is None:
            return
        progress, until = StallDetector(self._settings), self._settings.deadline() + _GRACE_S
        while self._failure is None:
            try:
                for client in self._clients.values():
                    client.flush(timeout=progress.wait_s(until))
                break
            except kafka_errors.KafkaError:
                if not self._has_reason_to_wait(progress, until):
                    break  # what has become of each message is seen below
        while self._waiting:
            self._await_first(progress, until)
        if self._failure is not None:
            raise self._failure

    def _client(self, batch_size: int) -> Any:
        if batch_size not in self._clients:
            self._clients[batch_size] = new_producer(self._settings, batch_size=batch_size)
        return self._clients[batch_size]

    def _make_room(self, size: int) -> None:
        """Wait until so many bytes more may be kept."""
        progress, until = StallDetector(self._settings), self._settings.deadline() + _GRACE_S
        while self._waiting and (
            self._bytes + size > self._settings.buffer_bytes or self._waiting[0].future.is_done
        ):
            self._await_first(progress, until)

    def _await_first(self, progress: StallDetector, until: float) -> None:
        """Wait for what was sent first, and see what has become of it. Where it has failed, nothing else is
        worth waiting for."""
        while not self._waiting[0].future.is_done:
            try:
                self._waiting[0].future.get(timeout=progress.wait_s(until))
            except kafka_errors.KafkaError as error:
                future, _, ssp, _, _ = self._waiting[0]
                if not future.is_done and not self._has_reason_to_wait(progress, until):
                    self._fail(ssp, error)
                    return
        future, size, ssp, _, _ = self._waiting.popleft()
        self._bytes -= size
        self._acknowledged += 1
        if not future.succeeded():
            self._fail(ssp, future.exception)
            return
        self._sent.count += 1
        if ssp in self._ends:
            self._check_alone(ssp, future.value.offset)

    def _fail(self, ssp: SystemStreamPartition, error: Exception) -> None:
        if self._failure is None:
            self._failure = self._refused(ssp, error)
            self._failure.__cause__ = error
        self._waiting.clear()
        self._bytes = 0

    def _has_reason_to_wait(self, progress: StallDetector, until: float) -> bool:
        """True where what has not been acknowledged for a while may still be. Where nothing moves, it is sent
        again."""
        waits = [each for each in self._waiting if not each.future.is_done]
        failed = next(
            (each for each in self._waiting if each.future.is_done and not each.future.succeeded()), None
        )
        if failed is not None:
            self._fail(failed.ssp, failed.future.exception)
        if failed is not None or time.monotonic() > until:
            return False
        if waits and progress.has_stalled(self._acknowledged + len(self._waiting) - len(waits)):
            log.warning(
                "%s: Kafka has acknowledged nothing for %.0f seconds: %d messages are sent again, and may "
                "be there twice",
                self._settings.system,
                progress.most_s,
                len(waits),
            )
            try:
                self._send_again(waits, until)
                progress.begin()
            except (StreamSystemError, kafka_errors.KafkaError) as error:
                self._fail(waits[0].ssp, error)
        return self._failure is None

    def _send_again(self, waits: list[_Waiting], until: float) -> None:
        """Give up the clients that these messages wait in, and send them with others, in their order."""
        for batch_size in {each.batch_size for each in waits}:
            old = self._clients.pop(batch_size)
            self._clients[batch_size] = replacement(old, self._settings, until, batch_size=batch_size)
        # What has succeeded meanwhile stands before what has not, in each partition.
        sent = [
            each._replace(future=self._clients[each.batch_size].send(*each.arguments))
            for each in waits
            if not _is_written(each)
        ]
        again = {id(each.arguments): each for each in sent}
        self._resent.update(each.ssp for each in sent)
        for number, each in enumerate(self._waiting):
            self._waiting[number] = again.get(id(each.arguments), each)

    def _check_alone(self, ssp: SystemStreamPartition, offset: int) -> None:
        expected = self._ends[ssp]
        # Of what was acknowledged twice Kafka may not give it.
        self._ends[ssp] = (offset if offset >= 0 else expected) + 1
        if offset not in (expected, -1) and self._failure is None:
            self._failure = self._not_alone(
                ssp, f"a change of state was to get offset {expected} and got {offset}"
            )

    def _not_alone(self, ssp: SystemStreamPartition, seen: str) -> StreamSystemError:
        twice = ", as it does where changes are there twice: they were not acknowledged and sent again"
        return StreamSystemError(
            f"{ssp}: {seen}: something else writes to this partition, which belongs to one task of one job "
            "alone. If it was an older run of the job, the next start sets it right"
            f"{twice if ssp in self._resent else ''}"
        )

    def _refused(self, ssp: SystemStreamPartition, error: Exception) -> StreamSystemError:
        if isinstance(error, StreamSystemError):
            return error
        doing = f"writing to {ssp}"
        if isinstance(error, kafka_errors.KafkaTimeoutError):
            if self._admin.identities([ssp.stream]).get(ssp.stream, "") is None:
                return UnknownStreamError(f"{ssp.system_stream} was deleted while it was written to")
            why = f"{doing}: not acknowledged in time (systems.{ssp.system}.patience.ms)"
            return unreachable(self._settings, why)
        if isinstance(error, kafka_errors.KafkaError):
            ours = as_ours(self._settings, doing, error)
            return ours if isinstance(ours, StreamSystemError) else StreamSystemError(str(ours))
        return StreamSystemError(f"{doing}: Kafka does not take this message: {error}")


def _is_written(waiting: _Waiting) -> bool:
    return bool(waiting.future.is_done and waiting.future.succeeded())
