"""User code: whose a file is that stands in a traceback."""

from __future__ import annotations

import sysconfig
from pathlib import Path

#: Compiled modules name their files from the checkout on.
_OURS = (str(Path(__file__).parent), "streambench/")
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_ours(file: str) -> bool:
    """True for a file of streambench itself, compiled or not."""
    return file.startswith(_OURS)


def is_users(file: str) -> bool:
    """True for a file of the user's own code: neither ours nor Python's nor a package's."""
    return not file.startswith((*_OURS, "<frozen", *INSTALLED))
