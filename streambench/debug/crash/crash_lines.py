"""A simulated crash and the verdicts of many as lines of text."""

from __future__ import annotations

from streambench.counts import counted
from streambench.debug.crash.crash import Crash, Differences
from streambench.debug.crash.crash_report import CrashStep, Report
from streambench.debug.effects.effect_lines import difference_lines, more_lines, output_line
from streambench.debug.effects.events import Output

_MOST_LINES = 5
_MOST_TASKS = 3
_MOST_STEPS = 4
_INDENT = " " * 8


def crash_lines(crash: Crash) -> list[str]:
    """A crash in words: from where the job starts again, and everything that is not as it was then."""
    where = ", before the commit there is done" if crash.inside_commit else ""
    lines = [
        f"a kill -9 at {crash.position:,}{where} (simulated: nothing has changed)",
        f"the job starts again{_begins(crash)}; {_again(crash)}",
    ]
    lines += _outputs("{} twice", crash.outputs_twice)
    lines += _outputs("{} not sent before", crash.outputs_new)
    lines += _outputs("{} less: not sent again", crash.outputs_lost)
    if crash.state and not crash.differs and crash.error is None:
        lines.append(f"state goes back, and is the same when they have come again: {_keys(crash.state)}")
    if crash.differs:
        lines.append(f"state differs when they have come again: {_keys(crash.differs)}")
        lines += _limited(difference_lines(crash.differs))
    if crash.error is not None:
        lines.append(f"the job fails then: {crash.error}")
    if crash.outputs_new or crash.outputs_lost or crash.differs:
        if crash.swapped:
            lines.append(
                f"what comes again runs with the code of position {crash.position:,}: it was swapped after "
                + ", ".join(f"{each:,}" for each in crash.swapped)
            )
        lines.append("a crash takes what tasks keep in attributes, and stores without a changelog")
    if crash.safe:
        lines.append(f"safe: streams and stores end as without the crash ({crash.guarantee})")
    else:
        lines.append(f"not safe ({crash.guarantee})")
    return lines


def report_lines(report: Report) -> list[str]:
    """The verdict of crashes at every step, then the first steps that are not safe."""
    lines = [str(report)]
    if len(report.unsafe) > 1 or any(each.inside_commit for each in report.unsafe):
        lines += _unsafe([each for each in report.unsafe if not each.inside_commit], "after", "")
        is_whole = report.guarantee == "exactly-once"
        state = "before it is done" if is_whole else "outputs are out, the checkpoint is not written"
        where = f"inside the commit ({state}) at"
        lines += _unsafe([each for each in report.unsafe if each.inside_commit], where, " --inside-commit")
    return lines


def _unsafe(steps: list[CrashStep], where: str, option: str) -> list[str]:
    """The positions of some steps that are not safe, and how to look at the first."""
    if not steps:
        return []
    named = ", ".join(f"{each.position:,}" for each in steps[:_MOST_STEPS])
    more = len(steps) - _MOST_STEPS
    positions = f"{named} and {more:,} more" if more > 0 else named
    how = f"%stream goto {steps[0].position}, %stream crash{option}"
    return [f"{_INDENT}not safe {where} {positions}: {how}"]


def _begins(crash: Crash) -> str:
    """The commits that tasks start from: tasks that start alike in one word."""
    tasks: dict[int, list[str]] = {}
    for task, position in crash.committed.items():
        tasks.setdefault(position, []).append(task)
    commits = {position: _commit(position) for position in tasks}
    if len(tasks) == 1:
        return f" from {next(iter(commits.values()))}"
    named = [f"{', '.join(tasks[position])} from {commit}" for position, commit in commits.items()]
    more = len(named) - _MOST_TASKS
    return (
        ": "
        + ", ".join(named[:_MOST_TASKS])
        + (f", and others from {more:,} other commits" if more > 0 else "")
    )


def _commit(position: int) -> str:
    return f"the commit at {position:,}" if position else "its begin"


def _again(crash: Crash) -> str:
    if not crash.again:
        return "no message comes again"
    ranges: dict[str, list[str]] = {}
    for each in crash.again:
        ranges.setdefault(str(each.ssp), []).append(each.offset)
    spans = ", ".join(
        f"{ssp}@{offsets[0]}" + (f"..{offsets[-1]}" if len(offsets) > 1 else "")
        for ssp, offsets in list(ranges.items())[:_MOST_TASKS]
    )
    more = len(ranges) - _MOST_TASKS
    spans += f" and of {counted(more, 'more partition')}" if more > 0 else ""
    comes = "comes" if len(crash.again) == 1 else "come"
    return f"{counted(len(crash.again), 'message')} {comes} again: {spans}"


def _outputs(what: str, outputs: tuple[Output, ...]) -> list[str]:
    by_stream: dict[str, list[Output]] = {}
    for output in outputs:
        by_stream.setdefault(output.stream, []).append(output)
    lines = []
    for stream, of_stream in by_stream.items():
        messages = "a message" if len(of_stream) == 1 else counted(len(of_stream), "message")
        lines.append(f"{stream} gets {what.format(messages)}")
        lines += _limited([f"{each.position:,}  {output_line(each)}" for each in of_stream])
    return lines


def _keys(differences: Differences) -> str:
    counts: dict[str, int] = {}
    for stores in differences.values():
        for store, keys in stores.items():
            counts[store] = counts.get(store, 0) + len(keys)
    return ", ".join(f"{store} {counted(count, 'key')}" for store, count in counts.items())


def _limited(lines: list[str]) -> list[str]:
    shown = lines[:_MOST_LINES] + more_lines(len(lines) - _MOST_LINES)
    return [f"{_INDENT}{line}" for line in shown]
