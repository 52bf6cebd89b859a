"""Bringing a store back from its changelog."""

from __future__ import annotations

from collections.abc import Callable

from streambench.errors import StoreError
from streambench.model import SystemStreamPartition
from streambench.store.engine import StoreEngine
from streambench.system.api import SystemAdmin, SystemConsumer

_AT_MOST = 10_000

Entries = list[tuple[bytes, bytes | None]]


def restore(
    engine: StoreEngine,
    consumer: SystemConsumer,
    admin: SystemAdmin,
    changelog: SystemStreamPartition,
    committed: str | None,
    progress: Callable[[int], None] = lambda entries: None,
) -> Entries:
    """Fill an empty engine from its changelog partition, up to ``committed`` (the changelog's upcoming offset at the last commit).

    Changes beyond that come from a run that died before its commit: they are not applied. What is returned sets them right: for each key
    that they
    touch the value as of the commit (None: it had none), to be written to the changelog again. ``committed`` None: nothing was ever
    committed.
    ``progress`` is told how many entries have been read. Raises StoreError where the changelog no longer reaches back to the commit.
    """
    here = admin.metadata([changelog.system_stream])[changelog.system_stream][changelog.partition]
    if here.oldest is None or here.upcoming is None:
        if committed is not None and here.upcoming is not None and (admin.compare(committed, here.upcoming) or 0) > 0:
            raise _lost(changelog, committed, here.upcoming)
        return []
    if committed is not None and (admin.compare(committed, here.upcoming) or 0) > 0:
        raise _lost(changelog, committed, here.upcoming)
    consumer.register(changelog, here.oldest)
    consumer.start()
    try:
        return _apply(engine, consumer, admin, changelog, committed or here.oldest, here.upcoming, progress)
    finally:
        consumer.stop()


def _apply(
    engine: StoreEngine,
    consumer: SystemConsumer,
    admin: SystemAdmin,
    changelog: SystemStreamPartition,
    committed: str,
    upcoming: str,
    progress: Callable[[int], None],
) -> Entries:
    orphaned: dict[bytes, None] = {}
    read = 0
    while True:
        chunks = consumer.poll_chunks({changelog: _AT_MOST}, 100)
        for chunk in chunks:
            read += len(chunk)
            entries = list(zip(chunk.keys, chunk.messages, strict=True))
            count = len(entries)
            if (admin.compare(chunk.offsets[-1], committed) or 0) >= 0:
                count = next(at for at, offset in enumerate(chunk.offsets) if (admin.compare(offset, committed) or 0) >= 0)
            engine.load(entries[:count])
            orphaned.update((key, None) for key, _ in entries[count:])
            progress(read)
            if (admin.compare(admin.after(chunk.offsets[-1]), upcoming) or 0) >= 0:
                return [(key, engine.get(key)) for key in orphaned]
        if not chunks and consumer.at_head(changelog):
            return [(key, engine.get(key)) for key in orphaned]


def _lost(changelog: SystemStreamPartition, committed: str, upcoming: str) -> StoreError:
    return StoreError(
        f"the changelog {changelog} ends at {upcoming}, but the last commit was made at {committed}: entries were lost. "
        "Rewind the checkpoints to before the loss, or delete the stream's checkpoints to begin anew"
    )
