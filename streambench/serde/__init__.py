"""Serdes: bytes to objects and back, by name."""

from streambench.serde.api import Serde
from streambench.serde.registry import SerdeFactory

__all__ = ["Serde", "SerdeFactory"]
