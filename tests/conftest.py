"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.surroundings import SOAK, missing

CHECKOUT = Path(__file__).resolve().parent.parent

# No deadline: how long one example takes says nothing on a machine that does other things at the same time.
settings.register_profile("default", max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("default"), max_examples=5_000)
settings.load_profile("soak" if SOAK else "default")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real streams (flights, weather, a web log). It is kept beside the checkout, not in it."""
    folder = Path(os.environ.get("STREAMBENCH_SHARED_DATA") or CHECKOUT.parent / "shared" / "data")
    if not folder.is_dir():
        missing(f"the folder of real streams ({folder})", remedy="set STREAMBENCH_SHARED_DATA to where it is")
    return folder
