"""Values as text: cut, compared, and never looking like something else."""

from __future__ import annotations

import json
from decimal import Decimal

from streambench.debug.message_text import changed_text, figure_text, message_line, message_text
from streambench.debug.names import end_cut


def test_a_value_beside_a_short_one_has_its_room_as_well() -> None:
    value = {"since": "2001/01/02 10:23", "worst": 23.375, "flights": 10}
    assert changed_text(value, None) == f"{json.dumps(value)} -> -"
    assert changed_text(None, "b" * 200, 20) == f"- -> {'b' * 33}… +167"


def test_long_values_show_where_they_begin_to_differ() -> None:
    pages = [f"/page/{number}" for number in range(40)]
    before, after = changed_text(pages, [*pages, "/help"]).split(" -> ")
    assert (before, after) == ('…, "/page/39"]', '…, "/page/39", "/help"]')


def test_long_values_that_differ_at_once_show_their_begins() -> None:
    assert changed_text("a" * 100, "b" * 100, 20) == f"{'a' * 14}… +86 -> {'b' * 14}… +86"


def test_a_field_of_none_is_no_missing_field() -> None:
    assert changed_text({"a": 1}, {"a": None, "b": None}) == "a 1 -> null, b - -> null"


def test_a_cut_line_counts_the_bytes_of_what_is_left_out() -> None:
    assert message_line(b"\xff" * 1000, 60).endswith(f"... {1000 - 9:,} bytes more")
    assert message_text(b"\xff" * 1000, 30).endswith("… +996")


def test_a_change_that_is_cut_once_more_keeps_both_values() -> None:
    cut = end_cut(changed_text(b"\xff" * 1000, "a" * 1000), 60)
    before, after = cut.split(" -> ")
    assert len(cut) <= 60 and before.endswith("… +996") and after.endswith("a… +980")


def test_a_change_in_little_room_says_how_much_is_left_out() -> None:
    text = changed_text("abcdefgh" + "x" * 100, "abcdefgh" + "y" * 100)
    assert end_cut(text, 28) == "abcdef… +102 -> abcdef… +102"


def test_a_figure_is_any_value_of_a_gauge() -> None:
    numbers = [1234567, 1234567.0, 2 / 3, 10**400, Decimal("0.5"), float("nan"), True]
    shown = ["1,234,567", "1,234,567", "0.666667", "1.00000e+400", "0.5", "nan", "1"]
    assert [figure_text(each) for each in numbers] == shown
    assert figure_text(2 / 3, 15) == "0.666666666666667"
    others = [None, "late", "a\x1b[3m", [1]]
    assert [figure_text(each) for each in others] == ["-", "late", r"a\x1b[3m", "[1]"]
