"""The engine in memory, as every engine must be."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from streambench.config import Config
from streambench.errors import StoreError
from streambench.store.memory import MemoryEngine, MemoryEngineFactory

KEYS = st.binary(max_size=2)
VALUES = st.binary(max_size=3)


class AsADict(RuleBasedStateMachine):
    """The engine does what a dict does, forwards, and backwards by snapshots; what is being read stays as it
    was."""

    snapshots = Bundle("snapshots")
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.engine = MemoryEngine()
        self.model: dict[bytes, bytes] = {}

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.engine.put(key, value)
        self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.engine.delete(key)
        self.model.pop(key, None)

    @rule(entries=st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=40))
    def load(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        self.engine.load([key for key, _ in entries], [value for _, value in entries])
        for key, value in entries:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(target=snapshots)
    def snapshot(self) -> Any:
        return self.engine.snapshot(), dict(self.model)

    @rule(snapshot=snapshots)
    def restore(self, snapshot: Any) -> None:
        moment, model = snapshot
        self.engine.restore(moment)
        self.model = dict(model)

    @rule(snapshot=consumes(snapshots))
    def forget(self, snapshot: Any) -> None:
        pass

    @rule(target=readers, from_=st.none() | KEYS, to=st.none() | KEYS)
    def begin_to_read(self, from_: bytes | None, to: bytes | None) -> Any:
        wanted = [
            entry
            for entry in sorted(self.model.items())
            if (from_ is None or entry[0] >= from_) and (to is None or entry[0] < to)
        ]
        return self.engine.range(from_, to), wanted

    @rule(reader=consumes(readers))
    def read(self, reader: Any) -> None:
        entries, wanted = reader
        assert list(entries) == wanted

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.engine.get(key) == self.model.get(key)

    @invariant()
    def knows_how_much_it_holds(self) -> None:
        assert len(self.engine) == len(self.model)

    def teardown(self) -> None:
        assert list(self.engine.range(None, None)) == sorted(self.model.items())


TestAsADict = AsADict.TestCase


@given(st.dictionaries(KEYS, VALUES))
def test_keys_are_ordered_as_unsigned_bytes(entries: dict[bytes, bytes]) -> None:
    engine = MemoryEngine()
    engine.load(list(entries), list(entries.values()))
    assert [key for key, _ in engine.range(None, None)] == sorted(entries, key=list)


def test_going_back_leaves_newer_snapshots_valid() -> None:
    engine = MemoryEngine()
    engine.put(b"a", b"1")
    first = engine.snapshot()
    engine.put(b"a", b"2")
    second = engine.snapshot()
    engine.delete(b"a")
    engine.restore(first)
    assert engine.get(b"a") == b"1"
    engine.restore(second)
    assert engine.get(b"a") == b"2"
    engine.restore(first)
    assert engine.get(b"a") == b"1"


def test_nothing_is_noted_when_nobody_holds_a_snapshot() -> None:
    engine = MemoryEngine()
    kept = engine.snapshot()
    engine.put(b"a", b"1")
    assert kept.former == {b"a": None}
    del kept
    engine.put(b"b", b"1")
    gc.collect()
    assert engine.snapshot().former == {}


def test_a_snapshot_of_another_engine_is_refused() -> None:
    with pytest.raises(StoreError, match="no snapshot of this store"):
        MemoryEngine().restore(MemoryEngine().snapshot())


def test_a_closed_engine_holds_nothing() -> None:
    engine = MemoryEngineFactory().get_engine("counts", "Partition 0", Config(), Path())
    engine.put(b"a", b"1")
    engine.close()
    engine.close()
    assert engine.get(b"a") is None
    assert len(engine) == 0
