"""Tasks and containers as Apache Samza makes them of the same partitions."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import PartitionMetadata, SystemStreamPartition
from streambench.planning.groupers import GroupByPartition, GroupBySystemStreamPartition, Grouper, deal
from streambench.planning.plan import broadcast_partitions
from tests.samza_traces import samza_traces

GROUPERS: dict[str, type[Grouper]] = {
    "GroupByPartition": GroupByPartition,
    "GroupBySystemStreamPartition": GroupBySystemStreamPartition,
}
TRACES = samza_traces("groupers")


def test_no_trace_is_passed_over() -> None:
    kinds = [trace["kind"] for trace in TRACES]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        [*GROUPERS, "GroupByContainerCount"], 67
    )


def ours(task: str) -> str:
    """A task's name as streambench writes it: Samza prints a partition as ``SystemStreamPartition [sys, a,
    8]``."""
    if not task.startswith("SystemStreamPartition ["):
        return task
    return ".".join(task.removeprefix("SystemStreamPartition [").removesuffix("]").split(", "))


@pytest.mark.parametrize(
    "trace", [trace for trace in TRACES if trace["kind"] in GROUPERS], ids=lambda trace: trace["id"]
)
def test_partitions_become_the_tasks_that_samza_makes(trace: dict[str, Any]) -> None:
    there = {SystemStreamPartition.parse(text) for text in trace["ssps"]}
    config = Config(trace["config"])
    broadcast = set(broadcast_partitions(config))
    if not broadcast <= there:
        metadata = {
            ssp.system_stream: dict.fromkeys([-1], PartitionMetadata(None, None, None)) for ssp in broadcast
        }
        with pytest.raises(ConfigError, match="has no partition"):
            broadcast_partitions(config, metadata)
        return
    groups = GROUPERS[trace["kind"]]().group(there - broadcast)
    made = {task: {*map(str, partitions), *map(str, broadcast)} for task, partitions in groups.items()}
    assert made == {ours(task): set(partitions) for task, partitions in trace["tasks"].items()}


@pytest.mark.parametrize(
    "trace",
    [trace for trace in TRACES if trace["kind"] == "GroupByContainerCount"],
    ids=lambda trace: trace["id"],
)
def test_tasks_are_dealt_to_containers_as_samza_deals_them(trace: dict[str, Any]) -> None:
    dealt = deal(trace["tasks"], trace["containers"])
    assert {str(number): set(tasks) for number, tasks in dealt.items()} == {
        number: set(tasks) for number, tasks in trace["result"].items()
    }
