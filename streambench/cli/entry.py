"""The start of the command line: nothing heavy is imported yet, so that an early Ctrl-C ends it silently."""

from __future__ import annotations

import os
import sys

from streambench.cli.interrupts import INTERRUPTED, begin_imports


def main() -> None:
    """Run the command line with the arguments of the process, and exit.

    Ctrl-C while modules are imported, those of the subcommand included, ends the process at once. There is
    nothing yet to clean up. A KeyboardInterrupt out of an import would be shown with our frames, or be taken
    for a missing module."""
    _open_missing_streams()
    begin_imports()
    from streambench.cli.app import main as run
    from streambench.cli.threads_left import name_threads_left

    try:
        run()
    except SystemExit as end:
        name_threads_left(end.code)
        raise
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def _open_missing_streams() -> None:
    """Give a process that was started without standard streams the null device for each of them.

    The next file to be opened would get its number, and what is printed would go into that."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, and child processes have it, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
