"""The panel as one screen of a terminal, without a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from streambench.container.container import Container
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.debug.control.session import Session
from streambench.debug.terminal.terminal_view import Screen
from streambench.debug.view.panel_state import PanelStateReader
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system import memory
from streambench.system.systems import Systems

MEMORY = {"systems.m.samza.factory": "memory", "systems.m.samza.offset.default": "oldest"}


class Shown:
    """A session as a panel shows it."""

    busy_at = ""

    def __init__(self, session: Session) -> None:
        self.session: Session | None = session
        self.name = session.name
        self._of = session

    @property
    def state(self) -> str:
        return self._of.state

    def snapshot(self) -> ContainerSnapshot:
        return replace(self._of.snapshot(), state=self.state)


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that starts a session over a stream with so many partitions, a message in each."""
    monkeypatch.setattr(memory, "_systems", {})
    sessions = []

    def numbers(partitions: int, name: str = "numbers") -> Session:
        config = {**MEMORY, "task.inputs": f"m.{name}", "job.name": "shown"}
        container = Container.from_config(config, lambda envelope, collector, coordinator: None)
        systems = Systems(container.config)
        stream = SystemStream("m", name)
        systems.create(stream, partitions)
        producer = systems.producer("m", container.metrics)
        producer.register("test")
        producer.start()
        for number in range(partitions):
            producer.send("test", OutgoingMessageEnvelope(stream, {"n": number}, partition=number))
        producer.flush("test")
        made = Container(container.config, container.factory, remember_choices=160)
        sessions.append(Session(made))
        sessions[-1].start()
        return sessions[-1]

    yield numbers
    for each in sessions:
        each.stop()


def drawn(screen: Screen, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None, force_terminal=True)
    with console.capture() as captured:
        console.print(screen, end="")
    return captured.get().split("\n")


@pytest.mark.parametrize("partitions", [1, 12, 1000])
@pytest.mark.parametrize("size", [(80, 24), (40, 6), (20, 3), (200, 60)])
def test_a_screen_has_exactly_its_lines_at_any_size(
    numbers: Any, partitions: int, size: tuple[int, int]
) -> None:
    session = numbers(partitions, "long" * 12)
    session.step()
    frame = PanelStateReader(Shown(session)).take()
    for page in range(8):
        lines = drawn(Screen(frame, page=page), *size)
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]
    assert len(drawn(Screen(frame, help=True), *size)) == size[1]


def test_the_screen_has_inputs_choices_and_the_page_that_is_asked_for(numbers: Any) -> None:
    session = numbers(2)
    session.step(2)
    session.watch("n", "message['n']")
    session.break_on("message['n'] > 5")
    reader = PanelStateReader(Shown(session))
    text = "\n".join(drawn(Screen(reader.take(), page=5), 100, 30))
    assert "shown-1  paused  2 processed  lag 0" in text
    assert "A m.numbers.0, B m.numbers.1" in text
    assert "message['n']  1" in text
    assert "message['n'] > 5" in "\n".join(drawn(Screen(reader.take(), page=6), 100, 30))
    assert '{"n": 1}' in "\n".join(drawn(Screen(reader.take(), page=2), 100, 30))


def test_a_text_from_right_to_left_turns_no_other_column_around(numbers: Any) -> None:
    session = numbers(1)
    session.step()
    session.watch("n", "'\u05d0' * message['n'] + '\u05d0'")
    text = "\n".join(drawn(Screen(PanelStateReader(Shown(session)).take(), page=5), 100, 30))
    assert '\u2068"\u05d0"\u2069' in text or "\u2068\u05d0\u2069" in text


def test_the_message_stands_on_every_page(numbers: Any) -> None:
    session = numbers(1)
    session.step()
    frame = PanelStateReader(Shown(session)).take()
    for page in (0, 5):
        assert 'message {"n": 0}' in "\n".join(drawn(Screen(frame, page=page), 100, 30))


def test_in_the_past_the_choice_of_then_is_shown(numbers: Any) -> None:
    session = numbers(2)
    session.step(2)
    session.back()
    text = "\n".join(drawn(Screen(PanelStateReader(Shown(session)).take()), 100, 30))
    assert "past  1 processed" in text
    assert "last chosen: m.numbers.0@0" in text


def test_counts_that_the_past_does_not_have_are_said_to_be_of_the_newest(numbers: Any) -> None:
    session = numbers(2)
    session.step(2)
    session.container.tasks[0].metrics.counter("seen", "mine").inc(3)
    session.container.metrics.counter("commit-calls", "container").inc()

    def metrics() -> str:
        frame = PanelStateReader(Shown(session)).take()
        return "\n".join(drawn(Screen(frame, page=4), 100, 30))

    assert "the newest" not in metrics()
    session.back()
    said, unknown = metrics().split("as they are at message 2, the newest")
    assert "commit-calls" in unknown and "commit-calls" not in said
    assert "up to 1 message runs again, on a copy" in said and "mine" not in said + unknown


def test_long_pages_are_scrolled_to_their_end_and_no_further(numbers: Any) -> None:
    frame = PanelStateReader(Shown(numbers(1))).take()
    printed = [f"line {number}" for number in range(100)]
    top = "\n".join(drawn(Screen(frame, page=7, printed=printed), 80, 24))
    assert "line 0 " in top and "line 99 " not in top
    assert "line 99 " in "\n".join(drawn(Screen(frame, page=7, scroll=500, printed=printed), 80, 24))


def test_what_is_typed_and_what_went_wrong_stand_at_the_bottom(numbers: Any) -> None:
    frame = PanelStateReader(Shown(numbers(1))).take()
    assert drawn(Screen(frame, notice="it cannot"), 80, 24)[-1].rstrip() == "it cannot"
    long = drawn(Screen(frame, notice="word " * 30 + "end"), 80, 24)
    assert long[-1].rstrip().endswith("end") and len(long) == 24
    assert drawn(Screen(frame, notice="it cannot", prompt="search: x"), 80, 24)[-1].startswith("search: x")
