"""The records of one job's journal: reading them, and taking containers over by appending some."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from msgspec import Raw

from streambench.checkpoint import validation as rules
from streambench.checkpoint.pending_writes import PendingWrites
from streambench.checkpoint.record_log import DamagedRecordError, Record, RecordLog, sweep
from streambench.checkpoint.records import Entry, Start, decoded
from streambench.checkpoint.remedies import remedy
from streambench.checkpoint.stored_checkpoints import encode
from streambench.errors import CheckpointError, StreambenchError
from streambench.locks import is_locked
from streambench.process_identity import has_ended

log = logging.getLogger(__name__)
_is_announced: ContextVar[bool] = ContextVar("takeover_announced", default=False)


@contextmanager
def takeover_announced() -> Iterator[None]:
    """Log a takeover without a warning: the caller has shown it already."""
    before = _is_announced.set(True)
    try:
        yield
    finally:
        _is_announced.reset(before)


class JournalRecords:
    """The records of ``job`` in ``directory``: those of its generations, and of each container of them.

    ``keep``: how many commits of each container stay. ``apply`` writes the outputs of a commit that its
    process left to be written.
    """

    def __init__(
        self, directory: Path, job: str, keep: int, apply: Callable[[PendingWrites], None] | None
    ) -> None:
        self.generations = RecordLog(directory / "generations")
        self.host = socket.gethostname()
        self._directory = directory
        self._job = job
        self._keep = keep
        self._apply = apply
        self._holder = uuid.uuid4().hex

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn errors of the operating system into a CheckpointError that names the file."""
        try:
            yield
        except OSError as error:
            where = error.filename or self._directory
            raise CheckpointError(
                f"job {self._job}: the checkpoints at {where} cannot be read or written: "
                f"{error.strerror or error}; "
                "they need a directory that may be written to, with space left, on a file system with hard "
                "links"
            ) from error

    def newest(self) -> int:
        numbers = self.generations.numbers()
        if not numbers:
            raise CheckpointError(
                f"job {self._job}: {self.generations.directory} was deleted while the job runs; start the "
                "job again"
            )
        return numbers[-1]

    def container(self, generation: int, container: int) -> RecordLog:
        return RecordLog(self._directory / f"g{generation}" / f"c{container}")

    def start(self, record: Record) -> Start:
        try:
            return decoded(record, Start)
        except DamagedRecordError as error:
            raise DamagedRecordError(
                error.path,
                f"{error.what}. It says which tasks this start of the job has and where they began: put it "
                "back from a copy, or move "
                f"{self._directory} away, to start the job without checkpoints",
            ) from None

    def entry(self, record: Record, tasks: Sequence[str]) -> Entry:
        try:
            return decoded(record, Entry)
        except DamagedRecordError as error:
            raise DamagedRecordError(
                error.path, f"{error.what}. {remedy(record, tasks, self.newest())}"
            ) from None

    def body(
        self,
        kind: Literal["open", "commit", "closed"],
        generation: int,
        container: int,
        number: int,
        epoch: int,
        witness: int,
        time_ms: int,
        checkpoints: dict[str, Raw],
    ) -> bytes:
        return encode(
            Entry(
                number=number,
                kind=kind,
                generation=generation,
                container=container,
                holder=self._holder,
                epoch=epoch,
                witness=witness,
                host=self.host,
                process=os.getpid(),
                time_ms=time_ms,
                checkpoints=checkpoints,
            )
        )

    def take(
        self,
        record_log: RecordLog,
        generation: int,
        container: int,
        tasks: Sequence[str],
        base: Mapping[str, Raw],
        now_ms: int,
    ) -> tuple[Record, dict[str, Raw]]:
        """Write ``open`` behind the last record of the former holder. Returns that record, and the last
        checkpoints."""

        def read(top: Record) -> tuple[Entry, dict[str, Raw]]:
            entry = self.entry(top, tasks)
            if entry.kind == "closed":
                raise rules.superseded(self._job, container, generation + 1, who=entry.who())
            return entry, entry.checkpoints

        known = {task: base[task] for task in tasks if task in base}
        record, checkpoints, _ = self._take_over(
            record_log, "open", generation, container, known, now_ms, read
        )
        assert record is not None, "read() raises where there is nothing to take over"
        return record, checkpoints

    def _take_over(
        self,
        record_log: RecordLog,
        kind: Literal["open", "closed"],
        generation: int,
        container: int,
        base: dict[str, Raw],
        now_ms: int,
        read: Callable[[Record], tuple[Entry | None, dict[str, Raw]]],
    ) -> tuple[Record | None, dict[str, Raw], int | None]:
        """Append a record behind the last one of the former holder, which may still commit meanwhile.

        ``read`` gives the content of the last record, if it can be read, and the checkpoints to continue
        with. ``base``: those where there is no record. Returns the new record (None where the container is
        closed already), the checkpoints, and the number of the last commit."""
        while True:
            top = record_log.last()
            try:
                checkpoints, witness = base, None
                if top is not None:
                    entry, checkpoints = read(top)
                    witness = top
                    if entry is not None:
                        if entry.kind == "closed":
                            return None, checkpoints, entry.witness
                        self._report_living(record_log, entry)
                        witness = record_log.open(entry.witness)
                        # Pruned meanwhile, behind a later commit: look again.
                        if witness is None:
                            continue
                last_commit = witness.number if witness else None
                record = self._append(
                    record_log, kind, generation, container, top, witness, now_ms, checkpoints
                )
            finally:
                if top is not None:
                    top.close()
            # Else the former holder, or another successor, was faster: look again.
            if record is not None:
                return record, checkpoints, last_commit

    def _append(
        self,
        record_log: RecordLog,
        kind: Literal["open", "closed"],
        generation: int,
        container: int,
        top: Record | None,
        witness: Record | None,
        now_ms: int,
        checkpoints: dict[str, Raw],
    ) -> Record | None:
        """Take over a container from behind ``top``; None where that was not its last record."""
        number = top.number + 1 if top else 1
        try:
            body = self.body(
                kind,
                generation,
                container,
                number,
                number,
                witness.number if witness else number,
                now_ms,
                checkpoints,
            )
            return record_log.append(top, body, witness=witness)
        finally:
            if witness is not None:
                witness.close()

    def final_checkpoints(self, start: Start, given: Mapping[str, Raw], now_ms: int) -> dict[str, Raw]:
        """Close the containers of a generation; the checkpoints of all tasks, which are final then."""
        final = dict(start.checkpoints)
        for container, tasks in start.containers().items():
            record_log = self.container(start.number, container)
            base = {task: start.checkpoints[task] for task in tasks if task in start.checkpoints}
            final.update(self._shut(record_log, start.number, container, tasks, base, given, now_ms))
            record_log.sweep()
        sweep(self._directory / f"g{start.number}")
        return final

    def _shut(
        self,
        record_log: RecordLog,
        generation: int,
        container: int,
        tasks: Sequence[str],
        base: dict[str, Raw],
        given: Mapping[str, Raw],
        now_ms: int,
    ) -> dict[str, Raw]:
        """Write ``closed`` behind the last commit of a container, and have that commit applied; its last
        checkpoints."""
        # A rewind that says where each of the tasks goes on does not need what is lost.
        replaced = bool(given) and set(tasks) <= set(given)

        def read(top: Record) -> tuple[Entry | None, dict[str, Raw]]:
            try:
                entry = self.entry(top, tasks)
            except DamagedRecordError:
                if not replaced:
                    raise
                return None, {task: given[task] for task in tasks}
            return entry, entry.checkpoints

        record, checkpoints, last_commit = self._take_over(
            record_log, "closed", generation, container, base, now_ms, read
        )
        if record is not None:
            record.close()
        if last_commit is not None:
            self.apply_left(record_log, last_commit, tasks, dispensable=replaced)
        return checkpoints

    def apply_left(
        self, record_log: RecordLog, number: int, tasks: Sequence[str], *, dispensable: bool = False
    ) -> None:
        """Apply what the last commit of a container left to be applied. ``dispensable``: continue where
        that is not possible."""
        record = record_log.open(number)
        if record is None:
            return
        with record:
            try:
                payload = record.payload()
                if payload is None:
                    return
                effects = PendingWrites.from_bytes(payload)
                if self._apply is None:
                    raise CheckpointError("the job's systems are not known here")
                self._apply(effects)
            except StreambenchError as error:
                what = (
                    f"job {self._job}: {record.path}, the last commit of {', '.join(tasks)}, holds outputs "
                    "that cannot be written to their "
                    f"streams: {error}"
                )
                if not dispensable:
                    raise CheckpointError(
                        f"{what}. Set that right and start again; or rewind these tasks (all of them), "
                        "which does without these outputs"
                    ) from error
                log.error("%s. They are lost", what)
                return
            record.cut()

    def _report_living(self, record_log: RecordLog, entry: Entry) -> None:
        """Warn where a container is taken from a process that has not stopped."""
        if is_at_work(record_log, entry):
            log.log(
                logging.INFO if _is_announced.get() else logging.WARNING,
                "job %s, container %d is still running elsewhere%s: it is taken over from there, and stops "
                "there as soon as it notices",
                self._job,
                entry.container,
                entry.who(),
            )

    def check_unused(self, number: int, last: Record | None) -> None:
        """Refuse to open a generation over what is left of one whose record was deleted."""
        left = self._directory / f"g{number}"
        if left.is_dir() and self.generations.numbers()[-1:] == ([last.number] if last else []):
            raise CheckpointError(
                f"{left} holds checkpoints, but the record of their generation, "
                f"{self.generations.path(number)}, is missing: "
                f"put the record back, or move {left} away to go on from the generation before it"
            )

    def may_be_pruned(self, record_log: RecordLog, number: int) -> bool:
        """Return True for a commit, and what counts as one: the first record, and an unreadable one (reading
        the history reports it)."""
        record = record_log.open(number)
        if record is None:
            return False
        with record:
            try:
                return number == 1 or self.entry(record, ()).kind == "commit"
            except CheckpointError:
                return True

    def prune_generations(self) -> None:
        """Forget the oldest generations where the later ones hold enough commits. Nothing but space depends
        on it."""
        try:
            sweep(self._directory)
            self.generations.sweep()
            numbers = self.generations.numbers()
            first, commits = numbers[-1], 0
            for number in reversed(numbers[:-1]):
                if commits >= self._keep:
                    break
                first = number
                directory = self._directory / f"g{number}"
                commits += max([1, *(len(RecordLog(path).numbers()) - 2 for path in directory.glob("c*"))])
            self.generations.prune(number for number in numbers if number < first)
            for path in self._directory.glob("g*"):
                if path.name[1:].isdecimal() and int(path.name[1:]) < first:
                    for record_log in map(RecordLog, path.glob("c*")):
                        record_log.prune(record_log.numbers())
                    shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            log.warning("%s: old checkpoints cannot be removed: %s", self._directory, error)


def is_at_work(record_log: RecordLog, entry: Entry) -> bool:
    """True where the process that wrote the last entry of a container has it still. Only for reports."""
    # A program that a task has started may hold the lock of its process, which was killed.
    is_left = entry.kind == "closed" or has_ended(entry.host, entry.process)
    return not is_left and is_locked(record_log.path(entry.epoch))
