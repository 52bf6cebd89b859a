"""Step 5: checkpoints in a directory.

A record log holds the generations, and below each generation each of its containers has one:

    generations/<n>.json          a start of the job: the assignment, and the checkpoints of all tasks as
                                  they were then (the base)
    g<n>/c<container>/<k>.json    what happened to one container since: ``open`` (a process claimed it),
                                  ``commit``, ``closed``

Every record of a container holds the checkpoints of all its tasks, so that the last one suffices. Those of
the job are the base of its last generation with the last records of its containers laid over it. To open a
generation, its writer *closes* the containers of the one before, whose last records cannot change any more.
Then it links a generation that carries these records over. The link decides; whatever process died before it
has changed nothing but that the containers of the older start must stop.

**Pruning.** Of a container's records its commits go, oldest first, and the very first record like a commit.
No other ``open`` or ``closed`` does, as long as its generation is there. So a holder cannot be late: the
number after its own last record is free, or taken for good by its successor. A process that claims or closes
can be late, and has the last commit for a witness.

**Exactly once.** A commit's record may carry what the commit writes to streams, its *effects*. Its link
decides over them, too. The holder applies them, durably, and cuts them off the record before it commits
again. So only the last commit can have some left. The next process to claim or close the container applies
these first. Applying them twice does nothing (``PendingWrites``).
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from streambench.checkpoint import validation as rules
from streambench.checkpoint.api import Checkpoint, CheckpointManager, Checkpoints, Generation, Inherited
from streambench.checkpoint.journal_records import JournalRecords, is_at_work
from streambench.checkpoint.pending_writes import PendingWrites, PendingWritesApplier
from streambench.checkpoint.record_log import Record, RecordLog
from streambench.checkpoint.records import Start
from streambench.checkpoint.remedies import missing_record
from streambench.checkpoint.stored_checkpoints import (
    StoredCheckpoints,
    StoredPartitions,
    decode_checkpoint,
    encode,
    encode_checkpoint,
)
from streambench.errors import CheckpointError, ConfigError, FencedError
from streambench.locks import Held, take_lock
from streambench.process_identity import is_stopped
from streambench.rows import Rows, ends_of

log = logging.getLogger(__name__)


class _Claim(Struct):
    """A container that is held. ``last``: its last record. ``base``: the checkpoints of all tasks when its
    generation was opened. ``time_ms``: when anything was committed last, or it was taken. ``commits``: the
    numbers of those to be pruned one day."""

    record_log: RecordLog
    generation: int
    container: int
    producer: str
    tasks: Sequence[str]
    epoch: int
    last: Record
    checkpoints: dict[str, Raw]
    base: Mapping[str, Raw]
    time_ms: int
    commits: deque[int] = msgspec.field(default_factory=deque)


class JournalCheckpointManager(CheckpointManager):
    """Keeps the checkpoints of ``job`` in ``directory``, which is the job's own. ``keep``: how many commits
    of each container to keep.

    ``apply`` writes the effects of a commit to their streams where the process that committed may have died
    before it could. One manager holds one container at a time, and belongs to one thread. The directory's
    file system must have hard links."""

    atomic: str | None = "log"

    def __init__(
        self, directory: Path, job: str, *, keep: int, apply: Callable[[PendingWrites], None] | None = None
    ) -> None:
        if keep < 1:
            raise ConfigError(
                f"task.checkpoint.history: {keep} is too few; the last commit is always kept",
                key="task.checkpoint.history",
            )
        self.directory = self._directory = directory
        self._job = job
        self._keep = keep
        self._records = JournalRecords(directory, job, keep, apply)
        self._claim: _Claim | None = None
        self._hold: Held | None = None
        self.before_opening: Callable[[], None] = lambda: (
            None
        )  # raises where another one is to open the generation

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
        return self._open(
            None, {task: encode_checkpoint(checkpoint) for task, checkpoint in checkpoints.items()}, now_ms
        )

    def last_generation(self) -> Generation | None:
        with self._records.translated_errors():
            record = self._records.generations.last()
            if record is None:
                return None
            with record:
                return self._records.start(record).plain()

    def claim(self, generation: int, container: int, *, now_ms: int) -> int:
        self.close()
        with self._records.translated_errors():
            top = self._records.generations.last()
            start = None
            if top is not None:
                with top:
                    start = self._records.start(top)
            opened = start.plain() if start else None
            rules.check_claim(self._job, opened, generation, container)
            assert start is not None
            assert opened is not None
            tasks = opened.assignment[container]
            # What is committed from now on must not outlive the record of its generation.
            self._records.generations.sync()
            record_log = self._records.container(generation, container)
            record, checkpoints = self._records.take(
                record_log, generation, container, tasks, start.checkpoints, now_ms
            )
            claim = _Claim(
                record_log,
                generation,
                container,
                start.producer(container),
                tasks,
                record.number,
                record,
                checkpoints,
                start.checkpoints,
                now_ms,
            )
            try:
                newest = self._records.newest()
                if newest != generation:
                    raise rules.superseded(self._job, container, newest)
                self._records.apply_left(record_log, self._records.entry(record, tasks).witness, tasks)
                record_log.sweep()
                claim.commits.extend(
                    number
                    for number in record_log.numbers()
                    if self._records.may_be_pruned(record_log, number)
                )
            except BaseException:
                record.close()
                raise
            self._claim = claim
            self._hold = take_lock(record.path)
            return claim.epoch

    def inherited(self) -> Inherited:
        claim = self._claimed()
        # What other containers have committed since is of their own partitions.
        last = {**claim.base, **claim.checkpoints}
        return Inherited(StoredCheckpoints(last, claim.last.path), StoredPartitions(claim.base))

    def read_last(self) -> Mapping[str, Checkpoint]:
        with self._records.translated_errors():
            while True:
                record = self._records.generations.last()
                if record is None:
                    return {}
                with record:
                    start = self._records.start(record)
                folded = dict(start.checkpoints)
                for container, tasks in start.containers().items():
                    top = self._records.container(start.number, container).last()
                    if top is not None:
                        with top:
                            folded.update(self._records.entry(top, tasks).checkpoints)
                if self._records.newest() == start.number:
                    return StoredCheckpoints(folded, record.path)

    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        self._commit(self._claimed(), checkpoints, None)

    def commit(
        self, checkpoints: Checkpoints, rows: Sequence[Rows], applier: PendingWritesApplier
    ) -> Mapping[str, Checkpoint]:
        made = checkpoints(ends_of(rows))
        if not rows:
            self.write(made)
            return made
        claim = self._claimed()
        now_ms = time.time_ns() // 1_000_000
        for each in rows:
            each.stamp(now_ms)
        effects = PendingWrites(claim.producer, claim.generation, claim.last.number + 1, rows)
        try:
            applier.check(effects, self._missing_record)
        except CheckpointError:
            self.check()
            raise
        self._commit(claim, made, effects)
        # From here on they are certain to be applied; should that fail now, by the next start of the
        # container.
        self._claim = None
        try:
            applier.apply(effects)
            with self._records.translated_errors():
                claim.last.cut()
        except BaseException:
            claim.last.close()
            raise
        self._claim = claim
        return made

    def check(self) -> None:
        claim = self._claim
        if claim is not None and self.is_replaced():
            with self._records.translated_errors():
                raise self._fenced(claim)

    def is_replaced(self) -> bool:
        claim = self._claim
        if claim is None:
            return False
        try:
            # A holder that slept through many starts: its records, and what followed them, were pruned.
            return claim.record_log.path(claim.last.number + 1).exists() or not claim.last.stands()
        except OSError:
            return False  # its own commit on another thread has just closed the record

    def _missing_record(self, generation: int, sequence: int) -> Path | None:
        claim = self._claimed()
        with self._records.translated_errors():
            record_log = self._records.container(generation, claim.container)
            return (
                missing_record(record_log, self._records.generations, generation, sequence)
                if generation < claim.generation
                else None
            )

    def _claimed(self) -> _Claim:
        if self._claim is None:
            raise rules.unclaimed(self._job)
        return self._claim

    def _commit(
        self, claim: _Claim, checkpoints: Mapping[str, Checkpoint], effects: PendingWrites | None
    ) -> None:
        rules.check_tasks(self._job, claim.container, claim.tasks, checkpoints)
        made = {task: encode_checkpoint(checkpoint) for task, checkpoint in checkpoints.items()}
        merged = {**claim.checkpoints, **made}
        # A commit of nothing but outputs, those of a window, say, has no checkpoints.
        claim.time_ms = max((each.time_ms for each in checkpoints.values()), default=claim.time_ms)
        number = claim.last.number + 1
        body = self._records.body(
            "commit", claim.generation, claim.container, number, claim.epoch, number, claim.time_ms, merged
        )
        payload = b"" if effects is None else effects.to_bytes()
        # A write that fails may be on the disk or not: this process writes no more, as it has no claim.
        self._claim = None
        with self._records.translated_errors():
            claim.last = self._append(claim, body, payload)
        claim.checkpoints = merged
        claim.commits.append(number)
        self._claim = claim
        self._prune_commits(claim)

    def _append(self, claim: _Claim, body: bytes, payload: bytes) -> Record:
        """Append a record to those of a container. Raises FencedError and CheckpointError."""
        try:
            record = claim.record_log.append(claim.last, body, payload=payload)
            if record is None:
                raise self._fenced(claim)
            if not claim.last.stands() and self._records.newest() != claim.generation:
                record.close()
                raise CheckpointError(
                    f"job {self._job}, container {claim.container}: newer starts of the job have taken "
                    "over while it committed, and "
                    "whether this commit still counted is not known; this container must stop"
                )
            return record
        finally:
            claim.last.close()

    def history(self) -> dict[str, list[Checkpoint]]:
        found: dict[str, list[Checkpoint]] = {}
        with self._records.translated_errors():
            for number in self._records.generations.kept():
                record = self._records.generations.open(number)
                if record is None:
                    continue
                with record:
                    start = self._records.start(record)
                self._collect(found, start.checkpoints, record.path)
                for container, tasks in start.containers().items():
                    record_log = self._records.container(number, container)
                    for at in record_log.numbers():
                        entry_record = record_log.open(at)
                        if entry_record is None:
                            continue
                        with entry_record:
                            entry = self._records.entry(entry_record, tasks)
                        if entry.kind == "commit":
                            self._collect(found, entry.checkpoints, entry_record.path)
        return found

    def holders(self, *, with_stopped: bool = True) -> dict[int, str]:
        """Per held container of the last generation, its process; also one that is stopped (by SIGSTOP, say),
        unless not asked for. Only for reports."""
        found: dict[int, str] = {}
        with self._records.translated_errors():
            record = self._records.generations.last()
            if record is None:
                return found
            with record:
                start = self._records.start(record)
            for container, tasks in start.containers().items():
                top = self._records.container(start.number, container).last()
                if top is not None:
                    with top:
                        entry = self._records.entry(top, tasks)
                    if is_at_work(self._records.container(start.number, container), entry) and (
                        with_stopped or not is_stopped(entry.host, entry.process)
                    ):
                        found[container] = f"process {entry.process} on {entry.host}"
        return found

    def close(self) -> None:
        if self._claim is not None:
            self._claim.last.close()
            self._claim = None
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def _open(
        self,
        assignment: Mapping[int, Sequence[str]] | None,
        given: Mapping[str, Raw],
        now_ms: int,
        places: Mapping[str, int] | None = None,
        backfill: str = "",
    ) -> Generation:
        """Open a generation with this assignment (None: that of the last one, whose backfill it is, too). In
        its base the given checkpoints replace the last ones."""
        with self._records.translated_errors():
            while True:
                last = self._records.generations.last()
                self.before_opening()
                try:
                    start = self._records.start(last) if last else None
                    if assignment is not None:
                        rules.check_backfill(self._job, start.plain() if start else None, backfill)
                    elif start is not None:
                        rules.check_rewind(self._job, start.plain(), start.checkpoints, given)
                        backfill = start.backfill
                    merged = rules.merged_places(self._job, start.places if start else {}, places)
                    base = self._records.final_checkpoints(start, given, now_ms) if start else {}
                    new = Start(
                        number=last.number + 1 if last else 1,
                        job=self._job,
                        host=self._records.host,
                        process=os.getpid(),
                        time_ms=now_ms,
                        assignment=start.assignment if start else {},
                        checkpoints={**base, **given},
                        places=merged,
                        rewound=assignment is None,
                        backfill=backfill,
                        journal=(start.journal if start else "") or uuid.uuid4().hex[:12],
                    )
                    if assignment is not None:
                        new.assignment = {
                            str(container): list(tasks) for container, tasks in assignment.items()
                        }
                    self._records.check_unused(new.number, last)
                    record = self._records.generations.append(last, encode(new), witness=last)
                finally:
                    if last is not None:
                        last.close()
                if record is not None:
                    record.close()
                    self._records.prune_generations()
                    return new.plain()

    def _fenced(self, claim: _Claim) -> FencedError:
        """The error for a holder whose next record another process wrote."""
        record = claim.record_log.open(claim.last.number + 1)
        if record is not None:
            with record:
                entry = self._records.entry(record, claim.tasks)
            if entry.kind != "closed":
                return rules.replaced(self._job, claim.container, who=entry.who())
            return rules.superseded(self._job, claim.container, claim.generation + 1, who=entry.who())
        newest = self._records.newest()
        if newest == claim.generation:
            return rules.replaced(self._job, claim.container)
        return rules.superseded(self._job, claim.container, newest)

    def _prune_commits(self, claim: _Claim) -> None:
        try:
            while len(claim.commits) > self._keep:
                claim.record_log.prune([claim.commits[0]])
                claim.commits.popleft()
        except OSError as error:
            log.warning("%s: old checkpoints cannot be removed: %s", claim.record_log.directory, error)

    def _collect(
        self, found: dict[str, list[Checkpoint]], checkpoints: Mapping[str, Raw], path: Path
    ) -> None:
        for task, raw in checkpoints.items():
            checkpoint = decode_checkpoint(raw, path)
            kept = found.setdefault(task, [])
            if not kept or kept[-1] != checkpoint:
                kept.append(checkpoint)
