"""Names and texts in little room."""

from __future__ import annotations

import pytest

from streambench.debug.names import end_cut, middle_cut, visible

LONG = "flights-of-all-the-airports-of-europe.11"


@pytest.mark.parametrize("width", [8, 12, 20, 39])
def test_a_name_is_cut_in_its_middle_and_keeps_its_partition(width: int) -> None:
    cut = middle_cut(LONG, width)
    assert len(cut) == width
    assert cut.endswith(".11")
    assert "…" in cut


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert middle_cut(LONG, len(LONG)) == LONG


def test_a_text_that_is_cut_says_how_much_is_left_out() -> None:
    cut = end_cut("x" * 5000, 40)
    kept, _, left_out = cut.partition("… +")
    assert len(cut) <= 40
    assert len(kept) + int(left_out.replace(",", "")) == 5000


def test_characters_that_turn_text_around_or_hide_in_it_are_escaped() -> None:
    assert visible("a\u202eb\u2066c\u200bd\x1b[31m\x00") == "a\\u202eb\\u2066c\\u200bd\\x1b[31m\\x00"
    assert visible("naïve 東京 👍\tand\nmore") == "naïve 東京 👍\tand\nmore"
