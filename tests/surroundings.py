"""What the machine that runs the tests has to offer, and what follows when it lacks something.

A part that is missing is told together with the command that brings it. On a developer's machine the test is then skipped;
under ``CI=true`` it fails, because a green run there says that everything was seen.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

CI = os.environ.get("CI") == "true"

#: ``SOAK=1`` (``make soak``) runs the same tests with larger figures: more examples, more messages, more time.
SOAK = os.environ.get("SOAK") == "1"


def missing(what: str, *, remedy: str) -> NoReturn:
    """Ends the test that needs ``what``; ``remedy`` is the command that brings it."""
    reason = f"{what} is missing; to get it: {remedy}"
    if CI:
        pytest.fail(f"{reason} (CI=true: nothing may be missing)", pytrace=False)
    pytest.skip(reason)
