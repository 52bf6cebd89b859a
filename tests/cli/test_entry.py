"""How the command line begins."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.job.project import Project

INTERRUPTED = """
import signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["streambench", "keys"]
from streambench.cli.entry import main
main()
"""


@pytest.mark.parametrize("module", ["streambench.cli.app", "typer", "streambench.cli.peek"])
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED.format(module=module)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_it_begins_where_nothing_heavy_is_imported_yet(project: Project) -> None:
    begun = "import sys, streambench.cli.entry; print([name for name in ('typer', 'rich', 'pyarrow') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True, check=True).stdout == "[]\n"
    done = subprocess.run(project.command("--version"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("streambench ")
