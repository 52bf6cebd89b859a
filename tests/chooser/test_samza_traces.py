"""The choosers give the answers that Apache Samza 1.8.0 gave, wherever the two mean to do the same
(tests/data/samza-traces/README.md)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streambench.chooser import (
    BatchingChooser,
    BootstrappingChooser,
    MessageChooser,
    PartitionMetadata,
    RoundRobinChooser,
    TieredPriorityChooser,
)
from streambench.chooser.wiring import wire_chooser
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition

TRACES = Path(__file__).resolve().parent.parent / "data" / "samza-traces"

Trace = dict[str, Any]


def _tiers(trace: Trace) -> MessageChooser:
    priorities = {SystemStream.parse(stream): number for stream, number in trace["priorities"].items()}
    choosers = {number: RoundRobinChooser() for number in priorities.values()}
    return TieredPriorityChooser(
        priorities, choosers, RoundRobinChooser() if trace.get("default", True) else None
    )


def _metadata(trace: Trace) -> dict[SystemStream, dict[int, PartitionMetadata]]:
    return {
        SystemStream.parse(stream): {
            int(number): PartitionMetadata(**offsets) for number, offsets in partitions.items()
        }
        for stream, partitions in trace["metadata"].items()
    }


def _stack(trace: Trace) -> MessageChooser:
    config = Config(trace["config"])
    inputs = [SystemStream.parse(stream) for stream in config.names("task.inputs")]
    return wire_chooser(config, inputs, _metadata(trace), MetricsRegistry(), lambda a, b: int(a) - int(b))


BUILD: dict[str, Callable[[Trace], MessageChooser]] = {
    "roundrobin": lambda trace: RoundRobinChooser(),
    "tiered": _tiers,
    "batching": lambda trace: BatchingChooser(RoundRobinChooser(), trace["batch_size"]),
    "batching_size1": lambda trace: BatchingChooser(RoundRobinChooser(), trace["batch_size"]),
    "batching_tiered": lambda trace: BatchingChooser(_tiers(trace), trace["batch_size"]),
    "gate_roundrobin": lambda trace: BootstrappingChooser(RoundRobinChooser(), _metadata(trace)),
    "gate_tiered": lambda trace: BootstrappingChooser(_tiers(trace), _metadata(trace)),
    "stack": _stack,
}


HOW_MANY = {
    "roundrobin": (100, 100),
    "tiered": (100, 100),
    "batching": (120, 100),
    "batching_size1": (20, 7),
    "batching_tiered": (80, 67),
    "gate_roundrobin": (134, 67),
    "gate_tiered": (167, 100),
    "stack": (200, 117),
}
"""Per kind, how many traces there are and of how many all answers must be equal: none is passed over unseen.
"""


def _read(kind: str) -> list[Trace]:
    with gzip.open(TRACES / f"{kind}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _operations_that_agree(trace: Trace) -> tuple[int, str]:
    """How many leading operations give Samza's answers, and what is wrong with the next one."""
    chooser = BUILD[trace["kind"]](trace)
    for at, (name, *arguments) in enumerate(trace["ops"]):
        if name == "register":
            chooser.register(SystemStreamPartition.parse(arguments[0]), arguments[1])
        elif name == "update":
            chooser.update(
                IncomingMessageEnvelope(SystemStreamPartition.parse(arguments[0]), arguments[1], None, None)
            )
        elif name == "choose":
            envelope = chooser.choose()
            chosen = None if envelope is None else f"{envelope.ssp}@{envelope.offset}"
            if chosen != arguments[0]:
                return at, f"operation {at}: Samza chose {arguments[0]}, we chose {chosen}"
        elif name == "start":
            chooser.start()
        else:
            chooser.stop()
    return len(trace["ops"]), ""


@pytest.mark.parametrize("kind", BUILD)
def test_we_choose_what_samza_chose(kind: str) -> None:
    traces = _read(kind)
    wrong = []
    for trace in traces:
        agreed, difference = _operations_that_agree(trace)
        expected = len(trace["ops"]) if trace["equal"] else trace["agree_ops"]
        if agreed < expected:
            wrong.append(f"{trace['id']}: {difference}; {expected} operations must agree")
    assert not wrong, "\n".join(wrong)
    assert (len(traces), sum(trace["equal"] for trace in traces)) == HOW_MANY[kind]


@pytest.mark.parametrize("kind", ["gate_roundrobin", "gate_tiered"])
def test_the_same_partitions_hold_the_gate_as_in_samza(kind: str) -> None:
    compared = 0
    for trace in _read(kind):
        if not trace["equal"]:
            continue
        chooser = BUILD[kind](trace)
        assert isinstance(chooser, BootstrappingChooser)
        for at, (name, *arguments) in enumerate(trace["ops"]):
            if name == "register":
                chooser.register(SystemStreamPartition.parse(arguments[0]), arguments[1])
            elif name == "update":
                chooser.update(
                    IncomingMessageEnvelope(
                        SystemStreamPartition.parse(arguments[0]), arguments[1], None, None
                    )
                )
            elif name == "choose":
                chooser.choose()
            elif name == "start":
                chooser.start()
            lagging = trace["lagging"].get("start" if name == "start" else str(at))
            if lagging is not None:
                compared += 1
                assert {str(ssp) for ssp in chooser.lagging} == set(lagging), f"{trace['id']}, operation {at}"
    assert compared > 50
