"""The store as a task sees it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import SerdeError, StoreError, WrongThreadError
from streambench.metrics.registry import MetricsRegistry
from streambench.serde.builtin import JsonSerde, LongSerde, StringSerde
from streambench.store.memory import MemoryEngine
from streambench.store.metered import MeteredStore
from streambench.store.rocksdb import RocksDbEngine
from streambench.store.task_store import TaskStore
from tests.store.fakes import Owner, store


def test_what_was_put_is_got() -> None:
    counts = store()
    counts.put("zürich", {"n": 1})
    assert counts.get("zürich") == {"n": 1}
    assert counts.get("basel") is None


def test_changing_a_got_value_changes_no_state() -> None:
    counts = store()
    value = {"n": 1}
    counts.put("a", value)
    value["n"] = 2
    got = counts.get("a")
    got["n"] = 3
    assert counts.get("a") == {"n": 1}


def test_entries_are_read_in_key_order_from_inclusive_to_exclusive() -> None:
    counts = store()
    counts.put_all({"c": 3, "a": 1, "b": 2, "d": 4})
    assert list(counts.range("b", "d")) == [("b", 2), ("c", 3)]
    assert list(counts.all()) == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert list(counts.range("d", "a")) == []


def test_a_range_is_as_of_the_call_whatever_is_put_meanwhile() -> None:
    counts = store()
    counts.put_all([("a", 1), ("b", 2)])
    seen = []
    for key, value in counts.all():
        seen.append((key, value))
        counts.put(key + "x", value)
        counts.put("b", 99)
        counts.delete("a")
    assert seen == [("a", 1), ("b", 2)]
    assert dict(counts.all()) == {"ax": 1, "b": 99, "bx": 2}


def test_entries_keys_and_values_are_gone_over_like_those_of_a_dict() -> None:
    counts, others = store(), store()
    counts.put_all({"b": 2, "a": 1})
    assert list(counts) == list(counts.keys()) == ["a", "b"]
    assert list(counts.values()) == [1, 2]
    assert dict(counts) == dict(counts.items()) == {"a": 1, "b": 2}
    for key in counts:
        counts[key + "x"] = counts[key]
        del counts[key]
    assert list(counts.items()) == [("ax", 1), ("bx", 2)]
    others.put_all(counts)
    assert dict(others) == dict(counts)


def test_many_at_once() -> None:
    counts = store()
    counts.put_all({"a": 1, "b": 2})
    assert counts.get_all(["a", "nobody", "b"]) == {"a": 1, "b": 2}
    counts.delete_all(["a", "nobody"])
    assert list(counts.all()) == [("b", 2)]


@pytest.mark.parametrize(
    "use",
    [
        lambda counts: counts.get(None), lambda counts: counts.put(None, 1),
        lambda counts: counts.delete(None),
        lambda counts: counts.range(None, "a"), lambda counts: counts.range("a", None),
        lambda counts: counts.get_all(["a", None]),
    ],
)  # fmt: skip
def test_none_is_no_key(use: Any) -> None:
    with pytest.raises(StoreError, match="store 'counts': None is not a valid key"):
        use(store())


def test_none_is_no_value_and_the_error_says_delete() -> None:
    with pytest.raises(
        StoreError, match=r"None is not a valid value \(of the key 'a'\); to remove a key use delete"
    ):
        store().put("a", None)


def test_none_is_no_key_even_where_the_serde_would_take_it() -> None:
    by_json = TaskStore("counts", MemoryEngine(), JsonSerde(), JsonSerde(), changelog=False)
    with pytest.raises(StoreError, match="None is not a valid key"):
        by_json.get(None)


def test_equal_dicts_are_one_key() -> None:
    by_json = TaskStore("counts", MemoryEngine(), JsonSerde(), JsonSerde(), changelog=False)
    by_json.put({"a": 1, "b": 2}, "here")
    assert by_json.get({"b": 2, "a": 1}) == "here"


def test_an_unserialisable_key_is_an_error_with_store_key_and_setting() -> None:
    with pytest.raises(
        SerdeError, match=r"store 'counts': cannot encode the key 5: TypeError.*stores\.counts\.key\.serde"
    ) as raised:
        store().put(5, 1)
    assert isinstance(raised.value.__cause__, TypeError)
    with pytest.raises(SerdeError, match="cannot encode the key 5"):
        store().get(5)


def test_what_the_engine_raises_is_not_taken_for_a_fault_of_the_serde(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = MemoryEngine()
    monkeypatch.setattr(engine, "get", mock.Mock(side_effect=StoreError("the disk is gone")))
    with pytest.raises(StoreError, match="^the disk is gone"):
        TaskStore("s", engine, StringSerde(), JsonSerde(), changelog=False).get("a")


def test_an_unserialisable_value_is_an_error_and_changes_nothing() -> None:
    counts = store()
    counts.put("a", 1)
    with pytest.raises(
        SerdeError,
        match=r"store 'counts': cannot encode the value of the key 'a'.*stores\.counts\.msg\.serde",
    ):
        counts.put("a", object())
    assert counts.get("a") == 1
    assert counts.drain() == [(b"a", b"1")]


def test_a_value_of_another_serde_is_an_error_that_names_store_and_key() -> None:
    engine = MemoryEngine()
    engine.put(b"a", b"\0")
    longs = TaskStore("longs", engine, JsonSerde(), LongSerde(), changelog=False)
    engine.put(b'"a"', b"\0")
    with pytest.raises(SerdeError, match="store 'longs': cannot decode the entry with the key 'a'"):
        longs.get("a")
    with pytest.raises(SerdeError, match="store 'longs': cannot decode the entry with the key b'\"a\"'"):
        list(longs.all())


def _in_a_thread(use: Any) -> BaseException | None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            use()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run, name="intruder")
    thread.start()
    thread.join()
    return caught[0] if caught else None


@pytest.mark.parametrize(
    "use",
    [lambda counts: counts.get("a"), lambda counts: counts.put("a", 1), lambda counts: counts.delete("a"),
     lambda counts: counts.all(),
     lambda counts: counts.range("a", "b"), lambda counts: counts.flush()],
)  # fmt: skip
def test_another_thread_may_not_use_it(use: Any) -> None:
    counts = store()
    error = _in_a_thread(lambda: use(counts))
    assert isinstance(error, WrongThreadError)
    assert "store 'counts' was used from the thread 'intruder'" in str(error)
    assert counts.get("a") is None


def test_a_reader_may_not_be_handed_to_another_thread() -> None:
    counts = store()
    counts.put("a", 1)
    entries = counts.all()
    assert isinstance(_in_a_thread(lambda: next(entries)), WrongThreadError)


def test_it_belongs_to_the_thread_that_its_owner_knows() -> None:
    owner = Owner()
    counts = TaskStore("counts", MemoryEngine(), StringSerde(), JsonSerde(), changelog=True, owner=owner)

    def take_over() -> None:
        owner.ident = threading.get_ident()
        counts.put("a", 1)

    assert _in_a_thread(take_over) is None
    with pytest.raises(WrongThreadError):
        counts.get("a")


def test_a_closed_store_says_so_and_may_be_closed_again() -> None:
    counts = store()
    counts.put("a", 1)
    counts.close()
    counts.close()
    with pytest.raises(StoreError, match="store 'counts' is closed"):
        counts.get("a")
    with pytest.raises(StoreError, match="store 'counts' is closed"):
        counts.put("a", 1)


def test_entries_that_were_asked_for_before_a_store_was_closed_say_so() -> None:
    counts = store()
    counts.put("a", 1)
    entries = counts.all()
    counts.close()
    with pytest.raises(StoreError, match="store 'counts' is closed"):
        next(entries)


def test_changes_are_drained_once_by_first_change_with_the_last_value() -> None:
    counts = store()
    counts.put("b", 1)
    counts.put("a", 1)
    counts.put("b", 2)
    counts.put("c", 1)
    counts.delete("c")
    assert counts.drain() == [(b"b", b"2"), (b"a", b"1"), (b"c", None)]
    assert counts.drain() == []


def test_deleting_what_is_not_there_is_no_change() -> None:
    counts = store()
    counts.delete("nobody")
    assert counts.drain() == []


def test_without_a_changelog_nothing_is_remembered() -> None:
    counts = store(changelog=False)
    counts.put("a", 1)
    counts.delete("a")
    assert counts.drain() == []


def test_what_is_kept_is_not_what_the_encoder_returned() -> None:
    """orjson's bytes hold a buffer of 4 KiB as long as they live: the engine must be given copies."""
    made: list[bytes] = []

    class Watched(JsonSerde):
        @staticmethod
        def to_bytes(value: Any) -> bytes:  # type: ignore[override]
            made.append(orjson.dumps(value))
            return made[-1]

    counts = TaskStore("counts", MemoryEngine(), Watched(), Watched(), changelog=True)
    counts.put("key", [1, 2])
    ((key, value),) = counts.drain()
    assert (key, value) == (made[0], made[1])
    assert key is not made[0] and value is not made[1]


