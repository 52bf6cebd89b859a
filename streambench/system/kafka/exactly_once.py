"""Checkpoints in Kafka that are committed together with outputs and changelogs, in one transaction."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence

from streambench.checkpoint import validation as rules
from streambench.checkpoint.api import Checkpoint, Checkpoints
from streambench.checkpoint.pending_writes import PendingWritesApplier
from streambench.checkpoint.stored_checkpoints import encode, encode_checkpoint
from streambench.errors import StreambenchError, StreamSystemError
from streambench.model import SystemStreamPartition
from streambench.rows import Rows
from streambench.system.kafka.checkpoint_topic import Claimed
from streambench.system.kafka.checkpoints import TRIM_EVERY, Claim, KafkaCheckpointManager, who
from streambench.system.kafka.settings import Settings
from streambench.system.kafka.transactions import TRIES, DoubtError, Transactions

log = logging.getLogger(__name__)

_AGAIN_S = 0.1
_SUCCESSOR_S = 3.0
_COMPLETE_WITHIN_S = 10.0


class TransactionalCheckpointManager(KafkaCheckpointManager):
    """The checkpoints of a job that is exactly once.

    A commit is one Kafka transaction of a container: its outputs, the changes of its state, and behind them
    the record with its checkpoints. It begins when all of that is there, so that no reader has to wait
    for one that is open between two commits.

    **Fencing.** A container has the same ``transactional.id`` in every generation. The process that claims it
    takes that over, which fences the one before at the brokers, and *then* reads what was committed. A
    process that opens a generation first writes that the last one is closed. It then takes over all its ids
    for a moment, and reads. So it knows the last of its commits, and none can follow.

    **One partition for a job**, not one for each task. It must be clear that a generation was opened before
    or after a claim or a commit, and only a partition has an order. The price is that a reader has to wait
    for the end of transactions of other containers. They last milliseconds, and those of one that died end
    when it is started again, or after ``producer.transaction.timeout.ms``. A start does not wait: it ends
    them itself, and until then reads what stands before them.

    **Doubt.** If the outcome of a commit is unknown, a new producer takes over the id. The topic then shows
    it: either the record of the commit is there, and so is all of it, or the same is sent again."""

    def __init__(self, settings: Settings, job: str, *, keep: int, trim_every: int = TRIM_EVERY) -> None:
        super().__init__(settings, job, keep=keep, trim_every=trim_every)
        self.atomic = settings.cluster
        self._atomic = True
        self._transactions: Transactions | None = None
        self._untrimmed = 0

    def claim(self, generation: int, container: int, *, now_ms: int) -> int:
        self._claim = None
        if self._transactions is not None:
            self._transactions.abandon()
        place = SystemStreamPartition(self._stream.system, self._stream.stream, 0)
        transactions = self._transactions = Transactions(
            self._settings, self._identity(container), place, self._admin
        )
        holder = uuid.uuid4().hex
        entry = encode(Claimed(generation=generation, container=container, holder=holder, who=who(now_ms)))
        doubts = _Doubts(self._settings)
        while True:
            transactions.open(doubts.end)
            self._catch_up()
            rules.check_claim(self._job, self._state.generation, generation, container)
            self._state.check_open(generation, container)
            if self._state.holder(container) == holder:
                break
            try:
                self._read_to(transactions.run((), lambda ends: entry, doubts.end) + 1)
            except DoubtError as doubt:
                where = f"job {self._job}, container {container}"
                log.warning(
                    "%s: it is not certain whether it is claimed, so that is tried again: %s", where, doubt
                )
                doubts.add(doubt)
                continue
            if self._state.holder(container) == holder:
                break
        last = self._state.generation
        assert last is not None
        self._claim = Claim(generation, container, holder, tuple(last.assignment[container]))
        self._state.check(generation, container, holder)
        return self._next

    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        if self._claim is not None:
            rules.check_tasks(self._job, self._claim.container, self._claim.tasks, checkpoints)
        self._in_transaction(lambda ends: checkpoints, ())

    def commit(
        self, checkpoints: Checkpoints, rows: Sequence[Rows], applier: PendingWritesApplier
    ) -> Mapping[str, Checkpoint]:
        return self._in_transaction(checkpoints, rows)

    def finish_pending(self) -> None:
        # A reader that looks for what was committed, now that nothing more comes, shall find it.
        end = time.monotonic() + _COMPLETE_WITHIN_S
        while (
            self._transactions is not None
            and self._number
            and not self._transactions.is_complete()
            and time.monotonic() < end
        ):
            time.sleep(0.005)

    def close(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.abandon()
        self._number = 0
        super().close()

    def _in_transaction(self, checkpoints: Checkpoints, rows: Sequence[Rows]) -> Mapping[str, Checkpoint]:
        claim, transactions = self._claim, self._transactions
        if claim is None or transactions is None:
            raise rules.unclaimed(self._job)
        # If this fails, it is not known here what is committed.
        self._claim = None
        made: dict[int, Mapping[str, Checkpoint]] = {}

        def record(ends: Mapping[SystemStreamPartition, str]) -> bytes:
            wanted = made[self._number] = checkpoints(ends)
            rules.check_tasks(self._job, claim.container, claim.tasks, wanted)
            raw = {task: encode_checkpoint(checkpoint) for task, checkpoint in wanted.items()}
            return encode(claim.committed(raw, self._number))

        where, doubts = f"job {self._job}, container {claim.container}", _Doubts(self._settings)
        done = 0
        while done not in made:
            self._number += 1
            try:
                transactions.run(rows, record, doubts.end)
                done = self._number
            except DoubtError as doubt:
                log.warning(
                    "%s: it is not certain what came of a commit, so it is looked for: %s", where, doubt
                )
                done = self._resolved(claim, transactions, doubt, doubts.end)
                if done not in made:
                    doubts.add(doubt)
                fate = "is there" if done in made else "is not there; it is made again"
                log.warning("%s: the commit %s", where, fate)
            except BaseException:
                self._take_back(transactions)
                raise
        self._claim = claim
        self._untrimmed += 1
        if self._untrimmed >= self._trim_every:
            self._untrimmed = 0
            self._catch_up()
            self._trim()
        return made[done]

    def _resolved(self, claim: Claim, transactions: Transactions, doubt: DoubtError, end: float) -> int:
        """The number of the last commit, when another one cannot be made any more. Raises FencedError."""
        if doubt.fenced:
            self._wait_for_successor(claim)
        while True:
            transactions.open(end)
            try:
                self._catch_up()
                break
            except StreamSystemError:
                if time.monotonic() > end:
                    raise
            time.sleep(_AGAIN_S)
        self._check_may_go_on(claim)
        holder, number = self._state.commits.get(claim.container, ("", 0))
        return number if holder == claim.holder else 0

    def _wait_for_successor(self, claim: Claim) -> None:
        """Leave it to the new holder, if there is one, to record that it has taken over: else it would have
        to start again."""
        end = time.monotonic() + _SUCCESSOR_S
        while time.monotonic() < end:
            self._take_news(100)
            self._check_may_go_on(claim)

    def _check_may_go_on(self, claim: Claim) -> None:
        self._check_holds(claim)
        self._state.check_open(claim.generation, claim.container)

    def _take_back(self, transactions: Transactions) -> None:
        """Have what was begun end now, so that no other process waits for it."""
        try:
            transactions.open()
        except StreambenchError as error:
            log.warning("a transaction of %s stays open until it times out: %s", transactions.identity, error)
        transactions.abandon()


class _Doubts:
    """The number of tries, and the time until which the same may be tried.

    For all of it together brokers may be away no longer
    than for a part of it."""

    def __init__(self, settings: Settings) -> None:
        self.end = settings.deadline()
        self._hopeless = 0

    def add(self, doubt: DoubtError) -> None:
        """Wait a little; or raise, where it does not get better."""
        self._hopeless += not doubt.may_pass
        if time.monotonic() > self.end or self._hopeless >= TRIES:
            raise StreamSystemError(str(doubt)) from doubt
        time.sleep(_AGAIN_S)
