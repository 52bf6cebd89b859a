"""Local state: key-value stores, each task's own part of them, and their changelogs."""

from streambench.store.engine import StoreEngine, StoreEngineFactory

__all__ = ["StoreEngine", "StoreEngineFactory"]
