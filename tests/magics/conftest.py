"""An IPython shell in this process, in three steps: without the magics, with them and nothing else, with a
task and streams."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from traitlets.config import Config as Settings

from streambench.checkpoint import memory as memory_checkpoints
from streambench.system import compacted_memory
from streambench.system import memory as memory_system
from streambench.system.compacted_memory import CompactedPartition

CONFIG = """%%streamconfig inputs
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
task.inputs=mem.clicks
"""

TASK = """%%streamtask Count
import streambench as sb

class Count(sb.StreamTask):
    def init(self, context):
        self.seen = []

    def process(self, envelope, collector, coordinator):
        self.seen.append(envelope.message)
        if envelope.message == "bad":
            raise ValueError("cannot count this")
"""


class Shell:
    """A shell, and what a notebook would show of it."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns

    @property
    def magics(self) -> Any:
        return self.shell.magics_manager.registry["StreamMagics"]

    def run(self, cell: str) -> str:
        """Run a cell; what it printed, and the text of its value. An error in it is raised."""
        self.value, text = None, ""
        captured, result = self._run(cell)
        self.displayed = [output.data for output in captured.outputs]
        self.error = result.error_before_exec or result.error_in_exec
        if self.error is not None:
            raise self.error
        self.value = result.result
        text = captured.stdout.removesuffix("\n")
        if self.value is not None:
            text = text[: text.index("Out[")] + repr(self.value) if "Out[" in text else text
        return text

    def fails(self, cell: str) -> str:
        """Run a cell that must fail; what the notebook shows of its error, without colours."""
        captured, result = self._run(cell)
        self.error = result.error_before_exec or result.error_in_exec
        assert self.error is not None, captured.stdout
        return captured.stdout + captured.stderr

    def _run(self, cell: str) -> tuple[CapturedIO, ExecutionResult]:
        """Run a cell. CPython 3.11 can fail to parse it where another thread parses, or a finaliser: nothing
        of the cell has run then, and it is run again (see ``streambench.syntax``)."""
        while True:
            with capture_output() as captured:
                result = self.shell.run_cell(cell, store_history=True)
            if "AST constructor recursion depth" not in str(result.error_in_exec):
                return captured, result

    def completions(self, line: str) -> list[str]:
        with provisionalcompleter():
            return sorted(each.text for each in self.shell.Completer.completions(line, len(line)))


@pytest.fixture
def ip_no_magics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell as IPython starts it, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv(
        "VIRTUAL_ENV", raising=False
    )  # IPython would add the packages of another environment that is active
    # A task is called busy after a second: here only where a test is about that.
    monkeypatch.setattr("streambench_magics.jobs.jobs._PATIENCE_S", 60.0)
    monkeypatch.setattr(memory_system, "_systems", {})
    monkeypatch.setattr(memory_checkpoints, "_managers", {})
    monkeypatch.setattr(compacted_memory, "_streams", memory_system.MemoryStreams(CompactedPartition))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for hook in ("displayhook", "excepthook"):
        monkeypatch.setattr(sys, hook, getattr(sys, hook))
    settings = Settings()
    settings.HistoryManager.enabled = False
    settings.InteractiveShell.colors = "nocolor"
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=settings)
    shell.Completer.use_jedi = False
    yield Shell(shell)
    if "StreamMagics" in shell.magics_manager.registry:
        shell.run_line_magic("unload_ext", "streambench")
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()


@pytest.fixture
def ip_empty(ip_no_magics: Shell) -> Shell:
    """A shell with the magics."""
    ip_no_magics.run("%load_ext streambench")
    return ip_no_magics


@pytest.fixture
def ip(ip_empty: Shell) -> Shell:
    """A shell with the task ``Count``, the configuration ``inputs``, and ``mem.clicks``: two partitions with
    two messages each."""
    ip_empty.run(CONFIG)
    ip_empty.run(TASK)
    ip_empty.run("%stream streams create mem.clicks --partitions 2")
    ip_empty.run('%stream send mem.clicks --from ["a", "b", "c", "d"]')
    return ip_empty
