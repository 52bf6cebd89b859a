"""State from its changelog, as it was at the last checkpoint.

A checkpoint says how long the changelog was when it was made. What stands behind that was written by a run
that died before its commit: it is no part of the state. It cannot be cut off, so it is corrected. For each
key that it touches, the value that is valid at the checkpoint is written behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from streambench.errors import StoreError
from streambench.model import PartitionMetadata, SystemStreamPartition
from streambench.store.engine import StoreEngine
from streambench.system.api import Chunk, SystemConsumer

_AT_ONCE = 10_000
_PATIENCE_MS = 1_000

Compare = Callable[[str, str], int | None]


class RestoreProgress(Struct, frozen=True):
    """The progress of the restore of a container's stores: entries read from snapshots and changelogs, and
    their number at most (None: unknown)."""

    restored: int
    total: int | None


@runtime_checkable
class _SkipsLosses(Protocol):
    """A consumer that can be configured to skip lost data. State with a gap would be wrong in silence."""

    def fail_on_data_loss(self) -> None: ...


class Restore:
    """The restore of one store of one task.

    ``here``: what the changelog's partition holds, asked after every older writer was fenced. ``committed``:
    its upcoming offset as of the checkpoint, the first that is not part of the state; None: nothing was
    committed, so that none is. ``compare``: that of the changelog's system. ``held``: the offset up to which
    the engine holds the state already, so that only what follows has to be read. None: the engine is empty.
    """

    def __init__(
        self,
        engine: StoreEngine,
        ssp: SystemStreamPartition,
        here: PartitionMetadata,
        committed: str | None,
        compare: Compare,
        *,
        store: str,
        held: str | None = None,
    ) -> None:
        self.ssp = ssp
        self.entries = 0
        self._engine = engine
        self._store = store
        self._here = here
        self._newest = here.newest
        self.committed = committed
        self._compare = compare
        self._tail: dict[bytes, tuple[bytes | None, int | None]] = {}
        self.held = held
        if committed is not None and here.upcoming is not None and self._order(committed, here.upcoming) > 0:
            raise _no_such_state(
                ssp, store, committed, "it is empty" if here.newest is None else f"it ends at {here.upcoming}"
            )
        self.start = here.oldest
        if held is not None and here.oldest is not None and self._order(held, here.oldest) > 0:
            self.start = held
        at_end = (
            here.upcoming is not None
            and self.start is not None
            and self._order(self.start, here.upcoming) >= 0
        )
        self.done = self.start is None or at_end
        self.total = _between(self.start, here.upcoming)

    def again(self, held: str | None = None) -> Restore:
        """The same restore where the engine holds another part of the state. ``held``: as above."""
        return Restore(
            self._engine, self.ssp, self._here, self.committed, self._compare, store=self._store, held=held
        )

    def take(self, chunk: Chunk) -> None:
        """Apply the next entries of the changelog."""
        if not chunk.offsets:
            return
        self._check(chunk)
        count = self._committed_in(chunk.offsets)
        times = chunk.timestamps
        if count:
            self._engine.load(
                chunk.keys[:count], chunk.messages[:count], None if times is None else times[:count]
            )
        for at in range(count, len(chunk.offsets)):
            self._tail[chunk.keys[at]] = chunk.messages[at], None if times is None else times[at]
        self.entries += len(chunk.offsets)
        if self._newest is not None and self._order(chunk.offsets[-1], self._newest) >= 0:
            self.done = True

    def corrections(
        self, written: Callable[[bytes], int | None] | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """The corrections for the changelog: per key that the orphaned tail leaves wrong, its value
        (None: delete).

        ``written``: for a store whose entries expire, when an entry was written; a wrong time is as wrong as
        a wrong value."""
        get = self._engine.get
        return [
            (key, valid)
            for key, (orphaned, time) in self._tail.items()
            if (valid := get(key)) != orphaned
            or (written is not None and valid is not None and written(key) != time)
        ]

    def _committed_in(self, offsets: list[str]) -> int:
        """The number of offsets that belong to the state: those before ``committed``."""
        committed = self.committed
        if committed is None:
            return 0
        if self._order(offsets[-1], committed) < 0:
            return len(offsets)
        return bisect_left(offsets, 0, key=lambda offset: self._order(offset, committed))

    def _order(self, offset: str, other: str) -> int:
        order = self._compare(offset, other)
        if order is None:
            raise StoreError(
                f"{self.ssp}: the offsets {offset} and {other} of this changelog cannot be compared"
            )
        return order

    def _check(self, chunk: Chunk) -> None:
        for at, key in enumerate(chunk.keys):
            value = chunk.messages[at]
            if type(key) is not bytes or (value is not None and type(value) is not bytes):
                raise StoreError(
                    f"{self.ssp}@{chunk.offsets[at]} is no entry of a changelog: those have keys and values "
                    "of bytes, this one has a "
                    f"{type(key).__name__} as key and a {type(value).__name__} as value. Does the stream "
                    "belong to something else?"
                )


def check_needs_nothing(ssp: SystemStreamPartition, store: str, committed: str, compare: Compare) -> None:
    """Raise StoreError where a checkpoint goes back to state in this changelog, which is not there."""
    if (compare(committed, "0") or 0) > 0:
        raise _no_such_state(ssp, store, committed, "there is no such stream")


def _no_such_state(ssp: SystemStreamPartition, store: str, committed: str, but: str) -> StoreError:
    """The error where a changelog does not hold what a checkpoint goes back to. ``but``: what is there
    instead."""
    return StoreError(
        f"{ssp}: the checkpoint goes up to offset {committed} of the changelog of the store '{store}', but "
        f"{but}. If "
        f"stores.{store}.changelog (without it: job.changelog.system) was another, or not set, when the "
        "checkpoint was made, set it as it "
        "was then. If not, the changelog was deleted or written again: bring it back, or rewind the job to a "
        "checkpoint that fits it"
    )


def check_not_compacted(
    ssp: SystemStreamPartition, committed: str, compacted: str | None, compare: Compare, rewind: str
) -> None:
    """Raise StoreError where the state as of an offset of a changelog cannot be rebuilt any more.
    ``compacted``: see ``SystemAdmin.compacted_to``; ``rewind``: the command that
    rewinds the job to its beginning."""
    if compacted is not None and (compare(committed, compacted) or 0) < 0:
        raise StoreError(
            f"{ssp}: the state as of offset {committed} of this changelog cannot be rebuilt any more: "
            "compaction has removed what newer "
            f"entries up to {compacted} replaced. Go back to a later commit, or to the beginning "
            f"({rewind})"
        )


def restore_all(
    consumer: SystemConsumer, restores: Iterable[Restore], progress: Callable[[], object] | None = None
) -> None:
    """Run restores whose changelogs are of one system, with a new consumer of it. ``progress`` is called
    every now and then.

    Afterwards ``entries`` and ``corrections()`` of each hold what was found. Raises StoreError and what the
    consumer raises.
    """
    running = {each.ssp: each for each in restores if not each.done}
    if not running:
        return
    for ssp, each in running.items():
        assert each.start is not None
        consumer.register(ssp, each.start)
    if isinstance(consumer, _SkipsLosses):
        consumer.fail_on_data_loss()
    try:
        consumer.start()
        timeout_ms = 0 if consumer.polled_by_loop else _PATIENCE_MS
        while running:
            for chunk in consumer.poll_chunks(dict.fromkeys(running, _AT_ONCE), timeout_ms):
                running[chunk.ssp].take(chunk)
            if progress is not None:
                progress()
            # What compaction removed at the end never comes: then only the head of the partition ends it.
            running = {ssp: each for ssp, each in running.items() if not (each.done or consumer.at_head(ssp))}
    finally:
        consumer.stop()


def _between(start: str | None, upcoming: str | None) -> int | None:
    """The number of offsets to be read, at most; None where they are no numbers."""
    if start is None:
        return 0
    if upcoming is None or not (start.isdecimal() and upcoming.isdecimal()):
        return None
    return max(0, int(upcoming) - int(start))
