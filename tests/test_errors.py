"""Errors, and what is done in spite of them."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

import streambench
from streambench import errors
from streambench.errors import (
    ConfigError,
    MissingExtraError,
    StreambenchError,
    TaskError,
    described,
    do_all,
    shortened,
)
from tests.test_house import nodes

ROOT = Path(__file__).resolve().parent.parent
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
_CAUGHT = {*dir(builtins), *streambench.__all__}


def test_every_error_of_ours_is_exported() -> None:
    ours = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, StreambenchError)
    }
    assert ours - set(streambench.__all__) == set()
    assert all(getattr(streambench, name) is getattr(errors, name) for name in ours)


def test_every_error_that_texts_name_is_one_that_can_be_caught() -> None:
    """In the pages by its name in ``streambench``; in docstrings also one that the package defines for its
    own parts."""
    pages = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert _errors_in(pages) - _CAUGHT == set()
    modules = {path: path.read_text() for path in (ROOT / "streambench").rglob("*.py")}
    defined = {name for text in modules.values() for name in re.findall(r"^class (\w+Error)\b", text, re.M)}
    for path in modules:
        documented = [node for node in nodes(path) if isinstance(node, _DOCUMENTED)]
        said = _errors_in("\n".join(ast.get_docstring(node) or "" for node in documented))
        assert said - _CAUGHT - defined == set(), path


def _errors_in(text: str) -> set[str]:
    return set(re.findall(r"\b[A-Z]\w+Error\b", text))


def test_every_step_is_taken_and_the_first_failure_raised() -> None:
    taken = []

    def step(name: str, error: Exception | None = None) -> None:
        taken.append(name)
        if error is not None:
            raise error

    with pytest.raises(ValueError, match="first"):
        do_all(
            [
                lambda: step("a"),
                lambda: step("b", ValueError("first")),
                lambda: step("c", KeyError("second")),
                lambda: step("d"),
            ]
        )
    assert taken == ["a", "b", "c", "d"]


def test_an_interrupt_ends_the_steps_at_once() -> None:
    taken = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do_all([interrupt, lambda: taken.append("b")])
    assert taken == []


def test_errors_carry_the_place() -> None:
    assert ConfigError("wrong", key="task.inputs").key == "task.inputs"
    assert MissingExtraError("kafka", "kafka").extra == "kafka"
    error = TaskError("failed", task="Partition 0", ssp="mem.a.0", offset="7", key="k")
    assert (error.task, error.ssp, error.offset, error.key) == ("Partition 0", "mem.a.0", "7", "k")


def test_a_notebook_shows_the_message_alone() -> None:
    assert ConfigError("task.inputs: is missing")._render_traceback_() == [
        "ConfigError: task.inputs: is missing"
    ]


def test_an_exception_is_described_by_its_class_unless_it_is_ours() -> None:
    assert described(ConfigError("task.inputs: is missing")) == "task.inputs: is missing"
    assert described(ValueError("too small")) == "ValueError: too small"
    assert described(ValueError()) == "ValueError"


def test_an_exception_that_has_no_text_is_described_all_the_same() -> None:
    class Odd(ValueError):
        def __str__(self) -> str:
            raise AttributeError("detail")

    assert described(Odd()) == "Odd: <its text raises AttributeError>"


def test_long_values_are_shortened() -> None:
    assert shortened("short") == "'short'"
    assert len(shortened("x" * 1000)) == 80
    assert shortened("x" * 1000).endswith("...")


def test_what_an_exception_says_of_broken_text_can_be_written() -> None:
    assert described(ValueError("half of \ud800")) == "ValueError: half of \\ud800"
    assert described(StreambenchError("half of \ud800")) == "half of \\ud800"
