"""Commands that run messages again: they say how far they are, and Ctrl-C ends them."""

from __future__ import annotations

import _thread
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import streambench_magics.commands.travel_progress as travel
from streambench_magics.commands import status_messages
from streambench_magics.errors import Interrupted
from tests.magics.commands.test_time import CONFIG
from tests.magics.conftest import Shell

ENDLESS = """%%streamtask Tally
def process(envelope, collector, coordinator, context):
    counts = context.store("counts")
    counts.put(envelope.message, (counts.get(envelope.message) or 0) + 1)
    while endless:
        noticed.set()
"""


@pytest.fixture
def endless(ip_empty: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell with a job that has processed three words, and whose task does not end any more."""
    monkeypatch.setattr(travel, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(travel, "_EVERY_S", 0.01)
    ip_empty.names.update(endless=False, noticed=threading.Event(), printed=threading.Event())

    def noticed_print(*words: str, **options: Any) -> None:
        print(*words, **options)
        ip_empty.names["printed"].set()

    monkeypatch.setattr(travel, "print", noticed_print, raising=False)
    ip_empty.run(ENDLESS)
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.words --partitions 1")
    ip_empty.run('%stream send mem.words --from ["a", "b", "a"]')
    ip_empty.run("%stream create Tally --config tallied")
    ip_empty.run("%stream step 3")
    return ip_empty


def interrupt_later(shell: Shell) -> threading.Thread:
    """Interrupt the main thread as the kernel does, once the task is at its message."""

    def interrupt() -> None:
        assert shell.names["noticed"].wait(30)
        shell.names["printed"].clear()
        assert shell.names["printed"].wait(30)
        _thread.interrupt_main()

    shell.names["endless"] = True
    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def end(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the task end with each message, and no way say how far it is, however slow the machine."""
    shell.names["endless"] = False
    monkeypatch.setattr(travel, "_PATIENCE_S", 60)


def test_an_endless_way_back_says_how_far_it_is_and_can_be_interrupted(
    endless: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless.run("%stream watch user=context.user")
    thread = interrupt_later(endless)
    shown = endless.fails("%stream back")
    thread.join()
    assert isinstance(endless.error, Interrupted)
    assert "Tally runs again what led there: at " in shown and "of 2 (interrupt the kernel to stop)" in shown
    assert "Tally stays live, at 3\n" in shown
    assert "interrupted: Tally is paused" in shown
    end(endless, monkeypatch)
    assert endless.run("%stream live").startswith("Tally is live, at 3")
    assert endless.run("%stream back").startswith("Tally is at 2 of 3")


def test_an_interrupted_move_in_the_past_ends_live(endless: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    endless.run("%stream back 2")
    endless.names["noticed"].clear()
    endless.run("%stream swap --replay 0")
    thread = interrupt_later(endless)
    shown = endless.fails("%stream forward")
    thread.join()
    assert "Tally is live again, at 3; its branch is dropped" in shown
    end(endless, monkeypatch)
    assert "Tally is at 1 of 3, in the past (" in endless.run("%stream back 2")


def test_an_interrupted_swap_exchanges_nothing(endless: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = interrupt_later(endless)
    shown = endless.fails("%stream swap --replay 3")
    thread.join()
    assert "Tally runs the last 3 messages through the new code: at 1 (interrupt the" in shown
    assert "Tally stays live, at 3\n" in shown
    end(endless, monkeypatch)
    assert endless.run("%stream swap --undo") == "Tally: there is no swap to take back"


def test_an_interrupted_search_in_the_past_says_that_it_stays_there(
    endless: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless.run("%stream back")
    thread = interrupt_later(endless)
    shown = endless.fails("%stream back --until \"message == 'b'\"")
    thread.join()
    assert "Tally stays in the past, at 2 of 3\n" in shown
    end(endless, monkeypatch)
    assert endless.run("%stream forward").startswith("Tally is live, at 3")


def test_a_line_of_progress_is_written_some_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, shown = [1.0], list[str]()
    handle = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))
    monkeypatch.setattr(status_messages, "show", lambda data, display_id: handle)
    monkeypatch.setattr(status_messages, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    with status_messages.status_line("shrinking") as update:
        for left in range(900, 0, -1):
            seconds[0] += 0.01
            update(f"{left} left")
    assert 20 < len(shown) < 50
    assert shown[0] == "shrinking: 900 left" and shown[-1] == "shrinking"
