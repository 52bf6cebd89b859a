"""Streams and noted messages are forgotten before each test."""

from __future__ import annotations

import pytest

from tests.system import listed
from tests.system.pull.noting import seen


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    seen.clear()
    listed.streams.clear()
