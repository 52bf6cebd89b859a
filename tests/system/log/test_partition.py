"""A partition of a log: all that was appended is read, from any offset within its bounds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import (
    OffsetError,
)
from tests.system.log.partitions import Row, all_rows, open_partition, rows, some_bytes

some_headers = st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5))
messages = st.tuples(st.integers(0, 1 << 50), some_bytes, some_bytes, some_headers)
steps = st.one_of(
    st.lists(messages, min_size=1, max_size=8).map(lambda batch: ("append", batch)),
    st.sampled_from([("reopen", None), ("flush", None), ("roll", None)]),
)


@given(st.lists(steps, max_size=15), st.data())
def test_what_is_appended_is_what_is_read_from_any_offset(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, Any]], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    partition = open_partition(directory, segment_bytes=3000)
    follower = partition.cursor(0)
    expected: list[Row] = []
    followed: list[Row] = []
    for step, batch in plan:
        if step == "append":
            timestamps, keys, values, headers = map(list, zip(*batch, strict=True))
            offsets = partition.append(keys, values, timestamps, headers)
            assert offsets == range(len(expected), len(expected) + len(batch))
            expected += [(offset, *message) for offset, message in zip(offsets, batch, strict=True)]
        elif step == "reopen":
            partition = open_partition(directory, segment_bytes=3000)
        elif step == "flush":
            partition.flush()
        else:
            partition.roll()
        followed += rows(follower.read(data.draw(st.integers(1, 6))))
    while read := follower.read(100):
        followed += rows(read)
    start = data.draw(st.integers(0, len(expected)))
    assert all_rows(partition) == followed == expected
    assert rows(partition.read(start)) == expected[start:]
    assert open_partition(directory).bounds() == (0, len(expected))
    shutil.rmtree(directory)


def test_a_partition_that_was_never_written_to_is_empty_and_has_no_files(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    assert partition.bounds() == (0, 0)
    assert partition.read(0) == []
    assert not (tmp_path / "clicks" / "0").exists()


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_an_offset_outside_the_partition_is_an_error_that_tells_its_bounds(
    tmp_path: Path, offset: int
) -> None:
    partition = open_partition(tmp_path)
    partition.append(None, [b"0", b"1"])
    with pytest.raises(OffsetError, match=rf"log\.clicks\.0.*{offset}.*oldest is 0.*will get 2"):
        partition.read(offset)
