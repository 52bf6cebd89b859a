"""Stepping, running and looking at a container."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streambench.debug.session import Session

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    if name == "Session":  # it brings the container: what only counts messages does not wait for that
        from streambench.debug.session import Session

        return Session
    raise AttributeError(f"module 'streambench.debug' has no attribute '{name}'")
