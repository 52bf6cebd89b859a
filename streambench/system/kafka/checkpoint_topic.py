"""The meaning of the records of a job's checkpoint topic, in their order: the holder of each container, and
the position of each task.

All records of a job are in one partition, and every reader of them in order comes to the same result. So the
order decides, and nothing else: a record counts if what came before it allows it. A commit counts if its
holder was still the last to claim its container, and its generation still the last that was opened. A
generation counts if it has the next number. What does not count is there, and means nothing.

Commits and claims that are transactions with more in them than their record (``exactly-once``) must not turn
out not to count afterwards. Such a generation is *closed* before the next one is opened. From then on none of
its containers can be claimed, and the holders of its containers are fenced. What they commit before that
counts. When the next generation is opened, they can commit no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from streambench.checkpoint import validation as rules
from streambench.checkpoint.api import Checkpoint, Generation
from streambench.checkpoint.stored_checkpoints import (
    StoredCheckpoints,
    StoredPartitions,
    decode_checkpoint,
)
from streambench.errors import CheckpointError
from streambench.model import SystemStreamPartition


class Opened(Struct, tag="generation", kw_only=True):
    """A start of the job. ``assignment``: None for a rewind, which leaves it as it is; ``checkpoints``: those
    of a rewind. ``atomic``: its containers commit in transactions. ``backfill``: as in ``Generation``; a
    rewind leaves it as it is."""

    number: int
    assignment: dict[str, list[str]] | None
    places: dict[str, int]
    checkpoints: dict[str, Raw] = {}
    atomic: bool = False
    backfill: str = ""
    who: str


class Closing(Struct, tag="closing", kw_only=True):
    """Generation ``number`` is about to be opened: the one before can be claimed no more."""

    number: int
    who: str


class Claimed(Struct, tag="claim", kw_only=True):
    """A process becomes the holder of a container."""

    generation: int
    container: int
    holder: str
    who: str


class Committed(Struct, tag="commit", kw_only=True):
    """A holder's commit: the checkpoints of some of its tasks. ``number`` distinguishes the commits
    of a holder."""

    generation: int
    container: int
    holder: str
    checkpoints: dict[str, Raw]
    number: int = 0


class Snapshot(Struct, tag="snapshot", kw_only=True):
    """Everything that the records before ``offset`` come to, so that they can be deleted. It counts only if
    it stands at that offset: then nothing has come between what it was made of and itself."""

    offset: int
    generation: int | None
    assignment: dict[str, list[str]]
    places: dict[str, int]
    holders: dict[str, str]
    who: str
    history: dict[str, list[Raw]]
    known: list[str] = []
    atomic: bool = False
    closing: Closing | None = None
    commits: dict[str, tuple[str, int]] = {}
    backfill: str = ""


Entry = Opened | Closing | Claimed | Committed | Snapshot

_decode: Callable[[bytes], Entry] = msgspec.json.Decoder(
    Opened | Closing | Claimed | Committed | Snapshot
).decode


class CheckpointTopicState:
    """The state that the records up to here result in.

    ``keep``: the number of checkpoints of each task that are remembered."""

    def __init__(self, job: str, keep: int) -> None:
        self.job = job
        self.generation: Generation | None = None
        self.opened_by = ""
        self.atomic = False
        """True where the containers of the last generation commit in transactions."""
        self.closing: Closing | None = None
        self.commits: dict[int, tuple[str, int]] = {}
        """Per container the holder and the number of its last commit."""
        self.holders: dict[int, tuple[str, str]] = {}
        """Per container its holder, and the process that it is."""
        self.history: dict[str, deque[bytes]] = {}
        self._keep = keep

    def apply(self, offset: int, entry: Entry) -> bool:
        """Apply a record; True if it counts, and is part of this from now on."""
        if isinstance(entry, Committed):
            return self._commit(entry)
        if isinstance(entry, Claimed):
            return self._claim(entry)
        if isinstance(entry, Opened):
            return self._open(entry)
        if isinstance(entry, Closing):
            return self._close(entry)
        return self._restore(offset, entry)

    def snapshot(self, offset: int, largest: int) -> Snapshot:
        """A record for this offset, of roughly so many bytes at most: where it would be more, less of the
        history is kept."""
        last = self.generation
        keep = self._keep
        while True:
            history = {
                task: [Raw(each) for each in list(kept)[-keep:]] for task, kept in self.history.items()
            }
            if keep == 1 or sum(len(bytes(each)) for kept in history.values() for each in kept) < largest:
                break
            keep //= 2
        return Snapshot(
            offset=offset,
            generation=None if last is None else last.number,
            assignment={} if last is None else as_text(last.assignment),
            places={} if last is None else dict(last.places),
            holders={str(container): holder for container, (holder, _) in self.holders.items()},
            who=self.opened_by,
            history=history,
            known=[] if last is None else sorted(map(str, last.known)),
            atomic=self.atomic,
            closing=self.closing,
            commits={str(container): commit for container, commit in self.commits.items()},
            backfill="" if last is None else last.backfill,
        )

    def checkpoints(self, where: str) -> dict[str, list[Checkpoint]]:
        """Per task its checkpoints, the last one last. ``where`` is for errors. Raises CheckpointError."""
        return {
            task: [decode_checkpoint(Raw(each), Path(where)) for each in kept]
            for task, kept in self.history.items()
        }

    def last(self, where: str) -> Mapping[str, Checkpoint]:
        """The last checkpoint of each task. ``where`` is for errors."""
        return StoredCheckpoints(self._last(), Path(where))

    def _last(self) -> dict[str, Raw]:
        return {task: Raw(kept[-1]) for task, kept in self.history.items()}

    def _open(self, entry: Opened) -> bool:
        last = self.generation
        if entry.number != self.next_number():
            return False
        assignment: Mapping[int, Sequence[str]] = {}
        backfill = ""
        if entry.assignment is not None:
            assignment, backfill = _as_numbers(entry.assignment), entry.backfill
        elif last is not None:
            assignment, backfill = last.assignment, last.backfill
        self._remember(entry.checkpoints)
        known = StoredPartitions(self._last())
        self.generation = Generation(entry.number, assignment, entry.places, known, backfill)
        self.opened_by = entry.who
        self.atomic = entry.atomic
        self.closing = None
        self.commits = {}
        self.holders = {}
        return True

    def next_number(self) -> int:
        """The number of the next generation."""
        return self.generation.number + 1 if self.generation is not None else 1

    def _close(self, entry: Closing) -> bool:
        if entry.number != self.next_number():
            return False
        self.closing = entry
        return True

    def _claim(self, entry: Claimed) -> bool:
        last = self.generation
        if (
            self.closing is not None
            or last is None
            or last.number != entry.generation
            or entry.container not in last.assignment
        ):
            return False
        self.holders[entry.container] = entry.holder, entry.who
        return True

    def _commit(self, entry: Committed) -> bool:
        last = self.generation
        if last is None or last.number != entry.generation or self.holder(entry.container) != entry.holder:
            return False
        holder, number = self.commits.get(entry.container, ("", 0))
        if holder == entry.holder and 0 < entry.number <= number:
            return False  # it was sent twice, as nothing was acknowledged for long, and this one is late
        self.commits[entry.container] = entry.holder, entry.number
        self._remember(entry.checkpoints)
        return True

    def _restore(self, offset: int, entry: Snapshot) -> bool:
        if entry.offset != offset:
            return False
        self.generation = None
        if entry.generation is not None:
            assignment = _as_numbers(entry.assignment)
            known_then = frozenset(map(SystemStreamPartition.parse, entry.known))
            self.generation = Generation(
                entry.generation, assignment, entry.places, known_then, entry.backfill
            )
        self.opened_by = entry.who
        self.atomic = entry.atomic
        self.closing = entry.closing
        self.commits = {int(container): commit for container, commit in entry.commits.items()}
        known = {holder: who for holder, who in self.holders.values()}
        self.holders = {
            int(container): (holder, known.get(holder, "")) for container, holder in entry.holders.items()
        }
        self.history = {
            task: deque((bytes(each) for each in kept), maxlen=self._keep)
            for task, kept in entry.history.items()
        }
        return True

    def holder(self, container: int) -> str | None:
        """The holder of a container."""
        return self.holders.get(container, (None, ""))[0]

    def check_open(self, generation: int, container: int) -> None:
        """Raise FencedError where this generation is being closed, or was."""
        if self.closing is not None and self.closing.number > generation:
            raise rules.superseded(self.job, container, self.closing.number, who=self.closing.who)

    def check(self, generation: int, container: int, holder: str) -> None:
        """Raise FencedError where this holder has been replaced."""
        last = self.generation
        if last is None or last.number != generation:
            raise rules.superseded(
                self.job, container, last.number if last is not None else 0, who=self.opened_by
            )
        if self.holder(container) != holder:
            raise rules.replaced(self.job, container, who=self.holders.get(container, ("", ""))[1])

    def _remember(self, checkpoints: Mapping[str, Raw]) -> None:
        for task, raw in checkpoints.items():
            kept = self.history.setdefault(task, deque(maxlen=self._keep))
            if not kept or kept[-1] != bytes(raw):
                kept.append(bytes(raw))


def as_text(assignment: Mapping[int, Sequence[str]]) -> dict[str, list[str]]:
    """An assignment as it is written."""
    return {str(container): list(tasks) for container, tasks in assignment.items()}


def _as_numbers(assignment: Mapping[str, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    """An assignment from what ``as_text`` has written."""
    return {container: tuple(assignment[str(container)]) for container in sorted(map(int, assignment))}


def read(data: bytes | None, where: str) -> Entry:
    """A record from its bytes. Raises CheckpointError."""
    try:
        return _decode(data or b"")
    except msgspec.MsgspecError as error:
        raise CheckpointError(
            f"{where} is no record of checkpoints: {error}. Does another program write to this topic?"
        ) from error
