from __future__ import annotations

from pathlib import Path

import pytest

from tests.job.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A job in a directory of its own."""
    return Project(tmp_path)
