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

**Exactly once.** A commit's record may carry what the commit writes to streams, its *effects*. Its link decides over them, too. The holder
applies them, durably, and cuts them off the record before it commits again, so that only the last commit can have some left: these are
applied by whoever claims or closes the container next, before he goes on. Applying them twice does nothing (``Effects``).
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from streambench.checkpoint import rules
from streambench.checkpoint.api import Checkpoint, CheckpointManager, Checkpoints, Generation
from streambench.checkpoint.effects import Applier, Effects
from streambench.checkpoint.holding import is_held, take_hold
from streambench.checkpoint.ledger import DamagedRecordError, Ledger, Record, sweep
from streambench.checkpoint.records import Entry, Start, decoded, encode, packed, unpacked
from streambench.errors import CheckpointError, ConfigError, FencedError, StreambenchError
from streambench.held import Held
from streambench.system.rows import Rows, ends_of

log = logging.getLogger(__name__)


class _Claim(Struct):
    """A container that is held. ``last``: its last record; ``time_ms``: when anything was committed last, or it was taken; ``commits``: the
    numbers of those to be pruned one day."""

    ledger: Ledger
    generation: int
    container: int
    producer: str
    tasks: Sequence[str]
    epoch: int
    last: Record
    checkpoints: dict[str, Raw]
    time_ms: int
    commits: deque[int] = msgspec.field(default_factory=deque)


