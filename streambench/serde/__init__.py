"""Serdes: bytes to objects and back, by name."""

from streambench.serde.api import Serde

__all__ = ["Serde"]
