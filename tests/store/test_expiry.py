"""Entries that go once they have not been written for a while."""

from __future__ import annotations

from streambench.serde.builtin import StringSerde
from streambench.store.expiry import ExpiringEngine
from streambench.store.memory import MemoryEngine
from streambench.store.task_store import TaskStore


class Time:
    ms = 0

    def now(self) -> int:
        return self.ms


def test_an_entry_lives_for_its_time_after_the_last_write_whatever_is_read() -> None:
    time = Time()
    engine = ExpiringEngine(MemoryEngine(), 10, time.now)
    engine.put(b"a", b"1")
    engine.put(b"b", b"1")
    time.ms = 5
    engine.put(b"b", b"2")
    time.ms = 9
    assert (engine.get(b"a"), engine.get(b"b"), len(engine)) == (b"1", b"2", 2)
    time.ms = 10
    assert (engine.get(b"a"), engine.get(b"b"), len(engine)) == (None, b"2", 1)
    assert list(engine.range(None, None)) == [(b"b", b"2")]
    assert (engine.written(b"a"), engine.written(b"b"), engine.written(b"c")) == (None, 5, None)


def test_entries_of_unknown_age_begin_to_age_when_they_are_loaded() -> None:
    time = Time()
    time.ms = 100
    engine = ExpiringEngine(MemoryEngine(), 10, time.now)
    engine.load([b"a", b"b", b"c"], [b"1", b"1", b"1"], [None, 95, 90])
    engine.load([b"d"], [b"1"])
    assert [engine.written(key) for key in (b"a", b"b", b"c", b"d")] == [100, 95, None, 100]


def test_a_range_is_as_of_the_call_also_in_time() -> None:
    time = Time()
    engine = ExpiringEngine(MemoryEngine(), 10, time.now)
    engine.put(b"a", b"1")
    entries = engine.range(None, None)
    time.ms = 10
    assert list(entries) == [(b"a", b"1")]
    assert list(engine.range(None, None)) == []


def test_sweeping_has_its_end_however_many_entries_come_meanwhile() -> None:
    time = Time()
    below = MemoryEngine()
    engine = ExpiringEngine(below, 10, time.now)
    for at in range(5_000):
        engine.put(b"%04d" % at, b"1")
    assert engine.sweep() == []
    time.ms = 10
    sweeps, gone = 0, 0
    while gone < 5_000:
        for at in range(1_000):
            engine.put(b"new%d-%d" % (sweeps, at), b"1")
        gone += len(engine.sweep())
        sweeps += 1
    assert gone == 5_000
    assert sweeps <= 7
    assert len(below) == len(engine) == 1_000 * sweeps


def test_an_entry_that_expires_in_a_commit_has_its_time_in_the_changelog() -> None:
    time = Time()
    store = TaskStore(
        "seen", ExpiringEngine(MemoryEngine(), 10, time.now), StringSerde(), StringSerde(), changelog=True
    )
    store.put("a", "1")
    store.put("b", "1")
    store.delete("b")
    time.ms = 9
    entries = store.drain()
    time.ms = 10
    assert (entries, store.written(entries)) == ([(b"a", b"1"), (b"b", None)], [0, None])
