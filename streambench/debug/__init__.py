"""Stepping, running and looking at a container; opening recordings of one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streambench.debug.comparison.comparison import Comparison, compare
    from streambench.debug.control.session import Session
    from streambench.debug.replay.crash_campaign import crash_everywhere
    from streambench.debug.replay.outcomes import Outcome, outcome
    from streambench.debug.replay.replay import open
    from streambench.debug.replay.shrinking import shrink
    from streambench.recording import Recording

_HOMES = {
    "Comparison": "debug.comparison.comparison",
    "Outcome": "debug.replay.outcomes",
    "Recording": "recording",
    "Session": "debug.control.session",
    "compare": "debug.comparison.comparison",
    "crash_everywhere": "debug.replay.crash_campaign",
    "open": "debug.replay.replay",
    "outcome": "debug.replay.outcomes",
    "shrink": "debug.replay.shrinking",
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
