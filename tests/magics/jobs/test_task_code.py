"""Code of a file, taken by a live job."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.magics.conftest import Shell

TASK = """
class Doubled:
    def process(self, envelope, collector, coordinator):
        if envelope.message == 3:
            raise ValueError("not a three")
        collector.send("mem.doubled", envelope.message * {factor})
"""

CONFIG = """%%streamconfig doubled
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
task.inputs=mem.numbers
task.class={file}:Doubled
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "doubled_numbers.py"
    file.write_text(TASK.format(factor=3))
    yield file
    sys.modules.pop(file.stem, None)


@pytest.fixture
def job(ip_empty: Shell, file: Path) -> Shell:
    """A shell with a job whose task is in a file, after two of four messages."""
    ip_empty.run(CONFIG.format(file=file))
    ip_empty.run("%stream streams create mem.numbers --partitions 1")
    ip_empty.run("%stream send mem.numbers --from [1,2,3,4]")
    ip_empty.run("%stream create Doubled --config doubled")
    ip_empty.run("%stream step 2")
    return ip_empty


def sent(job: Shell) -> list[int]:
    job.run("%stream outputs")
    return [int(each["message"]) for each in job.value]


def test_a_swap_reads_the_file_again(job: Shell, file: Path) -> None:
    file.write_text(TASK.format(factor=2).replace("raise ValueError", "str"))

    assert "2 differ" in job.run("%stream swap --replay 2")

    job.run("%stream step 2")
    assert sent(job) == [3, 6, 6, 8]


def test_a_swap_in_the_past_reads_the_file_again(job: Shell, file: Path) -> None:
    job.run("%stream goto 0")
    file.write_text(TASK.format(factor=2))

    assert "a branch begins at 0" in job.run("%stream swap")

    assert "-> mem.doubled  2" in job.run("%stream step")


def test_a_failed_job_goes_on_with_the_mended_file(job: Shell, file: Path) -> None:
    assert "Mend doubled_numbers.py, and %stream step Doubled: it goes on" in job.fails("%stream step")
    file.write_text(TASK.format(factor=2).replace("raise ValueError", "str"))

    job.run("%stream step 2")

    assert sent(job) == [3, 6, 6, 8]


def test_a_broken_file_leaves_the_job_its_code(job: Shell, file: Path) -> None:
    file.write_text("class Doubled:\n    def process(self\n")

    assert "doubled_numbers.py, line 2" in job.fails("%stream swap")

    file.write_text(TASK.format(factor=2).replace("raise ValueError", "str"))
    job.run("%stream swap")
    job.run("%stream step")
    assert sent(job) == [3, 6, 6]


def test_a_swap_loads_an_imported_module_again(
    ip_empty: Shell, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    ip_empty.run(CONFIG.format(file="doubled_numbers").replace(":Doubled", ".Doubled"))
    ip_empty.run("%stream streams create mem.numbers --partitions 1")
    ip_empty.run("%stream send mem.numbers --from [1,2]")
    ip_empty.run("%stream create Doubled --config doubled")
    ip_empty.run("%stream step")
    file.write_text(TASK.format(factor=20))

    ip_empty.run("%stream swap")

    ip_empty.run("%stream step")
    assert sent(ip_empty) == [3, 40]
