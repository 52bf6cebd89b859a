"""The parts of a log in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.log.parts import Parts


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path / "log", linger_ms=1 << 40)
    yield made
    made.admin.close()
