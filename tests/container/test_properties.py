"""What holds for any inputs, in any cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import TaskError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, RequestScope, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import JobRun, run_job

OUT = SystemStream("mem", "out")

INPUTS = st.dictionaries(
    st.sampled_from(["mem.a", "mem.b", "other.c"]),
    st.dictionaries(
        st.integers(0, 3), st.lists(st.sampled_from(["x", "y", "z"]), max_size=6), min_size=1, max_size=3
    ),
    min_size=1,
    max_size=3,
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "task.consumer.batch.size": st.integers(1, 4),
        "systems.mem.streams.a.samza.priority": st.integers(0, 2),
        "systems.mem.streams.b.samza.priority": st.integers(0, 2),
        "systems.mem.streams.b.samza.bootstrap": st.booleans(),
        "systems.other.streams.c.samza.bootstrap": st.booleans(),
        "systems.mem.samza.fetch.threshold": st.integers(1, 3),
        "job.systemstreampartition.grouper.factory": st.sampled_from(["partition", "ssp"]),
    },
)
CUTS = st.lists(st.integers(0, 7), max_size=4)

Inputs = Mapping[str, Mapping[int, list[str]]]


class CountsAndCommits(StreamTask):
    """Counts in a store what it is told, sends each count, and commits at ``y``."""

    def init(self, context: TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        count = 1 + (self.counts.get(envelope.message) or 0)
        self.counts.put(envelope.message, count)
        collector.send(OutgoingMessageEnvelope(OUT, [str(envelope.ssp), envelope.offset, count]))
        if envelope.message == "y":
            coordinator.commit(RequestScope.CURRENT_TASK)


STORE = {"stores.counts.factory": "memory", "stores.counts.changelog": "mem.changelog"}


def everything(inputs: Inputs) -> Counter[tuple[str, str, Any]]:
    return Counter(
        (f"{stream}.{number}", str(at), message)
        for stream, partitions in inputs.items()
        for number, messages in partitions.items()
        for at, message in enumerate(messages)
    )


def in_order(processed: list[tuple[str, str, Any, Any]]) -> bool:
    """Whether the offsets of each partition come one after the other, from 0 on."""
    positions: Counter[str] = Counter()
    for ssp, offset, _, _ in processed:
        if int(offset) != positions[ssp]:
            return False
        positions[ssp] += 1
    return True


@given(INPUTS, CONFIGS, CUTS)
def test_any_cut_processes_each_message_once_and_each_partition_in_order(
    inputs: Inputs, config: dict[str, Any], cuts: list[int]
) -> None:
    runs: list[JobRun] = []
    for at, cut in enumerate([*cuts, None]):
        runs.append(
            run_job(
                CountsAndCommits,
                STORE | config,
                None if at else inputs,
                max_messages=cut,
                previous=runs[-1] if runs else None,
            )
        )
    processed = [row for run in runs for row in run.processed]
    assert Counter((ssp, offset, message) for ssp, offset, _, message in processed) == everything(inputs)
    assert in_order(processed)
    whole = run_job(CountsAndCommits, STORE | config, inputs)
    assert runs[-1].checkpoints == whole.checkpoints
    assert state(runs[-1]) == state(whole)
    assert sent(runs[-1]) == sent(whole)


def sent(run: JobRun) -> Counter[tuple[str, str]]:
    """Which messages an output was sent for, and how often."""
    return Counter(
        (ssp, offset)
        for partition in run.outputs.get("mem.out", {}).values()
        for _, (ssp, offset, _) in partition
    )


def state(run: JobRun) -> dict[int, dict[str, int]]:
    """What the store of each task holds at the end."""
    return {number: dict(entries) for number, entries in run.outputs.get("mem.changelog", {}).items()}


@given(INPUTS, CONFIGS)
def test_equal_jobs_run_equally(inputs: Inputs, config: dict[str, Any]) -> None:
    first, second = (run_job(CountsAndCommits, STORE | config, inputs) for _ in range(2))
    assert (first.processed, first.outputs, first.checkpoints, first.calls) == (
        second.processed, second.outputs, second.checkpoints, second.calls,
    )  # fmt: skip


@given(INPUTS, CONFIGS)
def test_a_step_at_a_time_is_the_same_as_all_at_once(inputs: Inputs, config: dict[str, Any]) -> None:
    whole = run_job(CountsAndCommits, STORE | config, inputs)
    stepped = run_job(CountsAndCommits, STORE | config, inputs, max_messages=10_000)
    assert (whole.processed, whole.calls) == (stepped.processed, stepped.calls)


def failing_and_whole(
    task: type[CountsAndCommits], config: dict[str, Any], inputs: Inputs, failures: list[int]
) -> tuple[JobRun, JobRun]:
    """The last run of a job that fails again and again, each time after some messages, and a run of
    CountsAndCommits that does not fail. Between them, the runs that fail process everything."""

    def failing_after(count: int) -> type[StreamTask]:
        left = [count]

        class Fails(task):  # type: ignore[misc, valid-type]
            def process(self, *arguments: Any) -> None:
                super().process(*arguments)
                left[0] -= 1
                if left[0] < 0:
                    raise ValueError("now")

        return Fails

    previous: JobRun | None = None
    processed: list[tuple[str, str, Any, Any]] = []
    for count in failures:
        try:
            previous = run_job(failing_after(count), config, None if previous else inputs, previous=previous)
        except TaskError as error:
            previous = error.job_run  # type: ignore[attr-defined]
        assert previous is not None
        processed += previous.processed
    last = run_job(task, config, previous=previous)
    processed += last.processed
    assert {(ssp, offset, message) for ssp, offset, _, message in processed} == set(everything(inputs))
    return last, run_job(CountsAndCommits, config, inputs)


@given(INPUTS, CONFIGS, st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_whatever_fails_nothing_is_lost_and_state_fits_the_messages(
    inputs: Inputs, config: dict[str, Any], failures: list[int]
) -> None:
    """At least once for the outputs, exactly once for the state."""
    last, whole = failing_and_whole(CountsAndCommits, STORE | config, inputs, failures)
    assert state(last) == state(whole)
    assert sent(last) >= sent(whole)


@given(
    st.lists(st.lists(st.sampled_from(["x", "y"]), max_size=5), min_size=1, max_size=4),
    st.lists(st.sampled_from(["x", "y"]), max_size=5),
    st.lists(st.integers(-1, 4), min_size=4, max_size=4),
)
def test_every_task_gets_every_broadcast_message_that_it_has_not_had(
    ordinary: list[list[str]], rules: list[str], had: list[int]
) -> None:
    inputs = {"mem.a": dict(enumerate(ordinary)), "mem.rules": {0: rules}}
    before = {
        f"Partition {number}": {"mem.rules.0": str(min(had[number], len(rules) - 1))}
        for number in range(len(ordinary))
        if had[number] >= 0 and rules
    }
    run = run_job(
        CountsAndCommits, STORE | {"task.broadcast.inputs": "mem.rules#0"}, inputs, checkpoints=before
    )
    expected = Counter(everything({"mem.a": inputs["mem.a"]}))
    for number in range(len(ordinary)):
        begins = 1 + int(before.get(f"Partition {number}", {}).get("mem.rules.0", "-1"))
        expected.update(("mem.rules.0", str(at), rules[at]) for at in range(begins, len(rules)))
    assert Counter((ssp, offset, message) for ssp, offset, _, message in run.processed) == expected