class JournalCheckpointManager(CheckpointManager):
    """Keeps the checkpoints of ``job`` in ``directory``, which is the job's own. ``keep``: how many commits of each container to keep.

    ``apply`` writes the effects of a commit to their streams where the one who committed may have died before he could. One manager holds
    one container at a time, and belongs to one thread. The directory's file system must have hard links.
    """

    atomic: str | None = "log"

    def __init__(self, directory: Path, job: str, *, keep: int, apply: Callable[[Effects], None] | None = None) -> None:
        if keep < 1:
            raise ConfigError(f"task.checkpoint.history: {keep} is too few; the last commit is always kept", key="task.checkpoint.history")
        self.directory = self._directory = directory
        self._job = job
        self._keep = keep
        self._generations = Ledger(directory / "generations")
        self._holder = uuid.uuid4().hex
        self._host = socket.gethostname()
        self._apply = apply
        self._claim: _Claim | None = None
        self._hold: Held | None = None

    def open_generation(
        self, assignment: Mapping[int, Sequence[str]], *, now_ms: int, places: Mapping[str, int] | None = None
    ) -> Generation:
        return self._open(rules.checked_assignment(assignment), {}, now_ms, places)

    def rewind(self, checkpoints: Mapping[str, Checkpoint], *, now_ms: int) -> Generation:
        return self._open(None, {task: packed(checkpoint) for task, checkpoint in checkpoints.items()}, now_ms)

    def last_generation(self) -> Generation | None:
        with self._told():
            record = self._generations.last()
            if record is None:
                return None
            with record:
                return self._start(record).plain()

    def claim(self, generation: int, container: int, *, now_ms: int) -> int:
        self.close()
        with self._told():
            top = self._generations.last()
            start = None
            if top is not None:
                with top:
                    start = self._start(top)
            rules.check_claim(self._job, start.plain() if start else None, generation, container)
            assert start is not None
            tasks = start.containers()[container]
            # What is committed from now on must not outlive the record of its generation.
            self._generations.sync()
            ledger = self._container(generation, container)
            record, checkpoints = self._take(ledger, generation, container, tasks, start.checkpoints, now_ms)
            claim = _Claim(ledger, generation, container, start.producer(container), tasks, record.number, record, checkpoints, now_ms)
            try:
                newest = self._newest()
                if newest != generation:
                    raise rules.superseded(self._job, container, newest)
                self._apply_left(ledger, self._entry(record, tasks).witness, tasks)
                ledger.sweep()
                claim.commits.extend(number for number in ledger.numbers() if self._may_be_pruned(ledger, number))
            except BaseException:
                record.close()
                raise
            self._claim = claim
            self._hold = take_hold(record.path)
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
                    return {task: unpacked(raw, record.path) for task, raw in folded.items()}

    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        self._commit(self._claimed(), checkpoints, None)

    def commit(self, checkpoints: Checkpoints, rows: Sequence[Rows], applier: Applier) -> Mapping[str, Checkpoint]:
        made = checkpoints(ends_of(rows))
        if not rows:
            self.write(made)
            return made
        claim = self._claimed()
        now_ms = time.time_ns() // 1_000_000
        for each in rows:
            each.stamp(now_ms)
        effects = Effects(claim.producer, claim.generation, claim.last.number + 1, rows)
        try:
            applier.check(effects)
        except CheckpointError:
            self.check()
            raise
        self._commit(claim, made, effects)
        # From here on they are certain to be applied; should that fail now, by whoever starts the container next.
        self._claim = None
        try:
            applier.apply(effects)
            with self._told():
                claim.last.cut()
        except BaseException:
            claim.last.close()
            raise
        self._claim = claim
        return made

    def check(self) -> None:
        claim = self._claim
        if claim is not None and claim.ledger.path(claim.last.number + 1).exists():
            with self._told():
                raise self._fenced(claim)

    def _claimed(self) -> _Claim:
        if self._claim is None:
            raise rules.unclaimed(self._job)
        return self._claim

    def _commit(self, claim: _Claim, checkpoints: Mapping[str, Checkpoint], effects: Effects | None) -> None:
        rules.check_tasks(self._job, claim.container, claim.tasks, checkpoints)
        merged = {**claim.checkpoints, **{task: packed(checkpoint) for task, checkpoint in checkpoints.items()}}
        # A commit of nothing but outputs, those of a window, say, has no checkpoints.
        claim.time_ms = max((checkpoint.time_ms for checkpoint in checkpoints.values()), default=claim.time_ms)
        number = claim.last.number + 1
        body = self._body("commit", claim.generation, claim.container, number, claim.epoch, number, claim.time_ms, merged)
        payload = b"" if effects is None else effects.to_bytes()
        # Whether a write that failed is on the disk nobody knows: the claim is gone until it has succeeded.
        self._claim = None
        with self._told():
            try:
                record = claim.ledger.append(claim.last, body, payload=payload)
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

    def holders(self) -> dict[int, str]:
        """Per container of the last generation that somebody holds now, who that is. Only for telling people."""
        found: dict[int, str] = {}
        with self._told():
            record = self._generations.last()
            if record is None:
                return found
            with record:
                start = self._start(record)
            for container, tasks in start.containers().items():
                top = self._container(start.number, container).last()
                if top is not None:
                    with top:
                        entry = self._entry(top, tasks)
                    if entry.kind != "closed" and is_held(self._container(start.number, container).path(entry.epoch)):
                        found[container] = f"process {entry.process} on {entry.host}"
        return found

    def close(self) -> None:
        if self._claim is not None:
            self._claim.last.close()
            self._claim = None
        if self._hold is not None:
            self._hold.release()
            self._hold = None

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
                        rules.check_rewind(self._job, start.plain(), start.checkpoints, given)
                    merged = rules.merged_places(self._job, start.places if start else {}, places)
                    base = self._settled(start, given, now_ms) if start else {}
                    new = Start(
                        number=last.number + 1 if last else 1,
                        job=self._job,
                        host=self._host,
                        process=os.getpid(),
                        time_ms=now_ms,
                        assignment=start.assignment if start else {},
                        checkpoints={**base, **given},
                        places=merged,
                        journal=(start.journal if start else "") or uuid.uuid4().hex[:12],
                    )
                    if assignment is not None:
                        new.assignment = {str(container): list(tasks) for container, tasks in assignment.items()}
                    self._check_unused(new.number, last)
                    record = self._generations.append(last, encode(new), witness=last)
                finally:
                    if last is not None:
                        last.close()
                if record is not None:
                    record.close()
                    self._prune_generations()
                    return new.plain()

    def _settled(self, start: Start, given: Mapping[str, Raw], now_ms: int) -> dict[str, Raw]:
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
        """Write ``closed`` behind whatever a container commits meanwhile, and have its last commit applied; its last checkpoints."""
        # A rewind that says where each of the tasks goes on does not need what is lost.
        replaced = bool(given) and set(tasks) <= set(given)
        while True:
            top = ledger.last()
            try:
                checkpoints, witness = base, None
                if top is not None:
                    witness = top
                    try:
                        entry = self._entry(top, tasks)
                    except DamagedRecordError:
                        if not replaced:
                            raise
                        checkpoints = {task: given[task] for task in tasks}
                    else:
                        checkpoints = entry.checkpoints
                        if entry.kind == "closed":
                            self._apply_left(ledger, entry.witness, tasks, dispensable=replaced)
                            return checkpoints
                        self._tell_of_living(ledger, entry)
                        witness = ledger.open(entry.witness)
                        if witness is None:
                            continue
                last_commit = witness.number if witness else None
                record = self._append(ledger, "closed", generation, container, top, witness, now_ms, checkpoints)
            finally:
                if top is not None:
                    top.close()
            if record is not None:
                record.close()
                if last_commit is not None:
                    self._apply_left(ledger, last_commit, tasks, dispensable=replaced)
                return checkpoints

    def _apply_left(self, ledger: Ledger, number: int, tasks: Sequence[str], *, dispensable: bool = False) -> None:
        """Apply what the last commit of a container left to be applied. ``dispensable``: go on without it where that is not possible."""
        record = ledger.open(number)
        if record is None:
            return
        with record:
            try:
                payload = record.payload()
                if payload is None:
                    return
                effects = Effects.from_bytes(payload)
                if self._apply is None:
                    raise CheckpointError("nobody here knows the job's systems")
                self._apply(effects)
            except StreambenchError as error:
                what = (
                    f"job {self._job}: {record.path}, the last commit of {', '.join(tasks)}, holds outputs that cannot be written to their "
                    f"streams: {error}"
                )
                if not dispensable:
                    raise CheckpointError(
                        f"{what}. Set that right and start again; or rewind these tasks (all of them), which does without these outputs"
                    ) from error
                log.error("%s. They are lost", what)
                return
            record.cut()

    def _tell_of_living(self, ledger: Ledger, entry: Entry) -> None:
        """Say so where a container is taken from somebody who has not stopped."""
        if entry.kind != "closed" and is_held(ledger.path(entry.epoch)):
            log.warning(
                "job %s, container %d is still running elsewhere%s: it is taken over from there, and stops there as soon as it notices",
                self._job, entry.container, entry.who(),
            )  # fmt: skip

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
                    self._tell_of_living(ledger, entry)
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
        return encode(
            Entry(
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

    def _start(self, record: Record) -> Start:
        try:
            return decoded(record, Start)
        except DamagedRecordError as error:
            raise DamagedRecordError(
                error.path,
                f"{error.what}. It says which tasks this start of the job has and where they began: put it back from a copy, or move "
                f"{self._directory} away, to start the job without checkpoints",
            ) from None

    def _entry(self, record: Record, tasks: Sequence[str]) -> Entry:
        try:
            return decoded(record, Entry)
        except DamagedRecordError as error:
            raise DamagedRecordError(error.path, f"{error.what}. {self._remedy(record, tasks)}") from None

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
                decoded(before, Entry)
            except CheckpointError:
                return f"What it follows cannot be read either: {rewinding} to where the container is to go on"
        return (
            "Stop the job and delete this one file, to go back to the commit before it (what came after it is processed again); "
            f"or {rewinding} to where the container is to go on"
        )

    def _collect(self, found: dict[str, list[Checkpoint]], checkpoints: Mapping[str, Raw], path: Path) -> None:
        for task, raw in checkpoints.items():
            checkpoint = unpacked(raw, path)
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
