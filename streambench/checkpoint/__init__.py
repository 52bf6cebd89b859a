"""Where the offsets of a job are remembered."""

from streambench.checkpoint.api import Checkpoint, CheckpointManager, Generation

__all__ = ["Checkpoint", "CheckpointManager", "Generation"]
