"""Progress of a round before its containers have begun and after they have ended, and both in words."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from streambench.container.observe.snapshot import left_until
from streambench.counts import counted
from streambench.spark.plan import DeployPlan
from streambench.spark.result import ContainerProgress, DeployedContainer, DeployResult

_MOST_DESCRIBED = 8


def planned_progress(planned: DeployPlan) -> list[ContainerProgress]:
    """The containers that are to be started, before they are."""
    return [
        ContainerProgress(number=each.number, total=each.span, left=each.span, partitions=len(each.offsets))
        for each in planned.containers()
        if each.number in planned.working
    ]


def work_of(containers: Sequence[ContainerProgress]) -> str:
    """The work of a round in words, for Spark's tools: the messages to read and the largest container."""
    totals = {each.number: each.total for each in containers if each.total is not None}
    if not totals or len(totals) < len(containers):
        return ""
    said = f"{counted(sum(totals.values()), 'message')} to read"
    largest = max(totals, key=lambda number: totals[number])
    return said if len(totals) == 1 else f"{said}, {totals[largest]:,} of them in container {largest}"


def end_of(result: DeployResult) -> str:
    """The outcome of a round in words, for Spark's tools: the sum, and the containers that took longest."""
    said = f"ended after {result.seconds:,.1f} s; {counted(result.messages, 'message')} processed"
    if result.failed:
        said += f"; {counted(len(result.failed), 'container')} failed"
    if shut_down := sum(each.is_shut_down for each in result.containers):
        said += f"; {counted(shut_down, 'container')} shut down by their tasks"
    started = [each for each in result.containers if each.seconds or each.messages or each.failure]
    ranked = sorted(started, key=lambda each: (each.failure is None, -each.seconds))
    shown = sorted(ranked[:_MOST_DESCRIBED], key=lambda each: each.number)
    containers = [
        f"{each.number} {'failed, ' if each.failure else ''}{each.messages:,} in {each.seconds:,.1f} s"
        for each in shown
    ]
    if more := len(started) - len(shown):
        containers.append(f"and {more:,} more")
    return f"{said}; container {', '.join(containers)}" if containers else said


def final_progress(planned: DeployPlan, result: DeployResult) -> list[ContainerProgress]:
    """The containers that were started, as their result has them."""
    before = {each.number: each for each in planned_progress(planned)}
    return [_ended(planned, before[each.number], each) for each in result.containers if each.number in before]


def _ended(planned: DeployPlan, before: ContainerProgress, container: DeployedContainer) -> ContainerProgress:
    offsets, failure = container.offsets, container.failure
    left, done = left_until((after, planned.ends[ssp]) for ssp, (_, after) in offsets.items())
    return replace(
        before,
        stage="done" if failure is None else "failed",
        attempt=container.attempt,
        messages=container.messages,
        left=before.left if left is None else left,
        partitions=len(offsets),
        partitions_done=len(offsets) if failure is None and not container.is_shut_down else done,
        is_shut_down=container.is_shut_down,
        error="" if failure is None else failure.text.partition("\n")[0],
    )


def stopped_progress(planned: DeployPlan, result: DeployResult) -> list[ContainerProgress]:
    """As ``final_progress``, of a round that was interrupted: its containers have not failed."""
    return [
        replace(each, stage="running", error="") if each.stage == "failed" else each
        for each in final_progress(planned, result)
    ]
