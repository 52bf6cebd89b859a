"""When the cache writes down, and what."""

from __future__ import annotations

from collections.abc import Sequence

from streambench.store.cache import CachedEngine
from streambench.store.memory import MemoryEngine


class Noted(MemoryEngine):
    """An engine that notes what is written to it, and how often it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[list[tuple[bytes, bytes | None]]] = []
        self.read: list[bytes] = []
        found = self.get

        def get(key: bytes) -> bytes | None:
            self.read.append(key)
            return found(key)

        self.get = get  # type: ignore[method-assign]

    def load(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        written: Sequence[int | None] | None = None,
    ) -> None:
        self.written.append(list(zip(keys, values, strict=True)))
        super().load(keys, values, written)


def test_changes_are_written_a_batch_at_a_time_and_when_one_is_evicted() -> None:
    """The trace of Samza's own cache: one of two entries, with batches of two."""
    below = Noted()
    cache = CachedEngine(below, 2, 2)
    cache.put(b"k1", b"1")
    assert below.written == []
    cache.put(b"k2", b"2")
    assert below.written == [[(b"k1", b"1"), (b"k2", b"2")]]
    cache.put(b"k3", b"3")
    assert len(below.written) == 1
    assert cache.get(b"k2") == b"2"
    cache.put(b"k4", b"4")
    assert below.written[1:] == [[(b"k3", b"3"), (b"k4", b"4")]]


def test_a_key_that_changes_often_is_written_once_where_it_last_changed() -> (
    None
):
    below = Noted()
    cache = CachedEngine(below, 10, 10)
    for at in range(1_000):
        cache.put(b"hot", b"%d" % at)
    cache.put(b"other", b"1")
    cache.delete(b"gone")
    cache.put(b"hot", b"last")
    cache.flush()
    cache.flush()
    assert below.written == [[(b"other", b"1"), (b"gone", None), (b"hot", b"last")]]


def test_a_repeated_read_does_not_go_below_even_where_there_was_nothing() -> None:
    below = Noted()
    below.put(b"a", b"1")
    cache = CachedEngine(below, 2, 1)
    for _ in range(3):
        assert (cache.get(b"a"), cache.get(b"nothing")) == (b"1", None)
    assert below.read == [b"a", b"nothing"]
    cache.get(b"third")
    cache.get(b"a")
    assert below.read == [b"a", b"nothing", b"third", b"a"]


def test_what_was_used_last_stays() -> None:
    below = Noted()
    cache = CachedEngine(below, 2, 1)
    cache.put(b"a", b"1")
    cache.put(b"b", b"1")
    cache.get(b"a")
    cache.put(b"c", b"1")
    cache.get(b"a")
    assert below.read == []
    cache.get(b"b")
    assert below.read == [b"b"]
