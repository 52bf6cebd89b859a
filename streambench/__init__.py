"""streambench: an interactive stream workbench. Write a stream task, step it message by message, deploy it on
Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streambench.batch import MessageBatch
    from streambench.checkpoint.api import Checkpoint
    from streambench.chooser.api import MessageChooser, MessageChooserFactory
    from streambench.config import Config
    from streambench.container.container import Container
    from streambench.errors import (
        CheckpointError,
        ChooserError,
        ConfigError,
        ContainerStateError,
        CorruptDataError,
        FencedError,
        FileLimitError,
        LockLostError,
        MessageTooLargeError,
        MissingExtraError,
        OffsetError,
        ReplacedError,
        SerdeError,
        StoreError,
        StreambenchError,
        StreamExistsError,
        StreamSystemError,
        SupersededError,
        TaskError,
        UnknownStreamError,
        WrongThreadError,
    )
    from streambench.job.run import run
    from streambench.model import (
        IncomingMessageEnvelope,
        OutgoingMessageEnvelope,
        PartitionMetadata,
        SystemStream,
        SystemStreamPartition,
    )
    from streambench.serde.api import Serde
    from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer
    from streambench.system.pull import PullSystemFactory, StreamConsumer, StreamMessage, StreamProducer
    from streambench.task import (
        KeyValueStore,
        MessageCollector,
        RequestScope,
        StreamTask,
        TaskContext,
        TaskCoordinator,
        TaskLifecycleListener,
    )

__version__ = "0.1.0"

# Imported when first asked for: `import streambench` is quick, and the command line waits for Ctrl-C before
# it imports anything else.
_PLACES = {
    "Checkpoint": "streambench.checkpoint.api",
    "CheckpointError": "streambench.errors",
    "ChooserError": "streambench.errors",
    "Config": "streambench.config",
    "ConfigError": "streambench.errors",
    "Container": "streambench.container.container",
    "ContainerStateError": "streambench.errors",
    "CorruptDataError": "streambench.errors",
    "FencedError": "streambench.errors",
    "FileLimitError": "streambench.errors",
    "IncomingMessageEnvelope": "streambench.model",
    "KeyValueStore": "streambench.task",
    "LockLostError": "streambench.errors",
    "MessageBatch": "streambench.batch",
    "MessageChooser": "streambench.chooser.api",
    "MessageChooserFactory": "streambench.chooser.api",
    "MessageCollector": "streambench.task",
    "MessageTooLargeError": "streambench.errors",
    "MissingExtraError": "streambench.errors",
    "OffsetError": "streambench.errors",
    "OutgoingMessageEnvelope": "streambench.model",
    "PartitionMetadata": "streambench.model",
    "PullSystemFactory": "streambench.system.pull",
    "ReplacedError": "streambench.errors",
    "RequestScope": "streambench.task",
    "Serde": "streambench.serde.api",
    "SerdeError": "streambench.errors",
    "StoreError": "streambench.errors",
    "StreamConsumer": "streambench.system.pull",
    "StreamExistsError": "streambench.errors",
    "StreamMessage": "streambench.system.pull",
    "StreamProducer": "streambench.system.pull",
    "StreamSystemError": "streambench.errors",
    "StreamTask": "streambench.task",
    "StreambenchError": "streambench.errors",
    "SupersededError": "streambench.errors",
    "SystemAdmin": "streambench.system.api",
    "SystemConsumer": "streambench.system.api",
    "SystemFactory": "streambench.system.api",
    "SystemProducer": "streambench.system.api",
    "SystemStream": "streambench.model",
    "SystemStreamPartition": "streambench.model",
    "TaskContext": "streambench.task",
    "TaskCoordinator": "streambench.task",
    "TaskError": "streambench.errors",
    "TaskLifecycleListener": "streambench.task",
    "UnknownStreamError": "streambench.errors",
    "WrongThreadError": "streambench.errors",
    "run": "streambench.job.run",
}
_MODULES = {"batch", "chunk", "config", "errors", "metrics", "model", "serde", "spark", "task"}

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ChooserError",
    "Config",
    "ConfigError",
    "Container",
    "ContainerStateError",
    "CorruptDataError",
    "FencedError",
    "FileLimitError",
    "IncomingMessageEnvelope",
    "KeyValueStore",
    "LockLostError",
    "MessageBatch",
    "MessageChooser",
    "MessageChooserFactory",
    "MessageCollector",
    "MessageTooLargeError",
    "MissingExtraError",
    "OffsetError",
    "OutgoingMessageEnvelope",
    "PartitionMetadata",
    "PullSystemFactory",
    "ReplacedError",
    "RequestScope",
    "Serde",
    "SerdeError",
    "StoreError",
    "StreamConsumer",
    "StreamExistsError",
    "StreamMessage",
    "StreamProducer",
    "StreamSystemError",
    "StreamTask",
    "StreambenchError",
    "SupersededError",
    "SystemAdmin",
    "SystemConsumer",
    "SystemFactory",
    "SystemProducer",
    "SystemStream",
    "SystemStreamPartition",
    "TaskContext",
    "TaskCoordinator",
    "TaskError",
    "TaskLifecycleListener",
    "UnknownStreamError",
    "WrongThreadError",
    "load_ipython_extension",
    "run",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        # Kept, since a task may ask for a name with each message.
        found = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
        return found
    if name in _MODULES:
        return importlib.import_module(f"streambench.{name}")
    raise AttributeError(f"module 'streambench' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_MODULES})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext streambench``: registers the magics."""
    importlib.import_module("streambench_magics").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext streambench``: stops what runs and takes the magics away."""
    importlib.import_module("streambench_magics").unload_ipython_extension(ipython)
