"""Values of ``streambench.debug`` in a cell: the lines that the magics print, not the fields of a record."""

from __future__ import annotations

from typing import cast

import pytest

from tests.magics.conftest import Shell

CONFIG = """%%streamconfig words
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
task.inputs=mem.words
stores.n.factory=memory
"""

TASK = """%%streamtask Tally
class Tally:
    def init(self, context):
        self.n = context.store("n")

    def process(self, envelope, collector, coordinator):
        word = envelope.message
        self.n[word] = self.n.get(word, 0) + 1
        collector.send("mem.seen", word, key=word)
"""


@pytest.fixture
def stepped(ip_empty: Shell) -> Shell:
    """A shell with a job that has processed three words, and ``session``, its session."""
    ip_empty.run(CONFIG)
    ip_empty.run(TASK)
    ip_empty.run("%stream streams create mem.words --partitions 1 --config words")
    ip_empty.run('%stream send mem.words --config words --from ["a", "b", "a"]')
    ip_empty.run("%stream create Tally --config words")
    ip_empty.run("%stream step 3")
    ip_empty.run("job = %stream job Tally\nsession = job.session")
    return ip_empty


def displayed(shell: Shell, cell: str) -> str:
    """The text of the value of a cell, as the kernel sends it."""
    shell.run(cell)
    texts, _ = shell.shell.display_formatter.format(shell.value)
    return cast(str, texts["text/plain"])


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        ("session.outputs()[0]", ["1  key a  -> mem.seen  a"]),
        ("session.changes('n', 'a')[-1]", ["3  mem.words.0@2  n[a]  1 -> 2"]),
        ("session.cause(session.outputs()[2])", ["3  mem.words.0@2  a", "        n[a]  1 -> 2"]),
        ("session.swap(lambda envelope, collector, coordinator: None)", ["swapped at 3"]),
        ("session.diff(2, 3)", ["what "]),
        ("session.crash()", ["a kill -9 "]),
    ],
)
def test_a_value_is_shown_in_the_lines_of_the_magics(stepped: Shell, cell: str, lines: list[str]) -> None:
    shown = displayed(stepped, cell).splitlines()
    assert [line[: len(expected)] for line, expected in zip(shown, lines, strict=False)] == lines


def test_the_cause_of_what_a_window_sent_is_the_window(stepped: Shell) -> None:
    stepped.run("from streambench.debug.effects.events import Cause")
    shown = displayed(stepped, "Cause(3, None, None, None, None, (), 'window', 'Partition 0')")
    assert shown == "3  window() of Partition 0"
    shown = displayed(stepped, "Cause(3, None, None, None, None, ())")
    assert shown == "3  a message that is not known any more"


def test_without_the_magics_a_value_is_shown_as_its_fields(stepped: Shell) -> None:
    stepped.run("change = session.changes('n', 'a')[-1]")
    stepped.run("%unload_ext streambench")
    assert displayed(stepped, "change").startswith("Change(position=3, ")
