"""No partition waits while another one has its turn again and again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.system.systems import Systems
from streambench.testing import run_job
from tests.container.jobs import ignore


def order(job: Any) -> list[str]:
    return [ssp for ssp, *_ in job.processed]


def test_one_flooded_partition_of_a_thousand_does_not_hold_up_the_others() -> None:
    job = run_job(
        ignore, None, {"mem.a": {0: range(5_000), **{number: ["one", "two"] for number in range(1, 1_000)}}}
    )
    seen = order(job)
    assert len(seen) == 5_000 + 2 * 999
    assert set(Counter(seen[:1_000]).values()) == {1}
    assert set(Counter(seen[:2_000]).values()) == {2}


@pytest.mark.parametrize("threshold", [10, 50])
def test_nor_does_it_where_partitions_are_read_from_files(tmp_path: Path, threshold: int) -> None:
    stream = sb.SystemStream("log", "a")
    config = sb.Config(
        {
            "job.name": "fair",
            "task.inputs": "log.a",
            "systems.log.samza.factory": "log",
            "systems.log.path": tmp_path,
            "systems.log.samza.offset.default": "oldest",
            "systems.log.samza.fetch.threshold": threshold,
        }
    )
    systems = Systems(config)
    systems.create(stream, 30)
    with writing(systems, stream, 30, "test") as writer:
        writer.send(sb.OutgoingMessageEnvelope(stream, b"x", partition=0) for _ in range(300))
        writer.send(
            sb.OutgoingMessageEnvelope(stream, b"x", partition=number)
            for number in range(1, 30)
            for _ in range(3)
        )
    systems.close()
    seen: list[int] = []
    sb.run(config, task=lambda envelope, collector, coordinator: seen.append(envelope.ssp.partition))
    assert len(seen) == 300 + 3 * 29
    last = max(at for at, partition in enumerate(seen) if partition)
    # All of the others are through while the flooded one has had little more than its share.
    assert Counter(seen[:last])[0] <= 60


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_as_long_as_they_have_messages_partitions_take_turns(counts: list[int]) -> None:
    job = run_job(ignore, None, {"mem.a": {number: range(count) for number, count in enumerate(counts)}})
    seen = order(job)
    had: Counter[str] = Counter()
    for ssp in seen:
        had[ssp] += 1
        waiting = [number for number, count in enumerate(counts) if had[f"mem.a.{number}"] < count]
        assert all(had[f"mem.a.{number}"] >= had[ssp] - 1 for number in waiting)
