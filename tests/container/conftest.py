"""What holds for every test of the container."""

from __future__ import annotations

import pytest

from tests.container.noted_calls import happened


@pytest.fixture(autouse=True)
def nothing_happened_yet() -> None:
    happened.clear()
