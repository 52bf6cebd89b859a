"""StallDetector: tests of many steps have no time limit as a whole, which a busy machine would exceed, but
one for each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_settings = pytest.StashKey[Any]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember the limit of a test, for ``progress``."""
    item.stash[_settings] = settings


@pytest.fixture
def progress(request: pytest.FixtureRequest) -> Callable[[], None]:
    """To be called whenever the test has got further: its time limit (``timeout``) runs from there."""
    item = request.node

    def further() -> None:
        settings = item.stash.get(_settings, None)
        if settings is not None:
            item.ihook.pytest_timeout_cancel_timer(item=item)
            item.ihook.pytest_timeout_set_timer(item=item, settings=settings)

    return further
