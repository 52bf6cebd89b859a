"""Where the command line begins: before anything heavy is imported, so that an early Ctrl-C ends it without a word."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Run the command line with the arguments of the process, and exit.

    Ctrl-C while modules are imported, which takes about a second, ends the process at once: there is nothing yet to clean up, and a
    KeyboardInterrupt out of an import would be shown with our frames, or be taken for a missing module."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    gc.disable()  # nothing of what modules make as they are imported is garbage: to look for some is a tenth of the time
    from streambench.cli.app import main as run

    gc.enable()
    try:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
