"""Messages by the column."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from streambench.chunk import numbered


@given(st.integers(0, 10**12), st.integers(0, 2_500))
@example(0, 1000)
@example(999, 2)
@example(1000, 0)
def test_numbers_in_a_row_are_written_as_any_others(start: int, count: int) -> None:
    assert numbered(start, start + count) == [str(number) for number in range(start, start + count)]


def test_whoever_changes_numbers_in_a_row_changes_nobody_elses() -> None:
    numbered(3000, 4000).clear()
    assert numbered(3000, 3002) == ["3000", "3001"]
