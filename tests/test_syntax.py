"""Syntax trees of text: parsed by several threads at once."""

import ast
import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streambench import syntax
from streambench.debug.stopping.conditions import Condition

LONG = "message['delay'] > 180" + "".join(f" and message[{at}][{at}]" for at in range(100))


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """A collector that runs often, so that it runs in the midst of a parse, and a switch of threads there."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(20, 5, 5)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


class Finalised:
    """Garbage whose end runs code."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


def failures(*works: Callable[[], object]) -> list[BaseException]:
    """The errors of threads that each do one work over and over."""
    found: list[BaseException] = []

    def repeat(work: Callable[[], object]) -> None:
        for _ in range(50):
            for _ in range(10):
                Finalised()
            try:
                work()
            except BaseException as error:
                found.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def test_several_threads_parse_conditions_at_once(busy_collector: None) -> None:
    assert failures(*[lambda: Condition(LONG)] * 4) == []


def test_a_parse_is_tried_again_where_one_of_others_disturbs_it(busy_collector: None) -> None:
    def foreign() -> None:
        with contextlib.suppress(SystemError):
            ast.parse(LONG, mode="eval")

    assert failures(lambda: syntax.parse(LONG, mode="eval"), *[foreign] * 3) == []


def test_a_literal_is_what_literal_eval_makes_of_it() -> None:
    for text in ("{'a': [1, -2.5, None]}", " 'text'", "{1, 2}", "b'x'"):
        assert syntax.literal(text) == ast.literal_eval(text)
    with pytest.raises(ValueError):
        syntax.literal("print(1)")


def test_all_of_streambench_parses_in_one_place() -> None:
    root = Path(syntax.__file__).parents[1]
    files = [*root.glob("streambench/**/*.py"), *root.glob("magics/**/*.py")]
    parsing = ("ast.parse(", "ast.literal_eval(")
    own = [each.name for each in files if any(call in each.read_text() for call in parsing)]
    assert own == ["syntax.py"]
