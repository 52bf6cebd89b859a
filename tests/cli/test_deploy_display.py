"""The progress of a deployment on a terminal, and where there is none."""

from __future__ import annotations

import io
import queue
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from streambench.cli.deploy_display import DeployDisplay, LiveScreen, PlainScreen, deploy_display
from streambench.cli.output import live_console
from streambench.spark import ContainerProgress, DeployProgress
from streambench.spark.result import progress_of
from tests.cli.terminal_screen import TerminalOutput


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def container(number: int, stage: Any, messages: int = 0, **values: Any) -> ContainerProgress:
    """A container with two partitions and 100 messages in all."""
    fields = {"total": 100, "left": 100 - messages, "partitions": 2, **values}
    return ContainerProgress(number=number, stage=stage, messages=messages, **fields)


def progress(seconds: float, *each: ContainerProgress, **values: Any) -> DeployProgress:
    return progress_of(each or [container(0, "waiting")], seconds=seconds, **{"round": 1, **values})


def plain(write: Callable[[str], object], every_s: float, clock: Clock) -> DeployDisplay:
    return DeployDisplay(PlainScreen(write), every_s, clock)


def test_progress_is_shown_at_once_and_then_every_few_seconds_by_one_clock() -> None:
    lines, clock = [], Clock()
    running = container(0, "running", 50)
    with plain(lines.append, 5.0, clock) as display:
        assert lines == ["planning"]
        display.show(progress(1.0, stage="starting Spark"))
        display.show(progress(40.0))
        display.show(progress(41.0, running))
        clock.now = 5.0
        display.show(progress(45.0, running, rate=10.0))
        display.show(progress(46.0, container(0, "done", 100, partitions_done=2), stage="ended"))
    assert lines == [
        "planning",
        "round 1: starting Spark, 1.0 s",
        "round 1: 0 of 100 messages, 100 left, 0 of 1 container done, 1 waiting, 40.0 s",
        "round 1: 50 of 100 messages, 10/s, 50 left, about 5 s to go, 0 of 1 container done, 1 running, "
        "45.0 s",
        "round 1: 100 of 100 messages, 1 of 1 container done, 46.0 s",
    ]


def test_progress_goes_on_counting_while_spark_says_nothing() -> None:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    clock = Clock()
    with plain(lines.put, 0.01, clock) as display:
        display.show(progress(1.0, stage="starting Spark"))
        clock.now = 30.0
        shown = iter(lambda: lines.get(timeout=60), "round 1: starting Spark, 31.0 s")
        assert set(shown) <= {"planning", "round 1: starting Spark, 1.0 s"}


def test_a_container_that_fails_or_starts_again_has_a_line_at_once() -> None:
    lines: list[str] = []
    with plain(lines.append, 5.0, Clock()) as display:
        display.show(progress(1.0, container(0, "running"), container(1, "running")))
        display.show(
            progress(
                2.0,
                container(0, "running", attempt=1),
                container(1, "failed", error="ValueError: no delay"),
            )
        )
    assert lines[2:4] == [
        "container 0: started again by Spark, attempt 2",
        "container 1 failed: ValueError: no delay",
    ]


def test_rounds_of_several_jobs_are_named_and_not_taken_for_one() -> None:
    lines: list[str] = []
    with plain(lines.append, 5.0, Clock()) as display:
        for job in ("a-1", "b-1"):
            failed = container(0, "failed", 100, error="ValueError: no delay")
            display.show(progress(2.0, failed, stage="ended", job=job))
    shown = "round 1: 100 of 100 messages, 0 of 1 container done, 1 failed, 2.0 s"
    assert lines[1:] == [
        "a-1, container 0 failed: ValueError: no delay",
        f"a-1, {shown}",
        "b-1, container 0 failed: ValueError: no delay",
        f"b-1, {shown}",
    ]


