"""The recorded source of tasks: of files as it is, of cells without their magics."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambench import debug
from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.debug.replay.recorded_source import source_of
from streambench.recording.header import TaskCode
from tests.container.test_failure_capture import put
from tests.debug.replay.test_generated_test import config_in

LAYOUTS = '''
class Task:
    def process(self, envelope, collector, coordinator):
        text = (
            "%s=%s"
            % (envelope.message["key"], 1)
        )
        is_other = (
            text
            != "b=1"
        )
        rows = """
%d rows
!of them
"""
        collector.send("log.out", [text, is_other, rows])
'''


@pytest.mark.parametrize("file", ["", "task.py"])
def test_lines_inside_of_a_statement_are_no_magics(file: str) -> None:
    code = TaskCode(name="Task", reference="task:Task", file=file, source=LAYOUTS)
    assert source_of(code) == LAYOUTS.strip()


@pytest.mark.parametrize(
    ("cell", "source"),
    [
        ("%%stream run job --now\nx = 1\n", "x = 1"),
        ("%matplotlib inline\nx = 1\n!ls it's\ny = 2", "x = 1\ny = 2"),
        ("files = !ls\na, b = %sql it's\nx = 1", "x = 1"),
        ("%stream send \\\n  log.in\nx = 1", "x = 1"),
        ("x?\n?y\nz = 1  # why?", "z = 1  # why?"),
        ("def f():\n    !ls\n# 100 %\nx = 1 \\\n  % 2", "def f():\n    pass\n# 100 %\nx = 1 \\\n  % 2"),
        ("    %time\n    x = [\n        1\n        % 2]\n", "pass\nx = [\n    1\n    % 2]"),
        ("'a=%b' % x\nprint('k=%s' % 1)\n", "'a=%b' % x\nprint('k=%s' % 1)"),
    ],
)
def test_magics_are_left_out_where_a_statement_begins(cell: str, source: str) -> None:
    code = TaskCode(name="Task", reference="__main__:Task", source=cell)
    assert source_of(code) == source


DATACLASS = """
from dataclasses import dataclass

@dataclass
class Row:
    key: str

class Task:
    def process(self, envelope, collector, coordinator):
        collector.send("log.out", Row(**envelope.message).key)
"""


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (LAYOUTS, ["a=1", True, "\n%d rows\n!of them\n"]),
        (DATACLASS, "a"),
        (f"from __future__ import annotations\n{DATACLASS}", "a"),
    ],
    ids=["layouts", "dataclass", "annotations as text"],
)
def test_a_recorded_file_runs_in_a_replay_as_it_did(tmp_path: Path, text: str, output: object) -> None:
    (tmp_path / "layouts.py").write_text(text)
    config = config_in(tmp_path, "layouts.py:Task")
    put(config, "log.in", {"key": "a"}, {"key": "b"})
    session = Session(Container.from_config(config))
    session.record(tmp_path / "run.recording")
    session.start()
    session.step(2)
    live = [each.message for each in session.outputs()]
    session.stop()
    replay = debug.open(tmp_path / "run.recording", recorded_source=True)
    assert [each.message for each in replay.outputs()] == live
    assert live[0] == output
    replay.stop()
