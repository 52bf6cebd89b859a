"""The commit journal of a job, with what appends the writes that a commit has left to it."""

from __future__ import annotations

from pathlib import Path

from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.checkpoint.pending_writes import PendingWrites
from streambench.config import Config
from streambench.system.beside import add_beside
from streambench.system.producers_applier import apply_left
from streambench.system.systems import Systems


def commit_journal(config: Config, directory: Path, job: str) -> JournalCheckpointManager:
    """Return the checkpoint manager of a job whose checkpoints are files in a directory."""

    def apply(effects: PendingWrites) -> None:
        systems = Systems(config)
        add_beside(config, job, systems)
        try:
            apply_left(effects, systems)
        finally:
            systems.close()

    return JournalCheckpointManager(
        directory, job, keep=config.integer("task.checkpoint.history"), apply=apply
    )
