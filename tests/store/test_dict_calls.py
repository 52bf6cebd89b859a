"""The calls that a store has in common with a dict, on all kinds of engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambench.debug.control.session import Session
from streambench.errors import StoreError
from streambench.serde.builtin import JsonSerde, StringSerde
from streambench.store.cache import CachedEngine
from streambench.store.engine import StoreEngine
from streambench.store.expiry import ExpiringEngine
from streambench.store.memory import MemoryEngine
from streambench.store.rocksdb import RocksDbEngine
from streambench.store.task_store import TaskStore, ValueLimit
from streambench.task import KeyValueStore, StreamTask
from tests.container.jobs import Bench


@pytest.fixture(params=["memory", "rocksdb", "cached", "expiring"])
def counts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TaskStore]:
    engine: StoreEngine = MemoryEngine()
    if request.param in ("rocksdb", "cached"):
        engine = RocksDbEngine(tmp_path / "n")
    if request.param == "cached":
        engine = CachedEngine(engine, 2, 1)
    if request.param == "expiring":
        engine = ExpiringEngine(engine, 1_000, lambda: 0)
    store = TaskStore("counts", engine, StringSerde(), JsonSerde(), changelog=True)
    yield store
    store.close()


def _changelog(store: TaskStore) -> dict[str, Any]:
    return {key.decode(): None if value is None else value.decode() for key, value in store.drain()}


def test_the_calls_of_a_dict_do_what_they_do_on_a_dict(counts: TaskStore) -> None:
    plain: dict[str, Any] = {}
    for entries in (counts, plain):
        entries.update({"a": 1, "b": 2}, c=3)
        entries.update([("d", 4)])
        entries |= {"b": 5, "e": 6}
        assert entries.pop("a") == 1 and entries.pop("a", None) is None and entries.pop("nope", 9) == 9
        assert entries.setdefault("c", 7) == 3 and entries.setdefault("f", [8]) == [8]
        with pytest.raises(KeyError):
            entries.pop("a")
        with pytest.raises(TypeError):
            entries.pop("a", 1, 2)
    assert dict(counts) == plain == {"b": 5, "c": 3, "d": 4, "e": 6, "f": [8]}
    assert _changelog(counts) == {"a": None, "b": "5", "c": "3", "d": "4", "e": "6", "f": "[8]"}
    counts.clear()
    assert dict(counts) == {}
    assert _changelog(counts) == dict.fromkeys("bcdef")


def test_a_default_that_was_put_is_a_copy_as_everything_is_that_is_got(counts: TaskStore) -> None:
    counts.setdefault("a", []).append(1)
    assert counts["a"] == []
    assert counts.setdefault("b", (1, 2)) == counts["b"] == [1, 2]
    with pytest.raises(StoreError, match="None is not a valid value"):
        counts.setdefault("c", None)


def test_a_large_default_that_is_dropped_is_returned_all_the_same() -> None:
    small = TaskStore(
        "small", MemoryEngine(), StringSerde(), JsonSerde(), changelog=True, limit=ValueLimit(3, True)
    )
    assert small.setdefault("a", "long") == "long"
    assert "a" not in small


class Calls(StreamTask):
    """Does to its store what the messages say, and fails afterwards where they say that too."""

    def init(self, context: Any) -> None:
        self.store: KeyValueStore = context.store("n")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        exec(envelope.message, {"store": self.store})


@pytest.mark.parametrize("factory", ["memory", "rocksdb"])
def test_history_and_failures_know_each_call_as_puts_and_deletes(factory: str, tmp_path: Path) -> None:
    lines = ["store.update(a=1, b=2)", "store.pop('a')", "store.setdefault('a', 3)", "store.clear()"]
    inputs = {"mem.in": {0: [*lines[:3], "store.clear(); int('x')", lines[3]]}}
    config = {
        "stores.n.factory": factory, "stores.n.msg.serde": "json", "stores.n.key.serde": "string",
        "stores.n.changelog": "none", "job.non-logged.store.base.dir": str(tmp_path),
        "task.ignored.exceptions": "ValueError",
    }  # fmt: skip
    session = Session(Bench(Calls, inputs, config, observed=False).container)
    session.start()
    session.step(5)
    changes = [(each.position, each.before, each.after) for each in session.changes("n", "a")]
    assert changes == [(1, None, 1), (2, 1, None), (3, None, 3), (4, 3, None), (4, None, 3), (5, 3, None)]
    stores = []
    for position in range(6):
        session.goto(position)
        stores.append(session.stores()["Partition 0"]["n"])
    session.go_live()
    session.stop()
    assert stores == [{}, {"a": 1, "b": 2}, {"b": 2}, {"a": 3, "b": 2}, {"a": 3, "b": 2}, {}]
