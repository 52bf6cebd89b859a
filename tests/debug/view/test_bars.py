"""Figures as characters."""

from __future__ import annotations

from streambench.container.observe.snapshot import Choice
from streambench.debug.view.bars import bar, choice_letters, line_over_time
from streambench.model import SystemStreamPartition


def choice(number: int, stream: str, partition: int) -> Choice:
    return Choice(number, SystemStreamPartition("log", stream, partition), "0", None)


def test_a_bar_is_full_up_to_its_percentage() -> None:
    assert [bar(percent, 4) for percent in (0, 50, 100)] == ["┄┄┄┄", "━━┄┄", "━━━━"]


def test_a_line_over_time_has_the_newest_figures_at_the_right() -> None:
    assert line_over_time([9, 9, 0, 4, 8], 3) == "▁▅█"
    assert line_over_time([0, 0], 3) == "▁▁"
    assert line_over_time([], 3) == ""


def test_choices_have_a_letter_per_stream_or_partition() -> None:
    choices = [choice(1, "a", 0), choice(2, "b", 0), choice(3, "a", 1)]
    letters, legend = choice_letters(choices, {2}, by_partition=False)
    assert "".join(each.letter for each in letters) == "ABA"
    assert [each.committed for each in letters] == [False, True, False]
    assert legend == {"A": "log.a", "B": "log.b"}
    letters, legend = choice_letters(choices, (), by_partition=True)
    assert "".join(each.letter for each in letters) == "ABC"
    assert legend == {"A": "log.a.0", "B": "log.b.0", "C": "log.a.1"}


def test_letters_stay_whichever_choices_are_shown() -> None:
    inputs = [SystemStreamPartition("log", stream, 0) for stream in "cab"]
    letters, legend = choice_letters([choice(7, "c", 0), choice(8, "b", 0)], (), inputs, by_partition=False)
    assert "".join(each.letter for each in letters) == "CB"
    assert list(legend.items()) == [("B", "log.b"), ("C", "log.c")]


def test_after_the_last_letter_the_first_one_comes_again() -> None:
    letters, legend = choice_letters(
        [choice(number, "a", number) for number in range(28)], (), by_partition=True
    )
    assert (letters[26].letter, letters[26].number, legend["A"]) == ("A", 26, "log.a.0")
