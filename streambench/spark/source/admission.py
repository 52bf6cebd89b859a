"""Admission control: the offsets up to which one step of a streaming read goes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems, abilities_of

_K = TypeVar("_K", bound=Hashable)


def shares(lags: Mapping[_K, int], at_most: int) -> dict[_K, int]:
    """Divide a number of messages among partitions by their lags. Each with a lag gets at least one."""
    found = {each: 0 for each in lags}
    for each in sorted((each for each in lags if lags[each]), key=lambda each: -lags[each])[:at_most]:
        found[each] = 1
    left, wanted = at_most - sum(found.values()), {each: lag - found[each] for each, lag in lags.items()}
    total = sum(wanted.values())
    if total <= left:
        return dict(lags)
    for each, lag in wanted.items():
        found[each] += left * lag // total
    for each in sorted(lags, key=lambda each: -lags[each])[: at_most - sum(found.values())]:
        found[each] += found[each] < lags[each]
    return found


def limited(
    config: Config,
    systems: Systems,
    stream: SystemStream,
    begin: Mapping[str, str],
    ends: Mapping[str, str],
    at_most: int,
) -> dict[str, str]:
    """The ends of a step of at most so many messages. A compacted partition, whose offsets have gaps, gives
    fewer."""
    lags = {each: max(0, int(end) - int(begin[each])) for each, end in ends.items()}
    given = shares(lags, at_most)
    return {
        each: offset_behind(
            config,
            systems,
            stream.partition(int(each)),
            begin[each],
            given[each],
        )
        for each in ends
    }


def offset_behind(
    config: Config, systems: Systems, ssp: SystemStreamPartition, start: str, count: int
) -> str:
    """The offset behind so many messages from an offset on: only reading them says it, where offsets are not
    consecutive."""
    if count == 0:
        return start
    if abilities_of(config, ssp.system).consecutive_offsets:
        return str(int(start) + count)
    consumer = systems.consumer(ssp.system, MetricsRegistry())
    found = read_to_head(consumer, {ssp: start}, at_most=count)[ssp]
    return systems.admin(ssp.system).after(found[-1].offset) if found else start
