"""Stepping, running and looking at a container."""

from streambench.debug.session import Session

__all__ = ["Session"]
