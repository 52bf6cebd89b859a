"""A misspelled name is answered with the name that was meant."""

from __future__ import annotations

from streambench.suggestions import closest, suggest, suggest_or_list


def test_the_most_similar_name_is_suggested() -> None:
    assert closest("inptus", {"inputs", "outputs"}) == "inputs"
    assert suggest("inptus", {"inputs"}, prefix="task.") == "did you mean task.inputs?"


def test_names_that_are_equally_similar_are_all_suggested() -> None:
    assert suggest("stpe", ["stop", "step", "run"]) == "did you mean step or stop?"


def test_a_name_unlike_all_others_gets_what_there_is() -> None:
    assert closest("x", ["inputs"]) is None
    assert suggest("x", ["inputs"]) == ""
    assert suggest_or_list("x", ["b", "a"]) == "there are a, b"
