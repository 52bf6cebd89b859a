"""Engines on a disk, layer upon layer, through crashes and restarts: always the last marked state, and what
was done since."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streambench.store.cache import CachedEngine
from streambench.store.engine import StoreEngine
from streambench.store.expiry import ExpiringEngine
from streambench.store.memory import MemoryEngine
from streambench.store.rocksdb import RocksDbEngine

KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"\xff", b"\xff\xff"])
VALUES = st.binary(max_size=3)
TTL_MS = 100
Model = dict[bytes, tuple[bytes, int]]


def listed(directory: Path) -> dict[str, tuple[int, int]]:
    """The files in a directory, with what tells whether they have changed."""
    with os.scandir(directory) as found:
        return {each.name: (each.stat().st_size, each.stat().st_mtime_ns) for each in found}


class EngineMachine(RuleBasedStateMachine):
    """``kind``: what is below. The model has, per key, value and time of writing."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="streambench-model-"))
        self.homes = 0
        self.now = 1_000
        self.model: Model = {}
        self.marked: tuple[bytes, Model] | None = None
        self.snapshots: list[tuple[Any, Model]] = []

    @initialize(
        on_disk=st.booleans(), cache=st.sampled_from([None, (1, 1), (3, 2), (100, 50)]), expires=st.booleans()
    )
    def begin(self, on_disk: bool, cache: tuple[int, int] | None, expires: bool) -> None:
        self.on_disk, self.cache, self.expires = on_disk, cache, expires
        self.engine = self.opened()

    def opened(self) -> StoreEngine:
        engine: StoreEngine = RocksDbEngine(self.root / str(self.homes)) if self.on_disk else MemoryEngine()
        if self.cache is not None:
            engine = CachedEngine(engine, *self.cache)
        return ExpiringEngine(engine, TTL_MS, lambda: self.now) if self.expires else engine

    def living(self) -> dict[bytes, bytes]:
        return {
            key: value
            for key, (value, time) in self.model.items()
            if not self.expires or self.now - time < TTL_MS
        }

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.engine.put(key, value)
        self.model[key] = value, self.now

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.engine.delete(key)
        self.model.pop(key, None)

    @rule(entries=st.lists(st.tuples(KEYS, st.none() | VALUES, st.integers(0, TTL_MS * 2))))
    def load(self, entries: list[tuple[bytes, bytes | None, int]]) -> None:
        self.engine.load(
            [key for key, _, _ in entries],
            [value for _, value, _ in entries],
            [self.now - age for _, _, age in entries],
        )
        for key, value, age in entries:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value, self.now - age

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.engine.get(key) == self.living().get(key)

    @rule(from_=st.none() | KEYS, to=st.none() | KEYS)
    def range(self, from_: bytes | None, to: bytes | None) -> None:
        expected = [
            (key, value)
            for key, value in sorted(self.living().items())
            if (from_ is None or key >= from_) and (to is None or key < to)
        ]  # fmt: skip
        assert list(self.engine.range(from_, to)) == expected

    @rule()
    def flush(self) -> None:
        self.engine.flush()

    @rule(ms=st.integers(1, TTL_MS))
    def wait(self, ms: int) -> None:
        self.now += ms

    @precondition(lambda self: self.expires)
    @rule()
    def sweep(self) -> None:
        gone = self.engine.sweep()  # type: ignore[attr-defined]
        assert set(gone) == self.model.keys() - self.living().keys()
        self.model = {key: entry for key, entry in self.model.items() if key not in gone}

    @rule()
    def snapshot(self) -> None:
        self.snapshots.append((self.engine.snapshot(), dict(self.model)))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        snapshot, state = data.draw(st.sampled_from(self.snapshots))
        self.engine.restore(snapshot)
        self.model = dict(state)

    @rule()
    def mark(self) -> None:
        self.marked = b"%d" % self.now, dict(self.model)
        self.engine.mark(self.marked[0])

    @rule()
    def stop_and_start(self) -> None:
        self.engine.close()
        self.find_again()

    @precondition(lambda self: self.on_disk)
    @rule()
    def crash(self) -> None:
        """What a killed process leaves is what its files hold while it lives."""
        home, after = (self.root / str(number) for number in (self.homes, self.homes + 1))
        copied = False
        while not copied:
            # RocksDB compacts, and deletes what it has done with, whenever it likes. Files of before and
            # after that do not go together.
            with contextlib.suppress(shutil.Error, FileNotFoundError):
                before = listed(home)
                shutil.copytree(home, after)
                copied = before == listed(home)
            if not copied:
                shutil.rmtree(after, ignore_errors=True)
        self.engine.close()
        self.homes += 1
        self.find_again()

    def find_again(self) -> None:
        self.engine = self.opened()
        self.snapshots = []
        if not self.on_disk:
            self.marked = None
        assert self.engine.marked() == (None if self.marked is None else self.marked[0])
        self.model = {} if self.marked is None else dict(self.marked[1])

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        if hasattr(self, "engine"):
            assert dict(self.engine.range(None, None)) == self.living()
            assert len(self.engine) == len(self.living())

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
        shutil.rmtree(self.root)


EngineMachine.TestCase.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=25)
TestEngines = EngineMachine.TestCase
