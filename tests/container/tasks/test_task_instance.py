"""One task of a container: the object that is made for it, its callbacks and its offsets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streambench.errors import (
    ConfigError,
)
from streambench.task import (
    StreamTask,
)
from streambench.testing import run_job
from tests.container.jobs import Bench, ignore


def test_a_process_function_that_is_abstract_is_no_task() -> None:
    class Half(StreamTask):
        pass

    with pytest.raises(ConfigError, match="Half is abstract: it lacks process"):
        Bench(Half, {"mem.a": {0: []}})


def test_a_task_that_cannot_be_made_is_an_error() -> None:
    class Demanding(StreamTask):
        def __init__(self, url: str) -> None:
            pass

        process = staticmethod(ignore)  # type: ignore[assignment]

    with pytest.raises(
        ConfigError, match=r"task\.class: cannot make a Demanding \(test_task_instance\.py:\d+\): .*'url'"
    ):
        Bench(Demanding, {"mem.a": {0: []}}).started()


def takes_one(envelope: Any) -> None:
    """Forgets the collector."""


class TakesTwo:
    def process(self, envelope: Any, collector: Any) -> None:
        """Forgets the coordinator."""


class TakesARunOnly(TakesTwo):
    def process_batch(self, batch: Any) -> None:
        """Forgets both."""


class WindowTakesNone(TakesTwo):
    process = staticmethod(ignore)  # type: ignore[assignment]

    def window(self) -> None:
        """Forgets both."""


@pytest.mark.parametrize(
    ("task", "function", "called_as"),
    [
        (takes_one, takes_one, "process(envelope, collector, coordinator)"),
        (TakesTwo, TakesTwo.process, "process(self, envelope, collector, coordinator)"),
        (TakesARunOnly, TakesARunOnly.process_batch, "process_batch(self, batch, collector, coordinator)"),
        (WindowTakesNone, WindowTakesNone.window, "window(self, collector, coordinator)"),
    ],
)
def test_a_function_with_other_parameters_is_named_before_the_start(
    task: Any, function: Callable[..., None], called_as: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Bench(task, {"mem.a": {0: []}})
    text = str(caught.value)
    assert text.startswith(
        f"{function.__qualname__} (test_task_instance.py:{function.__code__.co_firstlineno}) takes ("
    )
    assert f"is called as {called_as}" in text


async def awaits(envelope: Any, collector: Any, coordinator: Any) -> None:
    """Nobody would await it."""


class Yields:
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> Iterator[Any]:
        yield envelope


class AwaitsInWindow:
    process = staticmethod(ignore)

    async def window(self, collector: Any, coordinator: Any) -> None:
        """Nobody would await it."""


@pytest.mark.parametrize(
    ("task", "function", "what"),
    [
        (awaits, awaits, "is async: the container calls process() and awaits nothing"),
        (Yields, Yields.process, "is a generator, since it has a yield: the container only calls process()"),
        (AwaitsInWindow, AwaitsInWindow.window, "is async: the container calls window() and awaits nothing"),
    ],
)
def test_a_function_whose_body_a_call_would_not_run_is_refused(
    task: Any, function: Callable[..., Any], what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run_job(task, None, {"mem.a": {0: ["x"]}})
    place = f"{function.__qualname__} (test_task_instance.py:{function.__code__.co_firstlineno})"
    assert str(caught.value).startswith(f"{place} {what}, so its code would never run")


def test_whatever_can_be_called_with_three_arguments_is_a_process_function() -> None:
    got: list[Any] = []

    def named(log: list[Any], envelope: Any, collector: Any, coordinator: Any, *, mark: int = 0) -> None:
        log.append(envelope.message)

    @functools.wraps(takes_one)
    def wrapper(*arguments: Any) -> None:
        got.append(arguments[0].message)

    class Both(TakesTwo):
        def process_batch(self, batch: Any, *handles: Any) -> None:
            got.extend(batch.messages())

    for task in (functools.partial(named, got), wrapper, Both):
        run_job(task, None, {"mem.a": {0: [1]}})
    assert got == [1, 1, 1]
