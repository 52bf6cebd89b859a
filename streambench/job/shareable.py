"""Resources that containers in other processes cannot reach: streams and checkpoints in the memory of this
one."""

from __future__ import annotations

from streambench.checkpoint.api import CheckpointManager
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.config import Config
from streambench.system.systems import Systems


def check_shareable(config: Config, systems: Systems, checkpoints: CheckpointManager, who: str) -> None:
    """Raise ConfigError where a job whose containers are processes of their own has something in memory.
    ``who``: what to call them."""
    for system in systems.names():
        if systems.factory(system).in_process:
            raise config.error(
                f"systems.{system}.samza.factory",
                f"a memory system exists once in each process, and {who} run in others: use log (or kafka) "
                "here",
            )
    if isinstance(checkpoints, MemoryCheckpointManager):
        raise config.error(
            "task.checkpoint.system",
            f"checkpoints in memory are lost with their process, and {who} run in others: set it to file, "
            "or to a log system",
        )
