"""The outcome of a round: the reports of its containers, and the checkpoints of those that sent none."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from streambench.container.observe.snapshot import lag_between
from streambench.counts import sum_by_key
from streambench.errors import described
from streambench.job.failure import Failure
from streambench.model import SystemStreamPartition
from streambench.recording.captures import reworded
from streambench.spark.plan import DeployPlan, Offsets, count_messages, reached, unfinished
from streambench.spark.result import SPARK_ERROR, DeployedContainer
from streambench.spark.sent_captures import landed
from streambench.spark.worker import Report

log = logging.getLogger(__name__)


def outcome(planned: DeployPlan, reports: Collection[Report], reason: str) -> tuple[DeployedContainer, ...]:
    """Outcome of the containers: as they report, and, of those that failed or of which nothing was heard,
    as their checkpoints say.

    ``reason``: why some may have sent no report."""
    for line in warning_lines(reports):
        log.warning("%s", line)
    by_number = {report.number: report for report in reports}
    ended = {number: report for number, report in by_number.items() if report.failure is None}
    stands = _reached(planned) if len(ended) < len(planned.model.containers) else {}
    return tuple(
        _ended(planned, plan, ended[plan.number])
        if plan.number in ended
        else _cut_short(planned, plan, by_number.get(plan.number), stands.get(plan.number), reason)
        for plan in planned.containers()
    )


def _reached(planned: DeployPlan) -> Mapping[int, Offsets]:
    """The positions of containers as their checkpoints say; none where these cannot be read. That is no
    reason to lose what the containers have failed with."""
    try:
        return reached(planned)
    except Exception as error:
        text = "%s: it is not known how far its containers came, and they count as if at their begin: %s"
        log.warning(text, planned.model.name, described(error))
        return {}


def _ended(planned: DeployPlan, plan: DeployedContainer, report: Report) -> DeployedContainer:
    """A container that ended well."""
    before, earlier = _starts(plan), {}
    if report.attempt:
        # It counts from where the attempt before it committed.
        earlier = _counted(planned, before, report.starts)
    else:
        before |= {ssp: start for ssp, (start, _) in report.offsets.items()}
    after = {ssp: end for ssp, (_, end) in report.offsets.items()}
    counts = sum_by_key(report.messages_by_partition, earlier)
    messages = report.messages + sum(earlier.values())
    return _deployed(plan, report, _spans(before, after), counts, messages)


def _cut_short(
    planned: DeployPlan, plan: DeployedContainer, report: Report | None, after: Offsets | None, reason: str
) -> DeployedContainer:
    """A container that failed, or sent no report. ``after``: as its checkpoints say, where these are known.
    What it has processed since then does not count: it is processed again."""
    if report is None:
        report = Report(plan.number, 0, "", 0, failure=_unheard_of(planned, plan.number, after, reason))
    elif report.failure is not None:
        failure = report.failure
        if report.capture is not None:
            failure = landed(planned.config, planned.model.name, failure, report.capture)
        report = replace(report, failure=replace(failure, text=reworded(failure.text)))
    before = _starts(plan)
    after = before if after is None else after
    counts = _counted(planned, before, after)
    return _deployed(plan, report, _spans(before, after), counts, sum(counts.values()))


def _deployed(
    plan: DeployedContainer,
    report: Report,
    offsets: Mapping[SystemStreamPartition, tuple[str, str]],
    counts: Mapping[SystemStreamPartition, int],
    messages: int,
) -> DeployedContainer:
    return replace(
        plan,
        offsets=offsets,
        messages=messages,
        messages_by_partition=dict(sorted(counts.items())),
        seconds=report.seconds,
        seconds_by_partition=report.seconds_by_partition,
        failure=report.failure,
        attempt=report.attempt,
        host=report.host,
        process=report.process,
        log=report.log,
        passed_over=report.passed_over,
        windows_left=report.windows_left,
        is_shut_down=report.is_shut_down,
    )


def _starts(plan: DeployedContainer) -> dict[SystemStreamPartition, str]:
    return {ssp: start for ssp, (start, _) in plan.offsets.items()}


def _spans(before: Offsets, after: Offsets) -> dict[SystemStreamPartition, tuple[str, str]]:
    return {ssp: (start, after.get(ssp, start)) for ssp, start in before.items()}


def _counted(planned: DeployPlan, before: Offsets, until: Offsets) -> dict[SystemStreamPartition, int]:
    """The messages of each partition between two offsets that are both known. Where they cannot be read any
    more, as where retention has removed them, they are counted by their offsets."""
    spans = {ssp: (before[ssp], until[ssp]) for ssp in until if ssp in before}
    try:
        return count_messages(planned.config, spans)
    except Exception as error:
        text = "%s: committed messages are counted by their offsets, as they cannot be read: %s"
        log.warning(text, planned.model.name, described(error))
        by_offsets = {ssp: lag_between(*span) for ssp, span in spans.items()}
        return {ssp: max(0, count) for ssp, count in by_offsets.items() if count is not None}


def warning_lines(reports: Collection[Report]) -> list[str]:
    """The warnings of containers, one line for all that say the same of different partitions."""
    by_kind: dict[str, list[str]] = {}
    for report in sorted(reports, key=lambda each: each.number):
        for each in report.warnings:
            text = f"container {report.number} on {report.host}: {each.text}"
            by_kind.setdefault(each.kind, []).append(text)
    return [
        texts[0] if len(texts) == 1 else f"{texts[0]} (and {len(texts) - 1:,} more warnings of this kind)"
        for texts in by_kind.values()
    ]


def _unheard_of(planned: DeployPlan, number: int, after: Offsets | None, reason: str) -> Failure | None:
    """The failure of a container that sent no report; None where its checkpoints say that it has done all it
    was to do."""
    if after is None:
        return Failure(number, SPARK_ERROR, f"{reason}; it is not known how far it came", "")
    left = unfinished(planned, after)
    if not left:
        return None
    return Failure(
        number, SPARK_ERROR, f"{reason}; {left[0]} is at {after[left[0]]} of {planned.ends[left[0]]}", ""
    )
