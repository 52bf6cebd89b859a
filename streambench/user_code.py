"""User code: whose a file is that stands in a traceback."""

from __future__ import annotations

import sysconfig
from pathlib import Path

OURS = str(Path(__file__).parent)
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_users(file: str) -> bool:
    """True for a file of the user's own code: neither ours nor Python's nor a package's."""
    return not file.startswith((OURS, "<frozen", *INSTALLED))