def test_the_time_of_what_was_interrupted_is_that_of_its_end() -> None:
    lines, clock = [], Clock()
    with pytest.raises(KeyboardInterrupt), plain(lines.append, 5.0, clock) as display:
        display.show(progress(97.7, container(0, "running", 20)))
        clock.now = 2.6
        raise KeyboardInterrupt
    assert lines[-1].endswith(", 100.3 s")


def test_what_was_interrupted_is_shown_as_stopped() -> None:
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt), plain(lines.append, 5.0, Clock()) as display:
        display.show(progress(2.0, container(0, "running", 20)))
        raise KeyboardInterrupt
    assert lines[-1] == (
        "round 1: stopped, 20 of 100 messages, 80 left for the next start, 0 of 1 container done, "
        "1 running, 2.0 s"
    )


def terminal(height: int) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=90, height=height, color_system=None, highlight=False
    )


def shown_on(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_has_a_bar_the_sums_and_the_containers() -> None:
    console = terminal(40)
    screen = LiveScreen(console)
    screen.start()
    screen.put(
        progress(
            12.0,
            container(0, "running", 30, partitions_done=1, silent_s=20.0),
            container(1, "failed", 5, error="ValueError: no delay"),
            container(2, "waiting"),
            rate=7.0,
            job="delays-1",
        ),
        0.0,
    )
    screen.stop(failed=True)
    text = shown_on(console)
    for part in (
        "delays-1, round 1: running, 12.0 s",
        " 11 %",
        "35 of 300 messages, 7/s, 265 left, about 38 s to go",
        "0 of 3 containers done, 1 running, 1 waiting, 1 failed, 1 of 6 partitions done",
        "        0  running        30    70           1 of 2",
        "        1  failed          5    95           0 of 2",
        "        2  waiting         0   100           0 of 2",
        "container 0: no report for 20 s",
        "container 1: ValueError: no delay",
    ):
        assert part in text


def test_a_long_error_leaves_the_figures_their_room() -> None:
    console = terminal(40)
    screen = LiveScreen(console)
    screen.start()
    failed = [container(number, "failed", 12_345, left=55, error="too long " * 30) for number in range(5)]
    screen.put(progress(1.0, *failed), 0.0)
    screen.stop(failed=True)
    text = shown_on(console)
    assert "        0  failed    12,345    55           0 of 2" in text
    assert "container 2: too long" in text and "container 3: too long" not in text
    assert "and 2 more containers failed or are silent" in text


def test_a_small_terminal_shows_failures_before_what_goes_well() -> None:
    console = terminal(13)
    screen = LiveScreen(console)
    screen.start()
    each = [container(number, "running", 10) for number in range(1000)]
    each[700] = container(700, "failed", error="ValueError: no delay")
    screen.put(progress(1.0, *each), 0.0)
    screen.stop(failed=True)
    assert "700  failed" in shown_on(console)
    assert "and 997 more: 997 running" in shown_on(console)


def test_what_is_no_terminal_has_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with deploy_display(Console(file=io.StringIO())) as display:
        display.show(progress(1.0, stage="starting Spark"))
    assert capsys.readouterr().out.splitlines() == ["planning", "round 1: starting Spark, 1.0 s"]


@pytest.mark.parametrize("is_cell", [True, False])
def test_where_nothing_can_be_redrawn_there_are_plain_lines(
    monkeypatch: pytest.MonkeyPatch, is_cell: bool
) -> None:
    """A cell of a notebook has a terminal that keeps each frame; a log that takes colours is no terminal."""
    kernels = {"TERM": "xterm-color", "CLICOLOR_FORCE": "1", "GIT_PAGER": "cat"} if is_cell else {}
    for name, value in {"FORCE_COLOR": "1", **kernels}.items():
        monkeypatch.setenv(name, value)
    output = TerminalOutput() if is_cell else io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    with deploy_display(live_console()) as display:
        display.show(progress(1.0, stage="starting Spark"))
    assert output.getvalue().splitlines() == ["planning", "round 1: starting Spark, 1.0 s"]
