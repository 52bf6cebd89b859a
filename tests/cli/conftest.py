from __future__ import annotations

from tests.job.conftest import project

__all__ = ["project"]
