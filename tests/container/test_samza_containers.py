"""Whole containers as Apache Samza 1.8.0 ran them, on the same inputs: what is processed, in which order, and
what is committed."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.errors import TaskError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, RequestScope, StreamTask, TaskCoordinator
from streambench.testing import JobRun, run_job
from tests.samza_traces import samza_traces

OUT = SystemStream("sys", "out")

Trace = dict[str, Any]


class Obedient(StreamTask):
    """Does what the message says: commands joined by ``+``."""

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        for command in envelope.message.split("+"):
            if command == "send":
                collector.send(OutgoingMessageEnvelope(OUT, f"{envelope.ssp}@{envelope.offset}"))
            elif command == "commit":
                coordinator.commit(RequestScope.CURRENT_TASK)
            elif command == "commit_all":
                coordinator.commit(RequestScope.ALL_TASKS_IN_CONTAINER)
            elif command == "shutdown":
                coordinator.shutdown(RequestScope.CURRENT_TASK)
            elif command == "shutdown_all":
                coordinator.shutdown(RequestScope.ALL_TASKS_IN_CONTAINER)
            elif command == "fail":
                raise ValueError("asked to fail")


def again(trace: Trace) -> JobRun:
    """The same job here. A run that fails counts as far as it came."""
    config = {key: value for key, value in trace["config"].items() if not key.startswith("trace.")}
    inputs = {
        stream: {int(number): messages for number, messages in of.items()}
        for stream, of in trace["inputs"].items()
    }
    try:
        return run_job(Obedient, config, inputs, checkpoints=trace["checkpoints_before"])
    except TaskError as error:
        assert "asked to fail" in str(error)
        run = error.job_run  # type: ignore[attr-defined]
        assert isinstance(run, JobRun)
        return run


def choices(run: JobRun) -> list[str]:
    """What was processed, a broadcast message (which all tasks process one after the other) once."""
    places = [f"{ssp}@{offset}" for ssp, offset, _, _ in run.processed]
    return list(dict.fromkeys(places))


def last_checkpoints(trace: Trace) -> dict[str, dict[str, str]]:
    return {task: written[-1] for task, written in trace["checkpoints"].items() if written}


def up_to_failure(trace: Trace) -> list[str]:
    """Samza counts the message at which the task failed as processed."""
    processed: list[str] = trace["processed"]
    return processed[:-1] if "asked to fail" in str(trace.get("error")) else processed


def commands(trace: Trace, place: str) -> list[str]:
    ssp, _, offset = place.partition("@")
    stream, _, number = ssp.rpartition(".")
    text: str = trace["inputs"][stream][number][int(offset)]
    return text.split("+")


ORDER, CONTROLS = samza_traces("container_order"), samza_traces("container_controls")
WITHOUT_SHUTDOWN = [trace for trace in CONTROLS if "shutdown" not in str(trace["inputs"])]
WITH_SHUTDOWN = [trace for trace in CONTROLS if "shutdown" in str(trace["inputs"])]


def test_no_trace_is_passed_over() -> None:
    assert [(len(traces), sum(trace["equal"] for trace in traces)) for traces in (ORDER, CONTROLS)] == [
        (50, 45),
        (30, 25),
    ]
    assert len(WITHOUT_SHUTDOWN) + len(WITH_SHUTDOWN) == len(CONTROLS)


def named(trace: Trace) -> str:
    return str(trace["id"])


@pytest.mark.parametrize("trace", [trace for trace in ORDER if trace["equal"]], ids=named)
def test_messages_are_processed_in_the_order_in_which_samza_processes_them(trace: Trace) -> None:
    assert choices(again(trace)) == trace["processed"]


@pytest.mark.parametrize("trace", [trace for trace in ORDER if not trace["equal"]], ids=named)
def test_where_semantics_part_the_beginning_and_the_messages_are_the_same(trace: Trace) -> None:
    processed = choices(again(trace))
    assert processed[: trace["agree"]] == trace["processed"][: trace["agree"]]
    assert sorted(processed) == sorted(trace["processed"])


@pytest.mark.parametrize(
    "trace", [trace for trace in ORDER if not trace["config"].get("task.broadcast.inputs")], ids=named
)
def test_everything_there_is_is_committed_at_the_end(trace: Trace) -> None:
    ends: dict[str, str] = {}
    for place in trace["processed"]:
        ssp, _, offset = place.partition("@")
        ends[ssp] = offset
    committed: dict[str, str] = {}
    for offsets in again(trace).checkpoints.values():
        committed |= offsets
    assert ends.items() <= committed.items()


@pytest.mark.parametrize("trace", WITHOUT_SHUTDOWN, ids=named)
def test_commits_sends_and_failures_do_not_change_the_order(trace: Trace) -> None:
    run = again(trace)
    expected = up_to_failure(trace)
    processed = choices(run)
    if trace["equal"]:
        assert processed == expected
        assert [message for _, message in run.outputs.get("sys.out", {}).get(0, [])] == [
            place for place in trace["sent"] if place in expected
        ]
    else:
        assert processed[: trace["agree"]] == expected[: trace["agree"]]


@pytest.mark.parametrize(
    "trace", [trace for trace in WITHOUT_SHUTDOWN if "asked to fail" in str(trace.get("error"))], ids=named
)
def test_a_failure_commits_nothing_that_was_not_asked_for(trace: Trace) -> None:
    """Samza may lose the commits that were under way; those it wrote are a beginning of ours."""
    run = again(trace)
    if not any({"commit", "commit_all"} & set(commands(trace, place)) for place in choices(run)):
        assert run.checkpoints == trace["checkpoints_before"]
    for task, offsets in last_checkpoints(trace).items():
        for ssp, offset in offsets.items():
            assert int(run.checkpoints[task][ssp]) >= int(offset)


@pytest.mark.parametrize("trace", WITH_SHUTDOWN, ids=named)
def test_a_shutdown_ends_the_run_where_the_commands_say(trace: Trace) -> None:
    processed = choices(again(trace))
    assert processed[: trace["agree"]] == up_to_failure(trace)[: trace["agree"]]
    end = where_it_ends(trace, processed)
    if end is not None:
        assert len(processed) == end
    elif "asked to fail" not in str(trace.get("error")):
        everything = sum(len(messages) for of in trace["inputs"].values() for messages in of.values())
        already = sum(
            1 + int(offset) for offsets in trace["checkpoints_before"].values() for offset in offsets.values()
        )
        assert len(processed) == everything - already


def where_it_ends(trace: Trace, processed: list[str]) -> int | None:
    """How many messages are processed until all tasks, or one for all, have asked for the end; None where
    that never happens."""
    tasks = {number for of in trace["inputs"].values() for number in of}
    asked = set()
    for at, place in enumerate(processed, start=1):
        asked_for = [command for command in commands(trace, place) if command.startswith("shutdown")]
        if asked_for[-1:] == ["shutdown"]:
            asked.add(place.partition("@")[0].rpartition(".")[2])
        if asked_for[-1:] == ["shutdown_all"] or asked == tasks:
            return at
    return None
