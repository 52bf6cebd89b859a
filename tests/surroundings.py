"""What the machine that runs the tests has to offer, and what follows when it lacks something.

A part that is missing is told together with the command that brings it. On a developer's machine the test is
then skipped; under ``CI=true`` it fails, because a green run there says that everything was seen.
"""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

CI = os.environ.get("CI") == "true"

#: ``SOAK=1`` (``make soak``) runs the same tests with larger figures: more examples, more messages, more
#: time.
SOAK = os.environ.get("SOAK") == "1"

_T = TypeVar("_T")

#: In the environment of ``make check``, and so of the processes that its tests start: "1".
QUICK = "STREAMBENCH_TEST_QUICK"


def figure(usual: _T, *, soak: _T, check: _T) -> _T:
    """Return how many times a test tries something: usually, under SOAK=1, and in ``make check``."""
    return soak if SOAK else check if os.environ.get(QUICK) == "1" else usual


def only_soak(reason: str) -> pytest.MarkDecorator:
    """Leave a test to SOAK=1. ``reason``: what else shows the same in ``make test``, for less CPU."""
    return pytest.mark.skipif(not SOAK, reason=f"{reason}: SOAK=1")


_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED = 8 << 30


def keep_temporary_files_in_memory() -> None:
    """Have ``tmp_path`` lie in memory where there is enough of it: a disk answers thousands of small fsyncs
    late, and what a kill leaves behind is the same. Under SOAK=1 everything is on the disk."""
    if not SOAK and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def missing(what: str, *, remedy: str) -> NoReturn:
    """Ends the test that needs ``what``; ``remedy`` is the command that brings it."""
    reason = f"{what} is missing; to get it: {remedy}"
    if CI:
        pytest.fail(f"{reason} (CI=true: nothing may be missing)", pytrace=False)
    pytest.skip(reason)


def demand_packages() -> None:
    """Have ``pytest.importorskip`` fail under ``CI=true`` where a package is missing."""
    if CI:
        pytest.importorskip = lambda name, *given, **named: import_module(name)
