"""Transactions: messages to any partitions of a Kafka, all of them or none.

What kafka-python says of the end of a transaction is not believed. It may return although messages were lost,
raise although all of them are there, and wait for ever. So every message must be known to have been written
before a commit is asked for, and every wait has a limit. Whatever else happens is a *doubt*. Its outcome is
read from the topic, after a new producer has fenced this one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from kafka import errors as kafka_errors

from streambench.errors import MessageTooLargeError, StreamSystemError, UnknownStreamError
from streambench.model import SystemStreamPartition
from streambench.rows import Rows
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.clients import abandon, as_ours, new_producer, slow_logged
from streambench.system.kafka.message_check import message_size, too_large
from streambench.system.kafka.settings import Settings
from streambench.system.kafka.size_limit import SizeLimits
from streambench.system.kafka.stall_detector import StallDetector

_AGAIN_S = 0.1
_FENCE_AT_ONCE = 8
_ROWS_AT_ONCE = 2000
_PER_FUTURE = 1000  # what kafka-python keeps for a message that is on its way

TRIES = 4
"""The number of tries where there is no reason to believe that the next one goes better."""

_FENCED = (kafka_errors.ProducerFencedError, kafka_errors.InvalidProducerEpochError)
_PASSING = (
    *_FENCED,
    kafka_errors.RetriableError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.KafkaConnectionError,
)

Last = Callable[[Mapping[SystemStreamPartition, str]], bytes]
"""Makes the last message of a transaction, from the offsets behind the messages for those partitions whose
rows have a base."""


class DoubtError(StreamSystemError):
    """It is not known what has become of a transaction. ``fenced``: Kafka says that another producer has
    taken its place, or that it was open for too long, which it does not distinguish. ``may_pass``: it may
    well go better the next time."""

    def __init__(self, message: str, *, fenced: bool = False, may_pass: bool = True) -> None:
        super().__init__(message)
        self.fenced = fenced
        self.may_pass = may_pass


class Transactions:
    """The transactions of one identity (``transactional.id``), one after the other. ``place``: where the last
    message of each goes."""

    def __init__(
        self, settings: Settings, identity: str, place: SystemStreamPartition, admin: KafkaAdmin
    ) -> None:
        self.identity = identity
        self._settings = settings
        self._place = place
        self._admin = admin
        self._limits = SizeLimits(settings, admin)
        self._producer: Any = None
        self._began = 0.0
        self._identities: dict[str, str | None] = {}
        self._batch_bytes = int(settings.producer["batch_size"])
        self._watch_s = StallDetector(settings).most_s

    def open(self, until: float | None = None) -> None:
        """Start again: the process that had this identity before is fenced, and its last transaction has
        ended. Raises StreamSystemError where that has not been possible ``until`` then (of time.monotonic),
        or for as long as brokers may be away."""
        self.abandon()
        self._producer = opened(self._settings, self.identity, self._batch_bytes, until)

    def run(self, rows: Sequence[Rows], last: Last, until: float | None = None) -> int:
        """Write rows, and behind them the last message; the offset of that. It waits as ``open`` does, and
        less where nothing at all is acknowledged. Raises DoubtError; and where no retry can help, another
        error: nothing is written then."""
        self._fit(rows)
        if self._producer is None:
            raise DoubtError(f"{self.identity} has no producer")
        sent = _Sent(self, self._producer, until or self._settings.deadline())
        self._began = time.monotonic()
        bases = [each.ssp for each in rows if each.base is not None and len(each)]
        try:
            self._producer.begin_transaction()
            sent.rows(rows, self._limits)
            ends = sent.ends(bases) if bases else {}
            sent.add(self._place, None, last(ends), None, None, 0)
            sent.await_all()
            self.check_topics({each.ssp.stream for each in rows} | {self._place.stream})
            self._commit(self._producer)
        except kafka_errors.KafkaError as error:
            self.fail(None, error)
        except BaseException:
            self.abandon()
            raise
        return sent.last(self._place)

    def abandon(self) -> None:
        """Give up the producer, without waiting for anything."""
        producer, self._producer = self._producer, None
        if producer is not None:
            abandon(producer)

    def is_complete(self) -> bool:
        """True where the last transaction has reached all its partitions: it is committed before, and can be
        read only then."""
        return self._admin.is_complete(self.identity)

    def fail(self, ssp: SystemStreamPartition | None, error: BaseException) -> NoReturn:
        """Raise what an error of kafka-python means for the transaction."""
        self.abandon()
        doing = f"writing to {ssp}" if ssp is not None else f"a transaction of {self.identity}"
        if isinstance(error, (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)):
            raise MessageTooLargeError(f"{doing}: {error}") from error
        ours: Exception = as_ours(self._settings, doing, error)
        seconds = time.monotonic() - self._began
        if seconds * 1000 > int(self._settings.producer["transaction_timeout_ms"]):
            ours = StreamSystemError(
                f"{ours}. The transaction was open for {seconds:.0f} seconds, and Kafka ends it after "
                f"{self._settings.key}.producer."
                "transaction.timeout.ms: let that be more, or task.commit.max.output.mb less"
            )
        if isinstance(error, kafka_errors.AuthorizationError):
            raise ours from error
        raise DoubtError(
            str(ours), fenced=isinstance(error, _FENCED), may_pass=isinstance(error, _PASSING)
        ) from error

    def check_topics(self, topics: Collection[str]) -> None:
        """Raise UnknownStreamError where a topic that is written to was deleted; Kafka gives a producer no
        error of that. Raise DoubtError where it was made again since: what was written before is gone."""
        found = self._admin.identities(topics)
        known = {topic: self._identities.get(topic, identity) for topic, identity in found.items()}
        self._identities.update(found)
        for topic, identity in found.items():
            if identity is None:
                raise UnknownStreamError(
                    f"{self._settings.system}.{topic} was deleted while it was written to"
                )
            if identity != known[topic]:
                raise DoubtError(
                    f"{self._settings.system}.{topic} was deleted and created again while it was written to"
                )

    def _fit(self, rows: Iterable[Rows]) -> None:
        """Have batches that all the topics take."""
        fitting = min(
            (max(1, self._limits.of(each.ssp.stream) // 2) for each in rows), default=self._batch_bytes
        )
        if fitting < self._batch_bytes:
            self._batch_bytes = fitting
            self.open()

    def _commit(self, producer: Any) -> None:
        failures: list[BaseException] = []

        def commit() -> None:
            try:
                producer.commit_transaction()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=commit, name="kafka-commit", daemon=True)
        thread.start()
        thread.join(self._watch_s)
        if thread.is_alive():
            raise DoubtError(
                f"Kafka has not answered a commit of {self.identity} for {self._watch_s:.0f} seconds"
            )
        if failures:
            self.fail(None, failures[0])


class _Sent:
    """The messages sent in a transaction, bounded in how much of it is not known to be written yet."""

    def __init__(self, transactions: Transactions, producer: Any, end: float) -> None:
        self._transactions = transactions
        self._producer = producer
        self._end = end
        self._most = transactions._settings.buffer_bytes
        self._waiting: deque[tuple[Any, int, SystemStreamPartition]] = deque()
        self._bytes = 0
        self._acknowledged = 0
        self._progress = StallDetector(transactions._settings)
        self._last: dict[SystemStreamPartition, Any] = {}

    def rows(self, rows: Sequence[Rows], limits: SizeLimits) -> None:
        """Send rows, some of each partition after the other: only one batch of each is on its way at a time.
        Raises MessageTooLargeError."""
        for start in range(0, max(map(len, rows), default=0), _ROWS_AT_ONCE):
            for each in rows:
                self._send_some(each, start, limits)

    def _send_some(self, rows: Rows, start: int, limits: SizeLimits) -> None:
        ssp, limit, some = rows.ssp, limits.of(rows.ssp.stream), slice(start, start + _ROWS_AT_ONCE)
        keys = rows.keys[some]
        times = rows.timestamps[some] if rows.timestamps else [None] * len(keys)
        headers = rows.headers[some] if rows.headers else [None] * len(keys)
        for key, message, time_ms, named in zip(keys, rows.messages[some], times, headers, strict=True):
            size = message_size(ssp, key, message, named)
            if size > limit:
                raise too_large(ssp, size, limit)
            self.add(ssp, key, message, named, time_ms, size)

    def add(
        self,
        ssp: SystemStreamPartition,
        key: Any,
        message: Any,
        headers: Mapping[str, bytes] | None,
        time_ms: int | None,
        size: int,
    ) -> None:
        """Send a message."""
        named = list(headers.items()) if headers else None
        future = self._producer.send(ssp.stream, message, key, named, ssp.partition, time_ms)
        size += _PER_FUTURE
        self._waiting.append((future, size, ssp))
        self._last[ssp] = future
        self._bytes += size
        if self._bytes > self._most:
            while self._bytes > self._most // 2:
                self._await_first()

    def await_all(self) -> None:
        """Return when everything that was sent is written. Raises DoubtError."""
        while True:
            try:
                self._producer.flush(timeout=self._progress.wait_s(self._end))
                break
            except kafka_errors.KafkaTimeoutError:
                self._check_stall()
        while self._waiting:
            self._await_first()

    def ends(self, ssps: Iterable[SystemStreamPartition]) -> dict[SystemStreamPartition, str]:
        """The offsets behind what was sent to partitions."""
        self.await_all()
        return {ssp: str(self.last(ssp) + 1) for ssp in ssps}

    def last(self, ssp: SystemStreamPartition) -> int:
        """The offset of the last message to a partition."""
        offset: int = self._last[ssp].value.offset
        if offset < 0:
            raise DoubtError(
                f"Kafka does not give the offset of a message to {ssp}, which was acknowledged twice"
            )
        return offset

    def _await_first(self) -> None:
        future, size, ssp = self._waiting.popleft()
        self._bytes -= size
        while not future.is_done:
            try:
                future.get(timeout=self._progress.wait_s(self._end))
            except kafka_errors.KafkaError:
                if not future.is_done:
                    self._check_stall()
        self._acknowledged += 1
        if not future.succeeded():
            if isinstance(future.exception, kafka_errors.KafkaTimeoutError):
                self._transactions.check_topics({ssp.stream})
            self._transactions.fail(ssp, future.exception)

    def _check_stall(self) -> None:
        """Nothing has happened for a while: is there still reason to wait?"""
        done = sum(future.is_done for future, _, _ in self._waiting)
        if self._progress.has_stalled(self._acknowledged + done):
            self._transactions.abandon()
            raise DoubtError(
                f"Kafka has acknowledged nothing of a transaction for {self._progress.most_s:.0f} seconds"
            )
        self._transactions.check_topics({ssp.stream for _, _, ssp in self._waiting})
        if time.monotonic() > self._end:
            raise DoubtError(
                "Kafka has not acknowledged messages of a transaction for "
                f"{self._transactions._settings.patience_ms} ms"
            )


def opened(
    settings: Settings, identity: str, batch_bytes: int | None = None, until: float | None = None
) -> Any:
    """A producer that has fenced all others of this identity. Raises StreamSystemError."""
    changes = {} if batch_bytes is None else {"batch_size": batch_bytes}
    end, hopeless = until or settings.deadline(), 0
    with slow_logged(settings, f"fencing {identity}, whose last transaction ends first,"):
        while True:
            try:
                producer = new_producer(settings, transactional_id=identity, **changes)
                try:
                    producer.init_transactions()
                except BaseException as error:
                    abandon(producer)
                    if isinstance(error, kafka_errors.KafkaError):
                        raise as_ours(settings, f"fencing {identity}", error) from error
                    raise
                return producer
            except StreamSystemError as error:
                hopeless += not isinstance(error.__cause__, _PASSING)
                if (
                    hopeless >= TRIES
                    or isinstance(error.__cause__, kafka_errors.AuthorizationError)
                    or time.monotonic() > end
                ):
                    raise
            time.sleep(_AGAIN_S)


def fence(settings: Settings, identities: Sequence[str]) -> None:
    """End the transactions of all producers of these identities, and let no more of them
    begin. Raises StreamSystemError."""
    if identities:
        with ThreadPoolExecutor(min(_FENCE_AT_ONCE, len(identities))) as pool:
            for producer in pool.map(lambda identity: opened(settings, identity), identities):
                abandon(producer)
