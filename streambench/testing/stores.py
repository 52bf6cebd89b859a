"""Contract tests of every store engine: for the engines of this package, and for those of
plug-ins."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from streambench.errors import StoreError
from streambench.serde.builtin import JsonSerde, StringSerde
from streambench.store.engine import StoreEngine
from streambench.store.task_store import TaskStore

Contents = dict[bytes, bytes]


class StoreEngineContract(ABC):
    """The contract of ``StoreEngine``. Derive a test class from it that makes the engine, and pytest runs its
    tests::

    class TestMyEngine(StoreEngineContract):
        def engine(self, directory):
            return MyEngine(directory)
    """

    @abstractmethod
    def engine(self, directory: Path) -> StoreEngine:
        """An engine that may keep its files in ``directory``. A second call with the same one, after the
        first engine was closed, is what the next start of a job does."""

    def test_it_is_empty_at_first(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        assert engine.marked() is None
        assert engine.get(b"a") is None
        assert contents(engine) == {}
        assert len(engine) == 0
        engine.close()

    def test_what_was_put_is_got_until_it_is_deleted(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.put(b"a", b"1")
        engine.put(b"b", b"2")
        engine.put(b"a", b"3")
        assert engine.get(b"a") == b"3"
        engine.delete(b"a")
        engine.delete(b"never there")
        assert engine.get(b"a") is None
        engine.put(b"a", b"4")
        assert contents(engine) == {b"a": b"4", b"b": b"2"}
        assert len(engine) == 2
        engine.close()

    def test_any_bytes_are_a_key_and_a_value(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        entries = {
            b"": b"",
            b"\0": b"\0",
            b"\xff" * 3: b"\xff",
            bytes(range(256)): b"x" * (8 << 20),
            b"k" * 5_000: b"1",
        }
        for key, value in entries.items():
            engine.put(key, value)
        assert {key: engine.get(key) for key in entries} == entries
        assert contents(engine) == entries
        engine.close()

    def test_entries_are_in_the_order_of_unsigned_bytes(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        keys = [
            b"",
            b"\0",
            b"\0\0",
            b"\x01",
            b"a",
            b"a\0",
            b"ab",
            b"b",
            b"\x7f",
            b"\x80",
            b"\xff",
            b"\xff\xff",
        ]
        for key in sorted(keys, key=lambda key: key[::-1]):
            engine.put(key, b"1")
        assert [key for key, _ in engine.range(None, None)] == sorted(keys)
        engine.close()

    def test_a_range_has_its_start_and_not_its_end(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        for key in (b"a", b"b", b"c", b"d"):
            engine.put(key, key)
        assert keys(engine, b"b", b"d") == [b"b", b"c"]
        assert keys(engine, b"aa", b"cc") == [b"b", b"c"]
        assert keys(engine, None, b"b") == [b"a"]
        assert keys(engine, b"c", None) == [b"c", b"d"]
        assert keys(engine, b"b", b"b") == keys(engine, b"d", b"a") == keys(engine, b"e", None) == []
        engine.close()

    def test_a_range_is_as_of_the_call_whatever_is_written_meanwhile(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        before = {b"%02d" % at: b"before" for at in range(20)}
        engine.load(list(before), list(before.values()))
        entries = engine.range(b"00", b"99")
        for at in range(0, 20, 2):
            engine.delete(b"%02d" % at)
            engine.put(b"%02dx" % at, b"after")
            engine.put(b"%02d" % (at + 1), b"after")
        assert dict(entries) == before
        assert len(engine) == 20
        engine.close()

    def test_batches_hold_all_entries_and_fill_another_engine(self, tmp_path: Path) -> None:
        engine, other = self.engine(tmp_path / "one"), self.engine(tmp_path / "other")
        for at in range(25):
            engine.put(b"%02d" % (at * 7 % 25), b"%d" % at)
        engine.delete(b"07")
        for keys_, values in engine.batches():
            assert len(keys_) == len(values)
            other.load(keys_, values)
        assert contents(other) == contents(engine)
        assert len(other) == 24
        estimate = engine.estimate()
        assert estimate is None or estimate >= 0
        engine.close()
        other.close()

    def test_a_range_may_be_left_unread(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.load([b"a", b"b"], [b"1", b"2"])
        begun, untouched = engine.range(None, None), engine.range(None, None)
        assert next(begun) == (b"a", b"1")
        engine.close()
        del begun, untouched
        self.engine(tmp_path).close()

    def test_a_load_takes_entries_in_order(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.put(b"c", b"0")
        engine.load([b"a", b"b", b"a", b"b", b"c", b"d"], [b"1", b"2", b"3", None, None, b"4"])
        engine.load([], [])
        assert contents(engine) == {b"a": b"3", b"d": b"4"}
        engine.close()

    def test_flushing_changes_nothing_that_is_seen(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.put(b"a", b"1")
        engine.flush()
        engine.flush()
        assert contents(engine) == {b"a": b"1"}
        engine.close()

    def test_snapshots_lead_back_and_forward_again(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        states, snapshots = [], []
        for change in (
            {b"a": b"1"},
            {b"a": b"2", b"b": b"1"},
            {b"a": None},
            {b"a": b"3", b"b": None, b"c": b"1"},
        ):
            for key, value in change.items():
                write(engine, key, value)
            states.append(contents(engine))
            snapshots.append(engine.snapshot())
        for at in (0, 3, 2, 1, 1, 3, 0):
            engine.restore(snapshots[at])
            assert contents(engine) == states[at]
            engine.put(b"d", b"%d" % at)
        engine.close()

    def test_clearing_removes_everything(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.load([b"a", b"b"], [b"1", b"2"])
        engine.mark(b"first")
        engine.put(b"c", b"3")
        engine.clear()
        assert contents(engine) == {}
        assert engine.marked() is None
        engine.put(b"a", b"4")
        assert contents(engine) == {b"a": b"4"}
        engine.close()

    def test_it_may_be_closed_twice(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.close()
        engine.close()

    def test_the_next_start_finds_what_was_marked_or_nothing(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.load([b"a", b"b"], [b"1", b"2"])
        engine.mark(b"first")
        engine.put(b"a", b"3")
        engine.put(b"c", b"4")
        engine.delete(b"b")
        engine.mark(b"second")
        marked = contents(engine)
        for key, value in ((b"a", b"lost"), (b"a", None), (b"b", b"lost"), (b"d", b"lost")):
            write(engine, key, value)
        engine.flush()
        engine.close()
        again = self.engine(tmp_path)
        assert (again.marked(), contents(again)) in [(b"second", marked), (None, {})]
        again.close()

    def test_what_was_never_marked_is_gone_at_the_next_start(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.put(b"a", b"1")
        engine.flush()
        engine.close()
        again = self.engine(tmp_path)
        assert (again.marked(), contents(again)) == (None, {})
        again.close()

    def test_a_tasks_store_above_it_is_used_like_a_dict(self, tmp_path: Path) -> None:
        store = TaskStore("s", self.engine(tmp_path), StringSerde(), JsonSerde(), changelog=True)
        model: dict[str, int] = {}
        for at, key in enumerate(["b", "a", "b", "c", "a"]):
            assert store.get(key, 0) == model.get(key, 0)
            store[key] = model[key] = store.get(key, at) + 1
            assert store[key] == model[key] and key in store
        del store["b"], model["b"]
        assert dict(store.all()) == dict(store.items()) == model
        assert dict(zip(store, store.values(), strict=True)) == model and list(store) == list(store.keys())
        assert "b" not in store and store.get("b") is None and store.get("b", "default") == "default"
        for missing in (lambda: store["b"], lambda: store.__delitem__("b")):
            raised(KeyError, missing)
        raised(StoreError, lambda: store.__setitem__("a", None))
        raised(StoreError, lambda: None in store)
        assert [key for key, _ in store.drain()] == [b"b", b"a", b"c"]
        store.close()

    def test_it_does_what_a_dict_does(self, tmp_path: Path) -> None:
        engine, model, chance = self.engine(tmp_path), Contents(), random.Random(7)
        taken: list[tuple[object, Contents]] = []
        for at in range(2_000):
            key = b"%d" % chance.randrange(60)
            value = None if chance.random() < 0.3 else b"%d" % at
            write(engine, key, value)
            model.pop(key, None) if value is None else model.update({key: value})
            looked_at = b"%d" % chance.randrange(60)
            assert engine.get(looked_at) == model.get(looked_at)
            if at % 100 == 0:
                assert list(engine.range(None, None)) == sorted(model.items())
                taken.append((engine.snapshot(), dict(model)))
            if at % 250 == 99:
                snapshot, state = chance.choice(taken)
                engine.restore(snapshot)
                model = dict(state)
        assert list(engine.range(None, None)) == sorted(model.items())
        engine.close()


def raised(kind: type[Exception], call: Callable[[], object]) -> None:
    """Fail unless ``call`` raises an exception of this kind."""
    try:
        call()
    except kind:
        return
    raise AssertionError(f"there was no {kind.__name__}")


def contents(engine: StoreEngine) -> Contents:
    """All entries."""
    return dict(engine.range(None, None))


def keys(engine: StoreEngine, from_: bytes | None, to: bytes | None) -> list[bytes]:
    """The keys of a range."""
    return [key for key, _ in engine.range(from_, to)]


def write(engine: StoreEngine, key: bytes, value: bytes | None) -> None:
    """Put a value, or delete the key where there is none."""
    if value is None:
        engine.delete(key)
    else:
        engine.put(key, value)
