"""A job that was deployed from the notebook: where it ran, and how far it is committed since."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct

from streambench.config import Config
from streambench.container.observe.snapshot import lag_between
from streambench.counts import counted, sum_known
from streambench.errors import StreambenchError
from streambench.job.rewind import next_offset
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.systems import Systems

if TYPE_CHECKING:
    from streambench.spark.result import DeployProgress


class Deployed(Struct):
    """A deployment of a job. ``messages``: those of its display, also where it failed or was interrupted.
    ``rounds``: those of each round."""

    master: str
    messages: int = 0
    rounds: dict[int, int] = {}

    def note(self, progress: DeployProgress) -> None:
        """Note the progress of a round."""
        self.rounds[progress.round] = progress.messages
        self.messages = sum(self.rounds.values())

    def __str__(self) -> str:
        return f"was deployed on {self.master}, with {counted(self.messages, 'message')} there"


def committed_lag(config: Config, name: str) -> int | None:
    """The number of messages behind the last commit of a job, wherever it ran; None where it has no commit,
    or that is not known."""
    try:
        with closing(checkpoint_manager(config, name)) as manager, closing(Systems(config)) as systems:
            last = manager.read_last().values()
            lags: dict[SystemStreamPartition, int | None] = {}
            metadata = systems.metadata({ssp.system_stream for each in last for ssp in each.partitions})
            for checkpoint in last:
                for ssp in checkpoint.partitions:
                    here = metadata[ssp.system_stream].get(ssp.partition)
                    at = next_offset(systems, checkpoint, ssp)
                    lag = None if at is None or here is None else lag_between(at, here.upcoming)
                    # Of the tasks that share a partition, the one that is furthest behind.
                    known = lags.get(ssp, 0)
                    lags[ssp] = None if lag is None or known is None else max(known, lag)
    except StreambenchError:
        return None
    return sum_known(lags.values()) if lags else None


def committed_begins(config: Config, name: str, stream: SystemStream) -> dict[SystemStreamPartition, str]:
    """The offsets at which the next start of a job goes on in a stream, as its last commit has them. Empty
    where no checkpoint is used for it, or that is not known."""
    reset = f"systems.{stream.system}.streams.{stream.stream}.samza.reset.offset"
    if config.required(reset).lower() == "true":
        return {}
    begins: dict[SystemStreamPartition, str] = {}
    try:
        manager = checkpoint_manager(config, name, is_quiet=True)
        with closing(manager), closing(Systems(config)) as systems:
            for checkpoint in manager.read_last().values():
                for ssp in checkpoint.partitions:
                    at = next_offset(systems, checkpoint, ssp) if ssp.system_stream == stream else None
                    if at is not None:
                        begins[ssp] = at
    except StreambenchError:
        return {}
    return dict(sorted(begins.items()))
