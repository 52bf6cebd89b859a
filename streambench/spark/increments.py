"""Increments of a deployment: where a round ends that may read only so many messages in each container."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from streambench.config import Config
from streambench.container.observe.snapshot import lag_between
from streambench.model import SystemStreamPartition
from streambench.planning.model import JobModel
from streambench.spark.source.admission import offset_behind, shares
from streambench.system.systems import Systems

MAX_MESSAGES = "job.container.max.messages"

# A stream of these has no part: it ends, or others wait for its end.
_WHOLE = ("bounded", "bootstrap")


def ends_of_increment(
    config: Config,
    systems: Systems,
    model: JobModel,
    starts: Mapping[int, Mapping[SystemStreamPartition, str]],
    ends: Mapping[SystemStreamPartition, str],
    at_most: int,
) -> dict[SystemStreamPartition, str]:
    """The ends of a round that reads at most so many messages in each container, divided by the lags of its
    partitions. Inputs that bootstrap, that are bounded, or that several tasks read are read whole.
    Where offsets have gaps, there are fewer messages. Raises ConfigError."""
    readers = Counter(ssp for task in model.tasks for ssp in task.partitions)
    found = dict(ends)
    for of_container in starts.values():
        lags = {
            ssp: _lag(config, ssp, start, ends[ssp])
            for ssp, start in of_container.items()
            if readers[ssp] == 1 and not _is_whole(config, ssp)
        }
        for ssp, share in shares(lags, at_most).items():
            if share < lags[ssp]:
                found[ssp] = offset_behind(config, systems, ssp, of_container[ssp], share)
    return found


def _lag(config: Config, ssp: SystemStreamPartition, start: str, end: str) -> int:
    lag = lag_between(start, end)
    if lag is None:
        raise config.error(
            MAX_MESSAGES, f"the offsets of {ssp} are no numbers, and cannot be divided: leave it out"
        )
    return max(0, lag)


def _is_whole(config: Config, ssp: SystemStreamPartition) -> bool:
    return any(
        config.boolean(f"systems.{ssp.system}.streams.{ssp.stream}.samza.{setting}") for setting in _WHOLE
    )
