"""The container: the event loop and what it drives."""

from streambench.container.container import Container

__all__ = ["Container"]
