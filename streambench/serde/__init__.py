"""Serdes: bytes to objects and back, by name."""

from streambench.serde.api import Serde
from streambench.serde.registry import SerdeFactory, serde_named
from streambench.serde.streams import StreamSerdes

__all__ = ["Serde", "SerdeFactory", "StreamSerdes", "serde_named"]
