"""The start of the command line: nothing heavy is imported yet, so that an early Ctrl-C ends it silently."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Run the command line with the arguments of the process, and exit.

    Ctrl-C while modules are imported, those of the subcommand included, ends the process at once: there is
    nothing yet to clean up, and a KeyboardInterrupt out of an import would be shown with our frames, or be
    taken for a missing module."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    # Imports leave no garbage, and looking for some is a tenth of the time.
    gc.disable()
    from streambench.cli.app import main as run

    try:
        run()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)


def imported() -> None:
    """Note that the subcommand is imported: from now on Ctrl-C is an exception, as usual."""
    gc.enable()
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
