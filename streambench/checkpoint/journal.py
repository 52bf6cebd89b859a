"""Checkpoints in a directory: a ledger of generations, and under each generation a ledger for each of its containers.

    generations/<n>.json          a start of the job: the assignment, and the checkpoints of all tasks as they were then (the base)
    g<n>/c<container>/<k>.json    what happened to one container since: ``open`` (somebody claimed it), ``commit``, ``closed``

Every record of a container holds the checkpoints of all its tasks, so that the last one suffices; those of the job are the base of its last
generation with the last records of its containers laid over it. A generation is opened by *closing* the containers of the one before,
whose last records cannot change any more from then on, and by linking a generation that carries them over. The link decides; whatever
process died before it has changed nothing but that the containers of the older start must stop.

**Pruning.** Of a container's records its commits go, oldest first, and the very first record like a commit; no other ``open`` or
``closed`` does, as long as its generation is there. So a holder cannot be late: the number after its own last record is free, or taken
for good by whoever fenced it. Who claims or closes can be late, and has the last commit for a witness.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from streambench.checkpoint import rules
from streambench.checkpoint.api import Checkpoint, CheckpointManager, Generation
from streambench.checkpoint.ledger import DamagedRecordError, Ledger, Record, sweep
from streambench.errors import CheckpointError, ConfigError, FencedError
from streambench.model import SystemStreamPartition

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder(order="deterministic").encode


class _Stored(Struct):
    """A checkpoint as it is written: partitions as text."""

    offsets: dict[str, str]
    starts: dict[str, str]
    changelogs: dict[str, str]
    generation: int
    sequence: int
    time_ms: int


class _Start(Struct, kw_only=True):
    """A generation as it is written. ``checkpoints``: the base."""

    number: int
    job: str
    host: str
    process: int
    time_ms: int
    assignment: dict[str, list[str]]
    checkpoints: dict[str, Raw]
    places: dict[str, int] = {}

    def containers(self) -> dict[int, tuple[str, ...]]:
        """The tasks of each container."""
        return {container: tuple(self.assignment[str(container)]) for container in sorted(map(int, self.assignment))}


class _Entry(Struct, kw_only=True):
    """A record of a container as it is written: ``holder``, on ``host``, did it; ``epoch`` is the number of the holder's ``open``.

    ``witness``: the last commit up to here (else the first record), which is pruned before any that may follow this one.
    """

    number: int
    kind: Literal["open", "commit", "closed"]
    generation: int
    container: int
    holder: str
    epoch: int
    witness: int
    host: str
    process: int
    time_ms: int
    checkpoints: dict[str, Raw]

    def who(self) -> str:
        """For the end of a sentence."""
        return f" ({self.host}, process {self.process}, at {rules.moment(self.time_ms)})"


class _Claim(Struct):
    """A container that is held. ``last``: its last record; ``commits``: the numbers of those to be pruned one day."""

    ledger: Ledger
    generation: int
    container: int
    tasks: Sequence[str]
    epoch: int
    last: Record
    checkpoints: dict[str, Raw]
    commits: deque[int] = msgspec.field(default_factory=deque)


class JournalCheckpointManager(CheckpointManager):
    """Keeps the checkpoints of ``job`` in ``directory``, which is the job's own. ``keep``: how many commits of each container to keep.

    One manager holds one container at a time, and belongs to one thread. The directory's file system must have hard links.
    """

    def __init__(self, directory: Path, job: str, *, keep: int) -> None:
        if keep < 1:
            raise ConfigError(f"task.checkpoint.history: {keep} is too few; the last commit is always kept", key="task.checkpoint.history")
        self._directory = directory
        self._job = job
        self._keep = keep
        self._generations = Ledger(directory / "generations")
        self._holder = uuid.uuid4().hex
        self._host = socket.gethostname()
        self._claim: _Claim | None = None

    def open_generation(
        self, assignment: Mapping[int, Sequence[str]], *, now_ms: int, places: Mapping[str, int] | None = None
    ) -> Generation:
        return self._open(rules.checked_assignment(assignment), {}, now_ms, places)

    def rewind(self, checkpoints: Mapping[str, Checkpoint], *, now_ms: int) -> Generation:
        return self._open(None, {task: _stored(checkpoint) for task, checkpoint in checkpoints.items()}, now_ms)

    def last_generation(self) -> Generation | None:
        with self._told():
            record = self._generations.last()
            if record is None:
                return None
            with record:
                return _generation(self._start(record))

    def claim(self, generation: int, container: int, *, now_ms: int) -> int:
        self.close()
        with self._told():
            last = self.last_generation()
            rules.check_claim(self._job, last, generation, container)
            assert last is not None
            # What is committed from now on must not outlive the record of its generation.
            self._generations.sync()
            ledger = self._container(generation, container)
            base = self._base(generation)
            record, checkpoints = self._take(ledger, generation, container, last.assignment[container], base, now_ms)
            claim = _Claim(ledger, generation, container, last.assignment[container], record.number, record, checkpoints)
            try:
                newest = self._newest()
                if newest != generation:
                    raise rules.superseded(self._job, container, newest)
                ledger.sweep()
                claim.commits.extend(number for number in ledger.numbers() if self._may_be_pruned(ledger, number))
            except BaseException:
                record.close()
                raise
            self._claim = claim
            return claim.epoch

    def read_last(self) -> dict[str, Checkpoint]:
        with self._told():
            while True:
                record = self._generations.last()
                if record is None:
                    return {}
                with record:
                    start = self._start(record)
                folded = dict(start.checkpoints)
                for container, tasks in start.containers().items():
                    top = self._container(start.number, container).last()
                    if top is not None:
                        with top:
                            folded.update(self._entry(top, tasks).checkpoints)
                if self._newest() == start.number:
                    return {task: self._checkpoint(raw, record.path) for task, raw in folded.items()}

    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        claim = self._claim
        if claim is None:
            raise rules.unclaimed(self._job)
        rules.check_tasks(self._job, claim.container, claim.tasks, checkpoints)
        merged = {**claim.checkpoints, **{task: _stored(checkpoint) for task, checkpoint in checkpoints.items()}}
        time_ms = max((checkpoint.time_ms for checkpoint in checkpoints.values()), default=0)
        number = claim.last.number + 1
        body = self._body("commit", claim.generation, claim.container, number, claim.epoch, number, time_ms, merged)
        # Whether a write that failed is on the disk nobody knows: the claim is gone until it has succeeded.
        self._claim = None
        with self._told():
            try:
                record = claim.ledger.append(claim.last, body)
                if record is None:
                    raise self._fenced(claim)
                if not claim.last.stands() and self._newest() != claim.generation:
                    record.close()
                    raise CheckpointError(
                        f"job {self._job}, container {claim.container}: newer starts of the job have taken over while it committed, and "
                        "whether this commit still counted is not known; this container must stop"
                    )
            finally:
                claim.last.close()
        claim.last = record
        claim.checkpoints = merged
        claim.commits.append(record.number)
        self._claim = claim
        if len(claim.commits) > self._keep:
            self._prune_commits(claim)

    def history(self) -> dict[str, list[Checkpoint]]:
        found: dict[str, list[Checkpoint]] = {}
        with self._told():
            for number in self._generations.kept():
                record = self._generations.open(number)
                if record is None:
                    continue
                with record:
                    start = self._start(record)
                self._collect(found, start.checkpoints, record.path)
                for container, tasks in start.containers().items():
                    ledger = self._container(number, container)
                    for at in ledger.numbers():
                        entry_record = ledger.open(at)
                        if entry_record is None:
                            continue
                        with entry_record:
                            entry = self._entry(entry_record, tasks)
                        if entry.kind == "commit":
                            self._collect(found, entry.checkpoints, entry_record.path)
        return found

    def close(self) -> None:
        if self._claim is not None:
            self._claim.last.close()
            self._claim = None

    # Opening a generation

    def _open(
        self, assignment: Mapping[int, Sequence[str]] | None, given: Mapping[str, Raw], now_ms: int, places: Mapping[str, int] | None = None
    ) -> Generation:
        """Open a generation with this assignment (None: that of the last one); in its base the given checkpoints replace the last ones."""
        with self._told():
            while True:
                last = self._generations.last()
                try:
                    start = self._start(last) if last else None
                    if assignment is None and start is not None:
                        rules.check_rewind(self._job, _generation(start), start.checkpoints, given)
                    merged = rules.merged_places(self._job, start.places if start else {}, places)
                    base = self._settled(start, given, now_ms) if start else {}
                    new = _Start(
                        number=last.number + 1 if last else 1,
                        job=self._job,
                        host=self._host,
                        process=os.getpid(),
                        time_ms=now_ms,
                        assignment=_texts(assignment) if assignment is not None else start.assignment if start else {},
                        checkpoints={**base, **given},
                        places=merged,
                    )
                    self._check_unused(new.number, last)
                    record = self._generations.append(last, _encode(new), witness=last)
                finally:
                    if last is not None:
                        last.close()
                if record is not None:
                    record.close()
                    self._prune_generations()
                    return _generation(new)

    def _settled(self, start: _Start, given: Mapping[str, Raw], now_ms: int) -> dict[str, Raw]:
        """Close the containers of a generation; the checkpoints of all tasks, which are final then."""
        settled = dict(start.checkpoints)
        for container, tasks in start.containers().items():
            ledger = self._container(start.number, container)
            base = {task: start.checkpoints[task] for task in tasks if task in start.checkpoints}
            settled.update(self._shut(ledger, start.number, container, tasks, base, given, now_ms))
            ledger.sweep()
        sweep(self._directory / f"g{start.number}")
        return settled

    def _shut(
        self,
        ledger: Ledger,
        generation: int,
        container: int,
        tasks: Sequence[str],
        base: dict[str, Raw],
        given: Mapping[str, Raw],
        now_ms: int,
    ) -> dict[str, Raw]:
        """Write ``closed`` behind whatever a container commits meanwhile; its last checkpoints."""
        while True:
            top = ledger.last()
            try:
                checkpoints, witness = base, None
                if top is not None:
                    witness = top
                    try:
                        entry = self._entry(top, tasks)
                    except DamagedRecordError:
                        # A rewind that says where each of the tasks goes on does not need what is lost.
                        if not given or not set(tasks) <= set(given):
                            raise
                        checkpoints = {task: given[task] for task in tasks}
                    else:
                        checkpoints = entry.checkpoints
                        if entry.kind == "closed":
                            return checkpoints
                        witness = ledger.open(entry.witness)
                        if witness is None:
                            continue
                record = self._append(ledger, "closed", generation, container, top, witness, now_ms, checkpoints)
            finally:
                if top is not None:
                    top.close()
            if record is not None:
                record.close()
                return checkpoints

    def _check_unused(self, number: int, last: Record | None) -> None:
        """Refuse to open a generation over what is left of one whose record somebody deleted."""
        left = self._directory / f"g{number}"
        if left.is_dir() and self._generations.numbers()[-1:] == ([last.number] if last else []):
            raise CheckpointError(
                f"{left} holds checkpoints, but the record of their generation, {self._generations.path(number)}, is missing: "
                f"put the record back, or move {left} away to go on from the generation before it"
            )

    def _prune_generations(self) -> None:
        """Forget the oldest generations where the later ones hold enough commits. Nothing but space depends on it."""
        try:
            sweep(self._directory)
            self._generations.sweep()
            numbers = self._generations.numbers()
            first, commits = numbers[-1], 0
            for number in reversed(numbers[:-1]):
                if commits >= self._keep:
                    break
                first = number
                directory = self._directory / f"g{number}"
                commits += max([1, *(len(Ledger(path).numbers()) - 2 for path in directory.glob("c*"))])
            self._generations.prune(number for number in numbers if number < first)
            for path in self._directory.glob("g*"):
                if path.name[1:].isdecimal() and int(path.name[1:]) < first:
                    for ledger in map(Ledger, path.glob("c*")):
                        ledger.prune(ledger.numbers())
                    shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            log.warning("%s: old checkpoints cannot be removed: %s", self._directory, error)

    # Holding a container

    def _take(
        self, ledger: Ledger, generation: int, container: int, tasks: Sequence[str], base: Mapping[str, Raw], now_ms: int
    ) -> tuple[Record, dict[str, Raw]]:
        """Write ``open`` behind whatever the former holder commits meanwhile; that record, and the last checkpoints."""
        while True:
            top = ledger.last()
            try:
                checkpoints, witness = {task: base[task] for task in tasks if task in base}, None
                if top is not None:
                    entry = self._entry(top, tasks)
                    if entry.kind == "closed":
                        raise rules.superseded(self._job, container, generation + 1, who=entry.who())
                    checkpoints = entry.checkpoints
                    witness = ledger.open(entry.witness)
                    if witness is None:
                        continue
                record = self._append(ledger, "open", generation, container, top, witness, now_ms, checkpoints)
            finally:
                if top is not None:
                    top.close()
            if record is not None:
                return record, checkpoints

    def _append(
        self,
        ledger: Ledger,
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
            body = self._body(kind, generation, container, number, number, witness.number if witness else number, now_ms, checkpoints)
            return ledger.append(top, body, witness=witness)
        finally:
            if witness is not None:
                witness.close()

    def _fenced(self, claim: _Claim) -> FencedError:
        """Who wrote the record that this holder was to write."""
        record = claim.ledger.open(claim.last.number + 1)
        if record is not None:
            with record:
                entry = self._entry(record, claim.tasks)
            if entry.kind != "closed":
                return rules.replaced(self._job, claim.container, who=entry.who())
            return rules.superseded(self._job, claim.container, claim.generation + 1, who=entry.who())
        newest = self._newest()
        if newest == claim.generation:
            return rules.replaced(self._job, claim.container)
        return rules.superseded(self._job, claim.container, newest)

    def _prune_commits(self, claim: _Claim) -> None:
        try:
            while len(claim.commits) > self._keep:
                claim.ledger.prune([claim.commits[0]])
                claim.commits.popleft()
        except OSError as error:
            log.warning("%s: old checkpoints cannot be removed: %s", claim.ledger.directory, error)

    def _may_be_pruned(self, ledger: Ledger, number: int) -> bool:
        """Whether a record is a commit, or counts as one: the first, and any that cannot be read (who asks for the history is told)."""
        record = ledger.open(number)
        if record is None:
            return False
        with record:
            try:
                return number == 1 or self._entry(record, ()).kind == "commit"
            except CheckpointError:
                return True

    # Reading and writing records

    def _container(self, generation: int, container: int) -> Ledger:
        return Ledger(self._directory / f"g{generation}" / f"c{container}")

    def _newest(self) -> int:
        numbers = self._generations.numbers()
        if not numbers:
            raise CheckpointError(f"job {self._job}: {self._generations.directory} was deleted while the job runs; start the job again")
        return numbers[-1]

    def _base(self, generation: int) -> dict[str, Raw]:
        record = self._generations.open(generation)
        if record is None:
            return {}
        with record:
            return self._start(record).checkpoints

    def _body(
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
        return _encode(
            _Entry(
                number=number,
                kind=kind,
                generation=generation,
                container=container,
                holder=self._holder,
                epoch=epoch,
                witness=witness,
                host=self._host,
                process=os.getpid(),
                time_ms=time_ms,
                checkpoints=checkpoints,
            )
        )

    def _start(self, record: Record) -> _Start:
        try:
            start = _decoded(record, _Start)
            _check_place(record, start.number)
        except DamagedRecordError as error:
            raise DamagedRecordError(
                error.path,
                f"{_after(error)}. It says which tasks this start of the job has and where they began: put it back from a copy, or move "
                f"{self._directory} away, to start the job without checkpoints",
            ) from None
        return start

    def _entry(self, record: Record, tasks: Sequence[str]) -> _Entry:
        try:
            entry = _decoded(record, _Entry)
            _check_place(record, entry.number)
        except DamagedRecordError as error:
            raise DamagedRecordError(error.path, f"{_after(error)}. {self._remedy(record, tasks)}") from None
        return entry

    def _remedy(self, record: Record, tasks: Sequence[str]) -> str:
        ledger = Ledger(record.path.parent)
        if ledger.path(record.number + 1).exists() or self._newest() > int(record.path.parent.parent.name[1:]):
            return "Nothing goes on from it any more: delete this one file to do without it"
        rewinding = f"rewind {', '.join(tasks)} (all of them)" if tasks else "rewind its tasks"
        before = ledger.open(record.number - 1) if record.number > 1 else None
        if before is None:
            return f"Nothing that it follows is left: {rewinding} to where the container is to go on"
        with before:
            try:
                _decoded(before, _Entry)
            except CheckpointError:
                return f"What it follows cannot be read either: {rewinding} to where the container is to go on"
        return (
            "Stop the job and delete this one file, to go back to the commit before it (what came after it is processed again); "
            f"or {rewinding} to where the container is to go on"
        )

    def _checkpoint(self, raw: Raw, path: Path) -> Checkpoint:
        try:
            stored = msgspec.json.decode(raw, type=_Stored)
            return Checkpoint(
                {SystemStreamPartition.parse(ssp): offset for ssp, offset in stored.offsets.items()},
                {SystemStreamPartition.parse(ssp): offset for ssp, offset in stored.starts.items()},
                stored.changelogs,
                stored.generation,
                stored.sequence,
                stored.time_ms,
            )
        except (msgspec.MsgspecError, ConfigError) as error:
            raise CheckpointError(f"{path}: a checkpoint in it (or in what follows it) cannot be read: {error}") from error

    def _collect(self, found: dict[str, list[Checkpoint]], checkpoints: Mapping[str, Raw], path: Path) -> None:
        for task, raw in checkpoints.items():
            checkpoint = self._checkpoint(raw, path)
            kept = found.setdefault(task, [])
            if not kept or kept[-1] != checkpoint:
                kept.append(checkpoint)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the operating system refuses becomes a CheckpointError that says where."""
        try:
            yield
        except OSError as error:
            where = error.filename or self._directory
            raise CheckpointError(
                f"job {self._job}: the checkpoints at {where} cannot be read or written: {error.strerror or error}; "
                "they need a directory that may be written to, with space left, on a file system with hard links"
            ) from error


T = TypeVar("T")


def _decoded(record: Record, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(record.body(), type=kind)
    except msgspec.MsgspecError as error:
        raise DamagedRecordError(record.path, f"is damaged: {error}") from None


def _check_place(record: Record, number: int) -> None:
    if number != record.number:
        raise DamagedRecordError(record.path, f"is in the wrong place: it is the record with the number {number}")


def _after(error: DamagedRecordError) -> str:
    return str(error).removeprefix(f"{error.path} ")


def _stored(checkpoint: Checkpoint) -> Raw:
    return Raw(
        _encode(
            _Stored(
                {str(ssp): offset for ssp, offset in checkpoint.offsets.items()},
                {str(ssp): offset for ssp, offset in checkpoint.starts.items()},
                dict(checkpoint.changelogs),
                checkpoint.generation,
                checkpoint.sequence,
                checkpoint.time_ms,
            )
        )
    )


def _generation(start: _Start) -> Generation:
    return Generation(start.number, start.containers(), start.places)


def _texts(assignment: Mapping[int, Sequence[str]]) -> dict[str, list[str]]:
    return {str(container): list(tasks) for container, tasks in assignment.items()}
