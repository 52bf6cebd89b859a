"""The contract of a serde: objects to bytes and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Serde(ABC):
    """Turns objects into bytes and back. None stays None and never reaches a serde.

    Both methods may raise anything for what they cannot convert; the container reports it with the place.
    """

    @abstractmethod
    def to_bytes(self, value: Any) -> bytes:
        """The bytes of an object."""

    @abstractmethod
    def from_bytes(self, data: bytes) -> Any:
        """The object that the bytes stand for."""
