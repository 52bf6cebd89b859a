"""State from its changelog, as it was at the last checkpoint.

A checkpoint says how long the changelog was when it was made. What stands behind that was written by a run that died before its
commit: it is no part of the state. It cannot be cut off, so it is set right: for each key that it touches, the value that is
valid at the checkpoint is to be written behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from streambench.errors import StoreError
from streambench.model import PartitionMetadata, SystemStreamPartition
from streambench.store.engine import StoreEngine
from streambench.system.api import Chunk, SystemConsumer

_AT_ONCE = 10_000
_PATIENCE_MS = 1_000

Compare = Callable[[str, str], int | None]


class Restore:
    """The restore of one store of one task.

    ``here``: what the changelog's partition holds, asked after every older writer was fenced. ``committed``: its upcoming offset as of the
    checkpoint, the first that is not part of the state; None: nothing was committed, so that none is. ``compare``: that of the
    changelog's system. ``progress`` is called with the number of entries read so far.
    """

    def __init__(
        self,
        engine: StoreEngine,
        ssp: SystemStreamPartition,
        here: PartitionMetadata,
        committed: str | None,
        compare: Compare,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self.ssp = ssp
        self.entries = 0
        self.oldest = here.oldest
        self._engine = engine
        self._newest = here.newest
        self.committed = committed
        self._compare = compare
        self._progress = progress
        self._tail: dict[bytes, bytes | None] = {}
        self.done = here.oldest is None
        if committed is not None and here.upcoming is not None and self._order(committed, here.upcoming) > 0:
            raise StoreError(
                f"{ssp}: the checkpoint goes up to offset {committed} of this changelog, but it ends at {here.upcoming}: it was deleted or "
                "written anew. Bring it back, or rewind the job to a checkpoint that fits it"
            )

    def take(self, chunk: Chunk) -> None:
        """Apply the next entries of the changelog."""
        if not chunk.offsets:
            return
        self._check(chunk)
        count = self._committed_in(chunk.offsets)
        if count:
            self._engine.load(chunk.keys[:count], chunk.messages[:count])
        if count < len(chunk.offsets):
            self._tail.update(zip(chunk.keys[count:], chunk.messages[count:], strict=True))
        self.entries += len(chunk.offsets)
        if self._progress is not None:
            self._progress(self.entries)
        if self._newest is not None and self._order(chunk.offsets[-1], self._newest) >= 0:
            self.done = True

    def corrections(self) -> list[tuple[bytes, bytes | None]]:
        """What is to be written to the changelog: per key that the orphaned tail leaves wrong, its value (None: delete)."""
        get = self._engine.get
        return [(key, valid) for key, orphaned in self._tail.items() if (valid := get(key)) != orphaned]

    def _committed_in(self, offsets: list[str]) -> int:
        """How many of the offsets belong to the state: those before ``committed``."""
        committed = self.committed
        if committed is None:
            return 0
        if self._order(offsets[-1], committed) < 0:
            return len(offsets)
        return bisect_left(offsets, 0, key=lambda offset: self._order(offset, committed))

    def _order(self, offset: str, other: str) -> int:
        order = self._compare(offset, other)
        if order is None:
            raise StoreError(f"{self.ssp}: the offsets {offset} and {other} of this changelog cannot be compared")
        return order

    def _check(self, chunk: Chunk) -> None:
        for at, key in enumerate(chunk.keys):
            value = chunk.messages[at]
            if type(key) is not bytes or (value is not None and type(value) is not bytes):
                raise StoreError(
                    f"{self.ssp}@{chunk.offsets[at]} is no entry of a changelog: those have keys and values of bytes, this one has a "
                    f"{type(key).__name__} as key and a {type(value).__name__} as value. Does the stream belong to something else?"
                )


def restore_all(consumer: SystemConsumer, restores: Iterable[Restore]) -> None:
    """Run restores whose changelogs are of one system, with a new consumer of it. The engines are to be empty at first.

    Afterwards ``entries`` and ``corrections()`` of each tell what was found. Raises StoreError and what the consumer raises.
    """
    running = {each.ssp: each for each in restores if not each.done}
    if not running:
        return
    for ssp, each in running.items():
        assert each.oldest is not None
        consumer.register(ssp, each.oldest)
    try:
        consumer.start()
        timeout_ms = 0 if consumer.polled_by_loop else _PATIENCE_MS
        while running:
            for chunk in consumer.poll_chunks(dict.fromkeys(running, _AT_ONCE), timeout_ms):
                running[chunk.ssp].take(chunk)
            # What compaction removed at the end never comes: then only the head of the partition tells.
            running = {ssp: each for ssp, each in running.items() if not (each.done or consumer.at_head(ssp))}
    finally:
        consumer.stop()
