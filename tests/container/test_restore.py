"""State from its changelog, as it was at the last checkpoint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.container.restore import Restore, restore_all
from streambench.errors import StoreError
from streambench.model import PartitionMetadata
from streambench.store.memory import MemoryEngine
from tests.store.fakes import CHANGELOG, Changelog

Entry = tuple[bytes | None, bytes | None]
ENTRIES: st.SearchStrategy[list[Entry]] = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=2))
)


def contents(engine: MemoryEngine) -> dict[bytes, bytes]:
    return dict(engine.range(None, None))


def replayed(entries: list[Entry]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in dict(entries).items() if value is not None}


def run(
    changelog: Changelog, engine: MemoryEngine, committed: str | None
) -> list[tuple[bytes, bytes | None]]:
    admin, ssp = changelog.factory.get_admin("mem", None), changelog.ssp()  # type: ignore[arg-type]
    here = admin.metadata([ssp.system_stream])[ssp.system_stream][ssp.partition]
    one = Restore(engine, ssp, here, committed, admin.compare, store="counts")
    restore_all(changelog.consumer(), [one])
    return one.corrections()


@given(committed=ENTRIES, orphaned=ENTRIES)
def test_the_state_is_that_of_the_checkpoint_as_is_the_corrected_changelog(
    committed: list[Entry], orphaned: list[Entry]
) -> None:
    changelog, engine = Changelog(), MemoryEngine()
    changelog.write(committed)
    changelog.write(orphaned)
    corrections = run(changelog, engine, str(len(committed)))
    assert contents(engine) == replayed(committed)
    assert replayed([*committed, *orphaned, *corrections]) == replayed(committed)


@given(orphaned=ENTRIES)
def test_where_nothing_was_committed_everything_is_taken_back(orphaned: list[Entry]) -> None:
    changelog, engine = Changelog(), MemoryEngine()
    changelog.write(orphaned)
    corrections = run(changelog, engine, None)
    assert contents(engine) == {}
    assert replayed([*orphaned, *corrections]) == {}


def test_what_a_dead_run_wrote_is_set_right_and_only_that() -> None:
    changelog, engine = Changelog(), MemoryEngine()
    changelog.write([(b"kept", b"1"), (b"changed", b"1"), (b"deleted", b"1"), (b"same", b"1")])
    changelog.write([(b"changed", b"2"), (b"deleted", None), (b"new", b"1"), (b"same", b"1")])
    assert run(changelog, engine, "4") == [(b"changed", b"1"), (b"deleted", b"1"), (b"new", None)]


def test_a_second_restore_finds_nothing_more_to_set_right() -> None:
    changelog = Changelog()
    changelog.write([(b"a", b"1"), (b"a", b"2"), (b"b", b"1")])
    changelog.write(run(changelog, MemoryEngine(), "1"))
    engine = MemoryEngine()
    assert run(changelog, engine, "1") == []
    assert contents(engine) == {b"a": b"1"}


def test_an_empty_changelog_is_an_empty_store() -> None:
    engine = MemoryEngine()
    assert run(Changelog(), engine, "0") == []
    assert run(Changelog(), engine, None) == []
    assert contents(engine) == {}


def test_a_changelog_that_lost_what_was_committed_is_an_error() -> None:
    changelog = Changelog()
    changelog.write([(b"a", b"1")])
    what = (
        r"mem\.counts-changelog\.0: the checkpoint goes up to offset 5 .* it ends at 1\. If "
        r"stores\.counts\.changelog .*bring it.*rewind"
    )
    with pytest.raises(StoreError, match=what):
        run(changelog, MemoryEngine(), "5")
    with pytest.raises(StoreError, match="it is empty"):
        run(Changelog(), MemoryEngine(), "5")


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [(None, b"x", "NoneType as key"), ("a", b"x", "str as key"), (b"a", {}, "dict as value")],
)
def test_a_stream_of_something_else_is_an_error_that_names_the_entry(
    key: bytes | None, value: object, kind: str
) -> None:
    changelog = Changelog()
    changelog.write([(b"a", b"1"), (key, value)])
    with pytest.raises(StoreError, match=rf"mem\.counts-changelog\.0@1 is no entry of a changelog.*{kind}"):
        run(changelog, MemoryEngine(), "2")


def test_several_stores_are_restored_by_one_consumer() -> None:
    changelog = Changelog(partitions=3)
    for partition in (0, 2):
        changelog.write([(b"a", b"%d" % partition)] * 3, partition)
    engines = [MemoryEngine() for _ in range(3)]
    admin = changelog.factory.get_admin("mem", None)  # type: ignore[arg-type]
    here = admin.metadata([CHANGELOG])[CHANGELOG]
    read: list[int] = []
    restores = [
        Restore(engines[at], changelog.ssp(at), here[at], here[at].upcoming, admin.compare, store="counts")
        for at in range(3)
    ]
    restore_all(changelog.consumer(), restores, lambda: read.append(sum(each.entries for each in restores)))
    assert [contents(engine) for engine in engines] == [{b"a": b"0"}, {}, {b"a": b"2"}]
    assert [each.entries for each in restores] == [3, 0, 3]
    assert [each.total for each in restores] == [3, 0, 3]
    assert read[-1] == 6


def test_offsets_that_cannot_be_compared_are_an_error() -> None:
    with pytest.raises(StoreError, match="offsets 7 and x of this changelog cannot be compared"):
        Restore(
            MemoryEngine(),
            Changelog.ssp(),
            PartitionMetadata("a", "b", "x"),
            "7",
            lambda offset, other: None,
            store="counts",
        )
