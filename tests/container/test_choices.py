"""Whole jobs process their messages in the order that the plain rules of choosing give
(``tests/chooser/reference.py``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from streambench.model import SystemStream, SystemStreamPartition
from streambench.testing import run_job
from tests.chooser.reference import ReferenceChooser, Rules
from tests.container.jobs import ignore

Lengths = Mapping[SystemStreamPartition, int]

STREAMS = [
    SystemStream("mem", "a"),
    SystemStream("mem", "b"),
    SystemStream("other", "a"),
    SystemStream("other", "c"),
]
LENGTHS = st.dictionaries(
    st.sampled_from(
        [
            SystemStreamPartition(stream.system, stream.stream, number)
            for stream in STREAMS
            for number in range(3)
        ]
    ),
    st.integers(0, 9),
    min_size=2,
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "task.consumer.batch.size": st.integers(1, 5),
        "systems.mem.samza.fetch.threshold": st.integers(1, 4),
        **{
            f"systems.{stream.system}.streams.{stream.stream}.samza.priority": st.integers(-1, 2)
            for stream in STREAMS
        },
        **{
            f"systems.{stream.system}.streams.{stream.stream}.samza.bootstrap": st.booleans()
            for stream in STREAMS
        },
    },
)
STARTS = st.dictionaries(st.sampled_from([str(number) for number in range(3)]), st.integers(0, 9))


def inputs_of(lengths: Lengths) -> dict[str, dict[int, list[int]]]:
    """Every stream has partitions up to the highest that is named; those that are not named are empty."""
    inputs: dict[str, dict[int, list[int]]] = {}
    for ssp, length in lengths.items():
        inputs.setdefault(str(ssp.system_stream), {})[ssp.partition] = list(range(length))
    return {
        stream: {number: partitions.get(number, []) for number in range(1 + max(partitions))}
        for stream, partitions in inputs.items()
    }


def rules_of(config: Mapping[str, Any], lengths: Lengths) -> Rules:
    streams = {ssp.system_stream for ssp in lengths}
    keys = {stream: f"systems.{stream.system}.streams.{stream.stream}.samza." for stream in streams}
    priorities = {stream: config.get(key + "priority", -1) for stream, key in keys.items()}
    return Rules(
        {stream: number for stream, number in priorities.items() if number >= 0},
        config.get("task.consumer.batch.size", 1),
        {
            ssp: length - 1 if length else None
            for ssp, length in lengths.items()
            if config.get(keys[ssp.system_stream] + "bootstrap")
        },
    )


def expected_order(
    config: Mapping[str, Any], lengths: Lengths, starts: Mapping[SystemStreamPartition, int]
) -> list[str]:
    """What the plain rules choose, where each partition's next message takes the place of the one that was
    chosen at once."""
    reference = ReferenceChooser(rules_of(config, lengths), dict(starts))
    inside = {ssp: starts[ssp] for ssp in sorted(lengths) if starts[ssp] < lengths[ssp]}
    reference.waiting.extend(inside)
    order = []
    while inside:
        ssp = reference.choose(inside)
        assert ssp is not None, "all of it is there: nobody waits for anything"
        offset = inside.pop(ssp)
        order.append(f"{ssp}@{offset}")
        if offset + 1 < lengths[ssp]:
            inside[ssp] = offset + 1
            reference.waiting.append(ssp)
    return order


@given(LENGTHS, SETTINGS, STARTS)
def test_a_job_processes_in_the_order_of_the_plain_rules(
    named: dict[SystemStreamPartition, int], config: dict[str, Any], begin: dict[str, int]
) -> None:
    inputs = inputs_of(named)
    lengths = {
        SystemStreamPartition.parse(f"{stream}.{number}"): len(messages)
        for stream, partitions in inputs.items()
        for number, messages in partitions.items()
    }
    starts = {ssp: min(begin.get(str(ssp.partition), 0), length) for ssp, length in lengths.items()}
    checkpoints = {
        f"Partition {number}": {
            str(ssp): str(starts[ssp] - 1) for ssp in lengths if ssp.partition == number and starts[ssp]
        }
        for number in {ssp.partition for ssp in lengths}
    }
    run = run_job(
        ignore,
        config,
        inputs,
        checkpoints={task: offsets for task, offsets in checkpoints.items() if offsets},
    )
    order = [f"{ssp}@{offset}" for ssp, offset, _, _ in run.processed]
    event(f"{len(order) // 10 * 10} messages or more")
    assert order == expected_order(config, lengths, starts)
    assert Counter(order) == Counter(
        f"{ssp}@{offset}" for ssp, length in lengths.items() for offset in range(starts[ssp], length)
    )
