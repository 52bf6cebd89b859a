"""Batches for tasks with ``process_batch``: whatever the job, they do what messages one by one would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streambench.batch import MessageBatch
from streambench.model import SystemStreamPartition
from streambench.task import MessageCollector, StreamTask, TaskCoordinator
from streambench.testing import JobRun, run_job
from tests.container.test_properties import (
    CONFIGS,
    CUTS,
    INPUTS,
    STORE,
    CountsAndCommits,
    Inputs,
    everything,
    failing_and_whole,
    in_order,
    sent,
    state,
)

BOUNDS = st.fixed_dictionaries(
    {"task.batch.messages": st.integers(1, 6)},
    optional={"task.processing.guarantee": st.sampled_from(["at-least-once", "exactly-once"])},
)


def in_batches(given: list[MessageBatch]) -> type[StreamTask]:
    """CountsAndCommits with a ``process_batch`` that processes one by one; ``given`` gets the batches."""

    class InBatches(CountsAndCommits):
        def process_batch(
            self, batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            given.append(batch)
            for envelope in batch:
                self.process(envelope, collector, coordinator)

    return InBatches


def longest(config: Mapping[str, Any]) -> int:
    """The largest batch that a configuration allows."""
    batch_size = config.get("task.consumer.batch.size", 1)
    return min(config["task.batch.messages"], batch_size if batch_size > 1 else 6)


@given(INPUTS, CONFIGS, BOUNDS, CUTS)
def test_in_any_cut_batches_are_what_messages_one_by_one_would_have_been(
    inputs: Inputs, config: dict[str, Any], bounds: dict[str, Any], cuts: list[int]
) -> None:
    config = STORE | config | bounds
    batches: list[MessageBatch] = []
    task = in_batches(batches)
    runs: list[JobRun] = []
    for at, cut in enumerate([*cuts, None]):
        runs.append(
            run_job(
                task, config, None if at else inputs, max_messages=cut, previous=runs[-1] if runs else None
            )
        )
    processed = [row for run in runs for row in run.processed]
    assert [len(run.processed) for run in runs[:-1]] == taken(cuts, sum(everything(inputs).values()))
    assert Counter((ssp, offset, message) for ssp, offset, _, message in processed) == everything(inputs)
    assert in_order(processed)
    assert [(ssp, offset) for ssp, offset, _, _ in processed] == [
        (str(each.ssp), each.offset) for run in batches for each in run
    ]
    assert all(len(run) <= longest(config) for run in batches)
    whole = run_job(CountsAndCommits, config, inputs)
    assert runs[-1].checkpoints == whole.checkpoints
    assert state(runs[-1]) == state(whole)
    assert sent(runs[-1]) == sent(whole)


def taken(cuts: list[int], there: int) -> list[int]:
    """How many messages each run takes that may take so many at most."""
    found = []
    for cut in cuts:
        found.append(min(cut, there))
        there -= found[-1]
    return found


@given(INPUTS, CONFIGS)
def test_batches_of_one_are_messages_one_by_one(inputs: Inputs, config: dict[str, Any]) -> None:
    single = run_job(in_batches([]), STORE | config | {"task.batch.messages": 1}, inputs)
    messages = run_job(CountsAndCommits, STORE | config, inputs)
    assert (single.processed, single.outputs, single.checkpoints, single.calls) == (
        messages.processed, messages.outputs, messages.checkpoints, messages.calls,
    )  # fmt: skip


@given(INPUTS, CONFIGS, BOUNDS)
def test_no_batch_passes_the_gate_or_a_higher_priority(
    inputs: Inputs, config: dict[str, Any], bounds: dict[str, Any]
) -> None:
    batches: list[MessageBatch] = []
    config = config | bounds
    run_job(in_batches(batches), STORE | config, inputs)
    lagging = [batch.ssp.system_stream for batch in batches if is_bootstrap(batch, config)]
    assert [batch.ssp.system_stream for batch in batches][: len(lagging)] == lagging
    if config.get("task.consumer.batch.size", 1) == 1:
        others = [priority(batch, config) for batch in batches[len(lagging) :]]
        assert others == sorted(others, reverse=True)


def is_bootstrap(batch: MessageBatch, config: Mapping[str, Any]) -> bool:
    return bool(config.get(f"systems.{batch.ssp.system}.streams.{batch.ssp.stream}.samza.bootstrap", False))


def priority(batch: MessageBatch, config: Mapping[str, Any]) -> int:
    return int(config.get(f"systems.{batch.ssp.system}.streams.{batch.ssp.stream}.samza.priority", -1))


@given(INPUTS, BOUNDS)
def test_partitions_rotate_batch_by_batch(inputs: Inputs, bounds: dict[str, Any]) -> None:
    batches: list[MessageBatch] = []
    run_job(in_batches(batches), STORE | bounds, inputs)
    waiting = Counter({ssp: count for ssp, count in counts(inputs).items()})
    turns = sorted(waiting)
    for batch in batches:
        ssp = turns.pop(0)
        assert batch.ssp == ssp
        assert len(batch) == min(waiting[ssp], bounds["task.batch.messages"])
        waiting[ssp] -= len(batch)
        if waiting[ssp]:
            turns.append(ssp)
    assert not turns


def counts(inputs: Inputs) -> dict[SystemStreamPartition, int]:
    return {
        SystemStreamPartition.parse(f"{stream}.{number}"): len(messages)
        for stream, partitions in inputs.items()
        for number, messages in partitions.items()
        if messages
    }


@given(INPUTS, CONFIGS, BOUNDS, st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_whatever_batch_fails_nothing_is_lost_and_state_fits_the_messages(
    inputs: Inputs, config: dict[str, Any], bounds: dict[str, Any], failures: list[int]
) -> None:
    config = STORE | config | bounds
    last, whole = failing_and_whole(in_batches([]), config, inputs, failures)
    assert state(last) == state(whole)
    assert sent(last) >= sent(whole)
    if config.get("task.processing.guarantee") == "exactly-once":
        assert sent(last) == sent(whole)


@given(
    st.lists(st.lists(st.sampled_from(["x", "y"]), max_size=5), min_size=1, max_size=4),
    st.lists(st.sampled_from(["x", "y"]), max_size=5),
    st.lists(st.integers(-1, 4), min_size=4, max_size=4),
    BOUNDS,
)
def test_every_task_gets_every_broadcast_message_that_it_has_not_had(
    ordinary: list[list[str]], rules: list[str], had: list[int], bounds: dict[str, Any]
) -> None:
    inputs = {"mem.a": dict(enumerate(ordinary)), "mem.rules": {0: rules}}
    before = {
        f"Partition {number}": {"mem.rules.0": str(min(had[number], len(rules) - 1))}
        for number in range(len(ordinary))
        if had[number] >= 0 and rules
    }
    config = STORE | bounds | {"task.broadcast.inputs": "mem.rules#0"}
    batches, messages = (
        run_job(task, config, inputs, checkpoints=before) for task in (in_batches([]), CountsAndCommits)
    )
    assert Counter(batches.processed) == Counter(messages.processed)
    assert batches.checkpoints == messages.checkpoints
