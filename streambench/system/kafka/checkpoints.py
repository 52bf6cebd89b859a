"""Checkpoints in a topic of Kafka: one for each job, with one partition. Its order decides which process may
commit."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from msgspec import Raw, Struct

from streambench.checkpoint import validation as rules
from streambench.checkpoint.api import Checkpoint, CheckpointManager, Generation, LeaseHolder, Work
from streambench.checkpoint.stored_checkpoints import encode, encode_checkpoint
from streambench.errors import CheckpointError, ConfigError, StreambenchError, do_all
from streambench.model import SystemStream
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.checkpoint_topic import (
    CheckpointTopicState,
    Claimed,
    Closing,
    Committed,
    Entry,
    Opened,
    as_text,
    read,
)
from streambench.system.kafka.clients import (
    abandon,
    as_ours,
    new_consumer,
    new_producer,
    patiently,
    replacement,
    slow_logged,
    unreachable,
)
from streambench.system.kafka.job_lease import SESSION_MS, JobLease, holder_of, new_lease_name
from streambench.system.kafka.settings import CHECKPOINTS, DEPLOYMENTS, LEASES, Settings
from streambench.system.kafka.stall_detector import StallDetector
from streambench.system.kafka.transactions import fence

log = logging.getLogger(__name__)

_LARGEST = 16 << 20
TRIM_EVERY = 2_000
_CHECK_EVERY_S = 1.0
_SUSPECT_S = 3.0
# Brokers look for transactions that were open for too long every ten seconds, unless they are set otherwise.
_ENDED_S = 30.0
_POLL_MS = 20
_TRIES = 20
_OTHER = re.compile(r"[^a-zA-Z0-9.-]")
_CODED = re.compile(r"_([0-9a-f]+)_")


class Claim(Struct, frozen=True):
    """A container that is held."""

    generation: int
    container: int
    holder: str
    tasks: tuple[str, ...]

    def committed(self, checkpoints: dict[str, Raw], number: int) -> Committed:
        """The record of a commit of its tasks."""
        return Committed(
            generation=self.generation,
            container=self.container,
            holder=self.holder,
            checkpoints=checkpoints,
            number=number,
        )


class KafkaCheckpointManager(CheckpointManager):
    """Keeps the checkpoints of ``job`` in a topic of its own. ``keep``: how many of each task to keep.

    Kafka cannot write a record only if no other process has written since. But a partition has one order, and
    what a record means follows from the records before it (see ``checkpoint_topic``). So a record is written,
    read back, and counts or does not. A holder that was replaced learns of it when it writes. A commit is one
    record, so it counts as a whole and needs no transaction. A record that arrives after its writer gave up
    does no harm: it counts only until another process has claimed the container. So a record that is not
    acknowledged for long is written again, by another producer; of a commit that is there twice the first
    counts.

    Records are deleted once they stand before a snapshot of the state they result in. Compaction could not do
    that: it keeps the last record of a key, even one that does not count.
    """

    lease_s = SESSION_MS / 1000

    def __init__(self, settings: Settings, job: str, *, keep: int, trim_every: int = TRIM_EVERY) -> None:
        if keep < 1:
            raise ConfigError(
                f"task.checkpoint.history: {keep} is too few; the last commit is always kept",
                key="task.checkpoint.history",
            )
        self._settings = settings
        self._job = job
        self._keep = keep
        self._trim_every = trim_every
        self._stream = SystemStream(settings.system, topic_of(job))
        self.deployments = SystemStream(settings.system, topic_of(job, DEPLOYMENTS))
        self._partition = TopicPartition(self._stream.stream, 0)
        self._admin = KafkaAdmin(settings)
        self._consumer: Any = None
        self._producer: Any = None
        self._exists = False
        self._state = CheckpointTopicState(job, keep)
        self._next = self._begun = self._known = 0
        self._claim: Claim | None = None
        self._lease: JobLease | None = None
        self._checked = 0.0
        self._number = 0
        self._atomic = False

    def open_generation(
        self,
        assignment: Mapping[int, Sequence[str]],
        *,
        now_ms: int,
        places: Mapping[str, int] | None = None,
        backfill: str = "",
    ) -> Generation:
        return self._open(rules.checked_assignment(assignment), {}, now_ms, places, backfill)

    def rewind(self, checkpoints: Mapping[str, Checkpoint], *, now_ms: int) -> Generation:
        return self._open(None, checkpoints, now_ms, None)

    def last_generation(self) -> Generation | None:
        # It stands before every open transaction: the start that opened it had ended those there were.
        self._read_committed()
        return self._state.generation

    def claim(self, generation: int, container: int, *, now_ms: int) -> int:
        self._claim = None
        self._catch_up()
        rules.check_claim(self._job, self._state.generation, generation, container)
        holder = uuid.uuid4().hex
        entry = Claimed(generation=generation, container=container, holder=holder, who=who(now_ms))
        offset, counts = self._append(entry)
        last = self._state.generation
        assert last is not None
        if not counts and self._state.holder(container) != holder:
            raise rules.superseded(self._job, container, last.number, who=self._state.opened_by)
        tasks = tuple(last.assignment[container]) if last.number == generation else ()
        self._claim = Claim(generation, container, holder, tasks)
        self._state.check(generation, container, holder)
        return offset + 1

    def read_last(self) -> Mapping[str, Checkpoint]:
        self._catch_up()
        return self._state.last(str(self._stream))

    def read_committed(self) -> Mapping[str, Checkpoint]:
        self._read_committed()
        return self._state.last(str(self._stream))

    def history(self) -> dict[str, list[Checkpoint]]:
        self._catch_up()
        return self._state.checkpoints(str(self._stream))

    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        claim = self._claim
        if claim is None:
            raise rules.unclaimed(self._job)
        rules.check_tasks(self._job, claim.container, claim.tasks, checkpoints)
        raw = {task: encode_checkpoint(checkpoint) for task, checkpoint in checkpoints.items()}
        self._number += 1
        # It is not known if a record whose writing failed is there: the claim is gone until it has
        # succeeded.
        self._claim = None
        _, counts = self._append(claim.committed(raw, self._number))
        # Where another container has put a snapshot behind it already, and it was deleted before it was read
        # back, the snapshot has it.
        if not counts and self._state.commits.get(claim.container) != (claim.holder, self._number):
            self._state.check(claim.generation, claim.container, claim.holder)
            raise CheckpointError(
                f"{self._stream}: a commit of container {claim.container} does not count, and no process has "
                "taken over"
            )
        self._claim = claim
        self._trim()

    def check(self) -> None:
        claim, now = self._claim, time.monotonic()
        if claim is None or now - self._checked < _CHECK_EVERY_S:
            return
        self._checked = now
        self._take_news()
        self._check_holds(claim)

    def _take_news(self, timeout_ms: int = 0) -> None:
        """Take what has come meanwhile; where it had to begin again, everything."""
        self._take(self._poll(timeout_ms))
        self._read_to(self._known)

    def _check_holds(self, claim: Claim) -> None:
        self._state.check(claim.generation, claim.container, claim.holder)

    def take_lease(self, work: Work, container: int | None = None) -> str:
        if self._lease is None:
            group = topic_of(self._job, LEASES)
            name = new_lease_name(work, container)
            self._lease = JobLease(self._settings, group, self._stream.stream, name)
        return self._lease.name

    @property
    def is_lease_refused(self) -> bool:
        return self._lease is not None and self._lease.is_refused

    def lease_holders(self) -> list[LeaseHolder]:
        members = self._admin.members(topic_of(self._job, LEASES))
        found = [holder for each in members if (holder := holder_of(each["client_id"])) is not None]
        return sorted(found, key=lambda each: each.since_ms)

    def close(self) -> None:
        self._claim = None
        consumer, producer, lease = self._consumer, self._producer, self._lease
        self._consumer = self._producer = self._lease = None
        self._state, self._next, self._exists = CheckpointTopicState(self._job, self._keep), 0, False
        do_all(
            [
                lambda: consumer is not None and consumer.close(autocommit=False, timeout_ms=0),
                lambda: producer is not None and producer.close(timeout=5),
                lambda: None if lease is None else lease.release(),
                self._admin.close,
            ]
        )

    def _open(
        self,
        assignment: Mapping[int, Sequence[str]] | None,
        rewound: Mapping[str, Checkpoint],
        now_ms: int,
        places: Mapping[str, int] | None,
        backfill: str = "",
    ) -> Generation:
        self._create()

        def checked() -> dict[str, int]:
            last = self._state.generation
            if assignment is None:
                rules.check_rewind(self._job, last, self._state.history, rewound)
            else:
                rules.check_backfill(self._job, last, backfill)
            return rules.merged_places(self._job, last.places if last is not None else {}, places)

        for _ in range(_TRIES):
            self._read_to(self._admin.readable(self._partition)[1])
            checked()  # what is refused stops nothing
            self._close_last(now_ms)
            merged, number = checked(), self._state.next_number()
            entry = Opened(
                number=number,
                assignment=None if assignment is None else as_text(assignment),
                places=merged,
                checkpoints={task: encode_checkpoint(checkpoint) for task, checkpoint in rewound.items()},
                atomic=self._atomic,
                backfill=backfill,
                who=who(now_ms),
            )
            offset, counts = self._append(entry)
            opened = self._state.generation
            if opened is None:
                continue
            # A snapshot may have taken its place before it was read back.
            is_ours = (opened.number, self._state.opened_by) == (number, entry.who)
            if counts or (offset < self._begun and is_ours):
                self._trim()
                return opened
        raise CheckpointError(
            f"job {self._job}: {_TRIES} times another start of the job came first; is something starting it "
            "again and again?"
        )

    def _close_last(self, now_ms: int) -> None:
        """Read everything; where containers of the last generation commit in transactions, have the last of
        these end first, and have no more begin."""
        while True:
            last = self._state.generation
            if last is not None and self._state.atomic:
                self._write(Closing(number=last.number + 1, who=who(now_ms)))
                fence(self._settings, [self._identity(container) for container in last.assignment])
            self._catch_up()
            newer = self._state.generation
            if newer is None or not self._state.atomic or (last is not None and last.number == newer.number):
                return

    def _identity(self, container: int) -> str:
        """The transactional identity of a container, in every generation."""
        return f"{self._stream.stream}.{container}"

    def _create(self) -> None:
        if not self._exists:
            forever = {
                "retention_ms": -1,
                "retention_bytes": -1,
                "cleanup_policy": "delete",
                "max_message_bytes": _LARGEST,
            }
            self._admin.create(self._stream, 1, **forever)
            self._exists = True

    def _append(self, entry: Entry) -> tuple[int, bool]:
        """Write a record; its offset, and whether it counts."""
        offset = self._write(entry)
        return offset, self._read_to(offset + 1, offset)

    def _write(self, entry: Entry) -> int:
        data, doing = encode(entry), f"writing checkpoints to {self._stream}"
        most_s = StallDetector(self._settings).most_s
        until = self._settings.deadline()
        largest = {"max_request_size": _LARGEST, "linger_ms": 0, "compression_type": "gzip"}
        if self._producer is None:
            self._producer = new_producer(self._settings, **largest)
        while True:
            try:
                with slow_logged(self._settings, doing):
                    future = self._producer.send(self._partition.topic, data, partition=0)
                    offset: int = future.get(timeout=max(0.1, min(most_s, until - time.monotonic()))).offset
                return offset
            except kafka_errors.KafkaError as error:
                producer, self._producer = self._producer, None
                if self._is_gone():
                    abandon(producer)
                    raise self._gone() from error
                if isinstance(error, kafka_errors.KafkaTimeoutError) and time.monotonic() < until:
                    log.warning("%s: no answer for %.0f seconds; it is written again", doing, most_s)
                    self._producer = replacement(producer, self._settings, until, **largest)
                    continue
                abandon(producer)
                if isinstance(error, kafka_errors.KafkaTimeoutError):
                    raise unreachable(self._settings, doing) from error
                raise as_ours(self._settings, doing, error) from error

    def _catch_up(self) -> None:
        """Read everything that is there now: also what stands behind the first open transaction, when that
        has ended. A reader that stopped there would take an older checkpoint for the last."""
        if self._is_there():
            self._read_to(self._admin.high_watermarks([self._partition])[self._partition])

    def _read_committed(self) -> None:
        """Read up to the first open transaction, without waiting for its end. Where a container died in the
        midst of a commit, only a new start or a timeout ends the transaction. A new start has to read
        first."""
        if self._is_there():
            self._read_to(self._admin.readable(self._partition)[1])

    def _is_there(self) -> bool:
        self._exists = self._exists or self._admin.exists(self._stream)
        return self._exists

    def _read_to(self, end: int, wanted: int = -1) -> bool:
        """Read up to an offset; whether the record at ``wanted`` counts, if it was there to be read."""
        if self._next >= max(end, self._known):
            return False
        with slow_logged(self._settings, f"reading {self._stream}"):
            return self._read_on(end, wanted)

    def _read_on(self, end: int, wanted: int) -> bool:
        counts = False
        began = now = time.monotonic()
        limit, look, warned = now + self._settings.patience_ms / 1000, now + _SUSPECT_S, False
        progress = StallDetector(self._settings)
        # Where records were deleted before they were read, reading has begun again: at least up to what stood
        # there then.
        while self._next < max(end, self._known):
            was = self._next
            counts = self._take(self._poll(_POLL_MS), wanted) or counts
            now = time.monotonic()
            if self._next != was:
                look = now + _SUSPECT_S
            elif now > look:
                if self._is_gone():
                    raise self._gone()
                for each in self._admin.hanging(self._partition):
                    if each.state is not None:
                        raise CheckpointError(
                            f"job {self._job}: its checkpoints cannot be read: "
                            f"{each.described(self._settings.system)}"
                        )
                look = now + _SUSPECT_S
                if progress.has_stalled(self._next):
                    self._give_up_reading()
                    progress.begin()
            if now > limit:
                opened = self._admin.open_at(self._partition)
                if not opened:
                    raise unreachable(self._settings, f"reading {self._stream}")
                reason = opened[0].described(self._settings.system)
                if now > began + self._longest_s():
                    raise CheckpointError(f"job {self._job}: its checkpoints cannot be read: {reason}")
                if not warned:
                    log.warning(
                        "job %s: its checkpoints cannot be read yet, and are waited for: %s",
                        self._job,
                        reason,
                    )
                limit, warned = now + _SUSPECT_S, True
        return counts

    def _longest_s(self) -> float:
        """The time (s) for which a transaction of another container may keep this one from reading: until
        brokers end it."""
        longest = int(self._settings.producer["transaction_timeout_ms"]) / 1000 + _ENDED_S
        return max(longest, self._settings.patience_ms / 1000)

    def _is_gone(self) -> bool:
        """True where the topic was deleted: Kafka gives neither reader nor writer an error then."""
        topic = self._stream.stream
        return self._admin.identities([topic]).get(topic, "") is None

    def _gone(self) -> CheckpointError:
        return CheckpointError(
            f"job {self._job}: its checkpoints are gone: the topic {self._stream.stream} was deleted. The "
            "next start makes it again, and begins without checkpoints, where "
            "systems.<s>.samza.offset.default says"
        )

    def _poll(self, timeout_ms: int) -> list[Any]:
        try:
            consumer = self._reading()
            records: list[Any] = consumer.poll(timeout_ms).get(self._partition, [])
            # Only the position passes what is no message: ends of transactions, and what was taken back.
            if not records:
                self._next = max(self._next, consumer.position(self._partition, timeout_ms=0) or 0)
        except kafka_errors.OffsetOutOfRangeError:
            # What stood here has been deleted, because a snapshot stands behind it.
            self._begin()
            return []
        except kafka_errors.UnknownBrokerIdError:
            self._give_up_reading()  # the next poll is that of a client that knows the brokers there are now
            return []
        except kafka_errors.KafkaError as error:
            raise as_ours(self._settings, f"reading {self._stream}", error) from error
        return records

    def _reading(self) -> Any:
        if self._consumer is None:
            settings = {
                "isolation_level": "read_committed",
                "fetch_max_wait_ms": 20,
                "fetch_min_bytes": 1,
                "max_poll_records": 1000,
            }
            until = self._settings.deadline()
            self._consumer = patiently(lambda: new_consumer(self._settings, **settings), until)
            try:
                self._consumer.assign([self._partition])
                self._begin()
            except BaseException:
                self._give_up_reading()
                raise
        return self._consumer

    def _give_up_reading(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=0)

    def _begin(self) -> None:
        """Read from the first record there is."""
        self._state = CheckpointTopicState(self._job, self._keep)
        self._begun, self._known = self._admin.readable(self._partition)
        self._next = self._begun
        self._consumer.seek(self._partition, self._next)

    def _take(self, records: list[Any], wanted: int = -1) -> bool:
        """Apply records, which count or not; True where the record at ``wanted`` does."""
        found = False
        for record in records:
            where = f"{self._stream}@{record.offset}"
            counts = self._state.apply(record.offset, read(record.value, where))
            if record.offset == self._begun > 0 and not counts:
                raise CheckpointError(
                    f"{self._stream}: the records before offset {record.offset} are gone, and no snapshot "
                    "has what they were: was the topic's retention changed? Delete the topic to begin "
                    "without checkpoints"
                )
            self._next = record.offset + 1
            found = found or (counts and record.offset == wanted)
        return found

    def _trim(self) -> None:
        """Put a snapshot in the place of the records, where there are many."""
        if self._next - self._begun < self._trim_every:
            return
        offset, counts = self._append(self._state.snapshot(self._next, _LARGEST // 2))
        if counts:  # else another process has written meanwhile; the next commit tries again
            self._begun = offset
            try:
                self._admin.delete_before(self._stream, 0, offset)
            except StreambenchError as error:
                log.warning("%s grows, as its old records cannot be deleted: %s", self._stream, error)


def topic_of(job: str, kind: str = CHECKPOINTS) -> str:
    """The topic that holds the checkpoints of a job. ``kind``: the beginning of its name, for another one."""
    return kind + _OTHER.sub(lambda found: f"_{ord(found[0]):x}_", job)


def job_of(topic: str) -> str:
    """The job whose checkpoints are in a topic."""
    return _CODED.sub(lambda found: chr(int(found[1], 16)), topic.removeprefix(CHECKPOINTS))


def who(now_ms: int) -> str:
    """The process that acted, for the end of a sentence."""
    return f" ({socket.gethostname()}, process {os.getpid()}, at {rules.moment(now_ms)})"
