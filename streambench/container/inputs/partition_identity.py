"""Identities of partitions: they show that a stream was created again, or a file replaced."""

from __future__ import annotations

from collections.abc import Mapping

from streambench.checkpoint.api import Checkpoint
from streambench.config import Config
from streambench.model import SystemStreamPartition
from streambench.system.systems import Systems


class PartitionIdentities:
    """The identities of partitions, as their systems give them. Read after their ``metadata``.

    Where it does not grow with what was processed, the first answer stays: offsets are of the partition that
    was there then."""

    def __init__(self, systems: Systems) -> None:
        self._systems = systems
        self._fixed: dict[SystemStreamPartition, str] = {}

    def at(
        self, offsets: Mapping[SystemStreamPartition, str], starts: Mapping[SystemStreamPartition, str]
    ) -> dict[SystemStreamPartition, str]:
        """For a checkpoint with these offsets and starts."""
        found = {}
        for ssp in (*starts, *offsets):
            identity = self._fixed.get(ssp) or self._find(ssp, offsets.get(ssp), starts)
            if identity is not None:
                found[ssp] = identity
        return found

    def _find(
        self, ssp: SystemStreamPartition, processed: str | None, starts: Mapping[SystemStreamPartition, str]
    ) -> str | None:
        admin = self._systems.admin(ssp.system)
        identity = admin.identity(ssp, starts[ssp] if processed is None else admin.after(processed))
        if identity is not None and not admin.identity_grows:
            self._fixed[ssp] = identity
        return identity

    def is_same(self, checkpoint: Checkpoint, ssp: SystemStreamPartition) -> bool:
        """True unless a partition is known to be another one than that of a checkpoint. Raises
        OffsetError."""
        known = checkpoint.identities.get(ssp)
        if known is None:
            return True
        places = (
            {ssp: found[ssp]} if ssp in found else {} for found in (checkpoint.offsets, checkpoint.starts)
        )
        return self.at(*places).get(ssp, known) == known


def replaced(config: Config, task: str, ssp: SystemStreamPartition, checkpoint: Checkpoint) -> str:
    """For a partition that is not the one of a task's checkpoint."""
    position = checkpoint.offsets.get(ssp, checkpoint.starts.get(ssp))
    return (
        f"{ssp} is not what it was when {task} made its checkpoint: it was deleted and made again since, or "
        "replaced, so that the offset in "
        f"the checkpoint, {position}, means nothing in it (to choose another: "
        f"{config.command(f'checkpoints --rewind {ssp}@OFFSET')})"
    )
