"""Stepping, running and looking at a container; opening recordings of one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streambench.debug.comparison import Comparison, compare
    from streambench.debug.crash_campaign import crash_everywhere
    from streambench.debug.outcomes import Outcome, outcome
    from streambench.debug.replay import open
    from streambench.debug.session import Session
    from streambench.debug.shrinking import shrink
    from streambench.recording import Recording

_HOMES = {
    "Comparison": "debug.comparison",
    "Outcome": "debug.outcomes",
    "Recording": "recording",
    "Session": "debug.session",
    "compare": "debug.comparison",
    "crash_everywhere": "debug.crash_campaign",
    "open": "debug.replay",
    "outcome": "debug.outcomes",
    "shrink": "debug.shrinking",
}

__all__ = [
    "Comparison", "Outcome", "Recording", "Session", "compare", "crash_everywhere", "open", "outcome",
    "shrink",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'streambench.debug' has no attribute '{name}'")
    # Late: they bring the container, for which code that only counts messages does not wait.
    return getattr(import_module(f"streambench.{home}"), name)
