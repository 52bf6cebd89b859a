"""Admission control: how the messages of one step are divided among partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streambench.spark.source.admission import shares

LAGS = st.dictionaries(st.integers(0, 20).map(str), st.integers(0, 1000), max_size=12)


@given(LAGS, st.integers(1, 3000))
def test_a_step_takes_as_many_messages_as_it_may(lags: dict[str, int], at_most: int) -> None:
    found = shares(lags, at_most)
    assert sum(found.values()) == min(at_most, sum(lags.values()))
    assert all(0 <= found[each] <= lag for each, lag in lags.items())


@given(LAGS, st.integers(12, 3000))
def test_no_partition_with_messages_is_left_out(lags: dict[str, int], at_most: int) -> None:
    assert all(found > 0 or not lags[each] for each, found in shares(lags, at_most).items())


def test_a_step_follows_the_lags() -> None:
    assert shares({"0": 900, "1": 90, "2": 10}, 100) == {"0": 89, "1": 10, "2": 1}
