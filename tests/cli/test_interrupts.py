"""Ctrl-C of the command line at a moment at which Python drops it."""

import signal
import subprocess
import sys
import textwrap

BEGIN = """
import signal, threading
from streambench.cli.interrupts import begin_imports, end_imports

begin_imports()
end_imports()
"""


def ended(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(script)], capture_output=True, text=True, check=False
    )


def test_ctrl_c_within_a_finalizer_ends_the_command_all_the_same() -> None:
    process = ended("""
        class Finalized:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        Finalized()
        print("went on", flush=True)
        threading.Event().wait(60)
        print("was not interrupted")
    """)
    assert (process.returncode, process.stdout) == (-signal.SIGINT, "went on\n")
    assert "Exception ignored" not in process.stderr


def test_another_error_of_a_finalizer_is_shown_as_usual() -> None:
    process = ended("""
        class Finalized:
            def __del__(self):
                raise ValueError("not to be missed")

        Finalized()
    """)
    assert process.returncode == 0
    assert "Exception ignored" in process.stderr and "ValueError: not to be missed" in process.stderr