def test_going_back_restores_state_and_what_was_not_yet_in_the_changelog() -> None:
    counts = store()
    counts.put("a", 1)
    before = counts.snapshot()
    counts.put("b", 1)
    counts.put("a", 2)
    counts.restore(before)
    assert list(counts.all()) == [("a", 1)]
    assert counts.drain() == [(b"a", b"1")]


def test_going_back_over_a_commit_makes_the_changes_pending_again() -> None:
    counts = store()
    counts.put("a", 1)
    before = counts.snapshot()
    counts.put("b", 1)
    counts.drain()
    counts.put("c", 1)
    counts.restore(before)
    assert counts.drain() == [(b"a", b"1")]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9))),
    st.lists(st.integers(0, 20), max_size=3),
)
def test_a_changelog_of_all_that_was_drained_leads_to_the_same_state(
    changes: list[tuple[str, int | None]], commits: list[int]
) -> None:
    counts, changelog = store(), MemoryEngine()
    for at, (key, value) in enumerate(changes):
        if value is None:
            counts.delete(key)
        else:
            counts.put(key, value)
        if at in commits:
            for entry in counts.drain():
                changelog.load([entry[0]], [entry[1]])
    for entry in counts.drain():
        changelog.load([entry[0]], [entry[1]])
    assert list(changelog.range(None, None)) == list(counts.engine.range(None, None))


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("serde", "keys", "in_order"),
    [
        (LongSerde(), [300, 2, 1 << 40, 0], [0, 2, 300, 1 << 40]),
        (
            LongSerde(),
            [-1, 1, 0],
            [0, 1, -1],
        ),  # as in Samza: bytes are compared, and those of negative numbers are the greater ones
        (JsonSerde(), [{"b": 1}, "b", [1], 10, 9, True], ["b", 10, 9, [1], True, {"b": 1}]),
        (StringSerde(), ["ä", "z", "a", "Z", ""], ["", "Z", "a", "z", "ä"]),
    ],
)
def test_keys_of_any_serde_are_in_the_order_of_their_bytes(
    on_disk: bool, serde: Any, keys: list[Any], in_order: list[Any], tmp_path: Path
) -> None:
    by_bytes = TaskStore(
        "s",
        RocksDbEngine(tmp_path / "db") if on_disk else MemoryEngine(),
        serde,
        JsonSerde(),
        changelog=False,
    )
    by_bytes.put_all((key, 1) for key in keys)
    assert [key for key, _ in by_bytes.all()] == in_order
    assert [key for key, _ in by_bytes.range(in_order[1], in_order[-1])] == in_order[1:-1]
    by_bytes.close()


def test_entries_can_be_let_go_before_the_end(tmp_path: Path) -> None:
    counts = TaskStore("s", RocksDbEngine(tmp_path / "db"), StringSerde(), JsonSerde(), changelog=False)
    counts.put_all({"a": 1, "b": 2})
    with contextlib.closing(counts.all()) as entries:
        assert next(entries) == ("a", 1)
    assert list(entries) == []
    left_open = counts.all()
    next(left_open)
    counts.close()
    with pytest.raises(StoreError, match="store 's' is closed"):
        list(left_open)
    RocksDbEngine(tmp_path / "db").close()


def test_a_metered_store_is_used_like_a_dict_too() -> None:
    store = MeteredStore("s", MemoryEngine(), StringSerde(), JsonSerde(), changelog=True)
    metrics = MetricsRegistry()
    store.meter(metrics)
    store["a"] = 1
    assert store.get("b", 7) == 7 and store["a"] == 1 and "a" in store and "b" not in store
    del store["a"]
    assert store.get("a") is None
    assert metrics.timer("s-get-ns", "stores").count >= 3
