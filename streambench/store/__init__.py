"""Local state: key-value stores of tasks, made durable by their changelogs."""

from streambench.store.engine import StoreEngine, StoreEngineFactory
from streambench.store.task_store import TaskStore

__all__ = ["StoreEngine", "StoreEngineFactory", "TaskStore"]
