"""The source of a task of several cells, in the one file of ``%stream export``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streambench_magics.errors import MagicError
from tests.magics.conftest import Shell

CONFIG = """%%streamconfig settings
systems.mem.samza.factory=memory
systems.mem.samza.msg.serde=json
systems.mem.samza.offset.default=oldest
task.inputs=mem.n
"""

BASE = """%%streamtask base
BONUS = 3
class Base:
    def amount(self, value):
        return value + BONUS
    def process(self, envelope, collector, coordinator):
        collector.send("mem.out", self.amount(envelope.message))
"""

SENDS = "    def process(self, envelope, collector, coordinator):\n        collector.send('mem.out', "


@pytest.fixture
def shell(ip_empty: Shell) -> Shell:
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.n")
    ip_empty.run("%stream send mem.n --from [1, 2, 3]")
    return ip_empty


def exported(shell: Shell, *cells: str) -> str:
    """Run these cells, export the task of the last one, and run its test; the file of the task."""
    for cell in cells:
        shell.run(cell)
    shell.run(f"%stream create job --task {cells[-1].split()[1]} --config settings")
    shell.run("%stream export made")
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "made"]
    tested = subprocess.run(test, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout
    return Path("made/task.py").read_text()


def test_a_task_that_inherits_its_callbacks_is_exported_with_its_own_cell(shell: Shell) -> None:
    text = exported(
        shell, BASE, "%%streamtask more\nclass More(Base):\n    def amount(self, value):\n        return 2\n"
    )
    assert text.index("class Base") < text.index("class More")


def test_a_name_of_another_cell_is_exported_with_the_value_used_there(shell: Shell) -> None:
    more = "%%streamtask more\nclass More(Base):\n    pass\n"
    assert "BONUS = 3" in exported(shell, BASE, "BONUS = 8", more)


def test_two_values_of_one_name_are_refused_in_one_file(shell: Shell) -> None:
    with pytest.raises(MagicError, match=r"two values of BONUS.*rename"):
        exported(shell, BASE, "%%streamtask more\nBONUS = 8\nclass More(Base):\n    late = BONUS\n")
    assert not Path("made").exists()


def test_two_values_of_one_name_in_other_cells_are_refused(shell: Shell) -> None:
    helper = "%%streamtask other\nBONUS = 8\ndef extra(value):\n    return value * BONUS\n" + (
        "def process(envelope, collector, coordinator): pass\n"
    )
    more = "%%streamtask more\nclass More(Base):\n    def amount(self, value):\n        return extra(value)\n"
    with pytest.raises(MagicError, match=r"two values of BONUS.*rename"):
        exported(shell, BASE, helper, more)


def test_classes_without_methods_of_their_own_are_exported(shell: Shell) -> None:
    before = (
        "from collections import namedtuple\nfrom dataclasses import dataclass\nfrom enum import Enum\n"
        "@dataclass\nclass Row:\n    value: int\n\nclass Kind(Enum):\n    LATE = 1\n"
        "Point = namedtuple('Point', 'x y')\n"
    )
    task = f"%%streamtask t\nclass T:\n{SENDS}[Row(1).value, Kind.LATE.value, Point(1, 2).x])\n"
    text = exported(shell, before, "class Row: 'of an older cell'", before, task)
    assert "@dataclass\nclass Row" in text


def test_a_decorated_function_of_another_cell_is_exported(shell: Shell) -> None:
    decorator = (
        "import functools\ndef twice(function):\n    @functools.wraps(function)\n    def inner(value):\n"
        "        return 2 * function(value)\n    return inner\n"
    )
    functions = (
        "@twice\ndef one(value):\n    return value\n@functools.lru_cache\ndef two(value):\n    return 2\n"
    )
    lambdas = "three = lambda value: value * 3\n"
    task = f"%%streamtask t\nclass T:\n{SENDS}one(1) + two(2) + three(3))\n"
    assert "@twice\ndef one" in exported(shell, decorator, functions, lambdas, task)


def test_a_task_whose_base_has_init_is_exported_with_its_own_cell(shell: Shell) -> None:
    base = "class Ready:\n    def init(self, context):\n        self.begun = True\n"
    row = "from dataclasses import dataclass\n@dataclass\nclass Row:\n    value: int\n"
    task = f"%%streamtask t\n{row}class T(Ready):\n{SENDS}Row(envelope.message).value)\n"
    text = exported(shell, base, task)
    assert text.count("class Row") == 1
    assert "class Ready" in text
