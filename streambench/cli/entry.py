"""The start of the command line: nothing heavy is imported yet, so that an early Ctrl-C ends it silently."""

from __future__ import annotations

import os

from streambench.cli.interrupts import INTERRUPTED, begin_imports


def main() -> None:
    """Run the command line with the arguments of the process, and exit.

    Ctrl-C while modules are imported, those of the subcommand included, ends the process at once. There is
    nothing yet to clean up. A KeyboardInterrupt out of an import would be shown with our frames, or be taken
    for a missing module."""
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
