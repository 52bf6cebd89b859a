"""Checkpoints: the offsets that a job goes on from."""

from streambench.checkpoint.api import Checkpoint, CheckpointManager, Generation

__all__ = ["Checkpoint", "CheckpointManager", "Generation"]
