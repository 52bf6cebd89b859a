"""streambench: an interactive stream workbench. Write a stream task, step it message by message, deploy it on
Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

from streambench.config import Config  # isort: skip
from streambench.batch import MessageBatch  # isort: skip
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.task import (
    KeyValueStore,
    MessageCollector,
    RequestScope,
    StreamTask,
    TaskContext,
    TaskCoordinator,
    TaskLifecycleListener,
)

if TYPE_CHECKING:
    from streambench.checkpoint.api import Checkpoint
    from streambench.chooser.api import MessageChooser, MessageChooserFactory
    from streambench.container.container import Container
    from streambench.job.run import run
    from streambench.serde.api import Serde
    from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer
    from streambench.system.pull import PullSystemFactory, StreamConsumer, StreamMessage, StreamProducer

__version__ = "0.1.0"

# What is not needed to write a task is imported when it is first asked for: `import streambench` stays quick.
_LATER = {
    "Checkpoint": "streambench.checkpoint.api",
    "Container": "streambench.container.container",
    "MessageChooser": "streambench.chooser.api",
    "MessageChooserFactory": "streambench.chooser.api",
    "PullSystemFactory": "streambench.system.pull",
    "Serde": "streambench.serde.api",
    "StreamConsumer": "streambench.system.pull",
    "StreamMessage": "streambench.system.pull",
    "StreamProducer": "streambench.system.pull",
    "SystemAdmin": "streambench.system.api",
    "SystemConsumer": "streambench.system.api",
    "SystemFactory": "streambench.system.api",
    "SystemProducer": "streambench.system.api",
    "run": "streambench.job.run",
}

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
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name == "spark":
        return importlib.import_module("streambench.spark")
    raise AttributeError(f"module 'streambench' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "spark"})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext streambench``: registers the magics."""
    importlib.import_module("streambench_magics").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext streambench``: stops what runs and takes the magics away."""
    importlib.import_module("streambench_magics").unload_ipython_extension(ipython)
