"""The progress of a deployment in words: the source of what a terminal and a notebook show."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from streambench.counts import counted
from streambench.spark.result import ContainerProgress, DeployProgress

COLUMNS = ("container", "state", "messages", "left", "partitions done", "")
FIGURES = ("container", "messages", "left", "partitions done")
"""The columns of the table of containers, and those of figures among them."""

_MOST_ROWS = 12
_MOST_DESCRIBED = 8
_MOST_BUSY = 3
# Of a round, the start of Spark included.
_LATE_S = 60.0
# A container reports four times a second, unless one message takes it longer.
_SILENT_S = 5.0
_ORDER = ("failed", "running", "waiting", "done")


class ProgressView(Struct, frozen=True):
    """A progress as it is shown. ``title`` goes without the name of the ``job``. ``part``: from 0 to
    1; None where it is not known. ``lines``: the sums in words. ``rows``: the containers, those of interest
    first where there are too many; ``more``: a line on the others."""

    title: str
    part: float | None
    lines: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    more: str = ""
    job: str = ""


def view_of(progress: DeployProgress, since_s: float = 0.0, most_rows: int = _MOST_ROWS) -> ProgressView:
    """The view of a progress that was ``since_s`` seconds ago."""
    title = f"round {progress.round}: {progress.stage}, {progress.seconds + since_s:.1f} s"
    if progress.stage == "starting Spark":
        waiting = f"{_messages(progress)}, {counted(progress.containers, 'container')} to start"
        return ProgressView(title, None, (waiting,), (), job=progress.job)
    shown, hidden = _chosen(progress.each, most_rows)
    late = late_text(progress, since_s)
    done = f"{progress.partitions_done:,} of {counted(progress.partitions, 'partition')} done"
    return ProgressView(
        title,
        _part(progress),
        (
            ", ".join([_messages(progress), *_pace(progress)]),
            ", ".join([containers_text(progress), done]),
            *((late,) if late else ()),
        ),
        tuple(_row(each, since_s) for each in shown),
        f"and {len(hidden):,} more: {_stages(hidden)}" if hidden else "",
        progress.job,
    )


def line_of(progress: DeployProgress, since_s: float = 0.0) -> str:
    """A progress in one line, for an output that is no screen."""
    seconds = f"{progress.seconds + since_s:.1f} s"
    round = named(progress.job, f"round {progress.round}")
    if progress.stage == "starting Spark":
        return f"{round}: starting Spark, {seconds}"
    parts = [*_sums(progress), seconds]
    if progress.stage == "stopped":
        parts.insert(0, "stopped")
    notes = [late_text(progress, since_s), *busy_texts(progress, since_s)[:_MOST_BUSY]]
    return "; ".join([f"{round}: {', '.join(parts)}", *filter(None, notes)])


def description_of(progress: DeployProgress) -> str:
    """A progress as a description in Spark's own tools.

    It has the sums, then a few containers, those of interest first where there are more. An example: "...
    container 0 done 20,000, 1 running 3,175 (no report for 20 s)"."""
    shown, hidden = _chosen(progress.each, _MOST_DESCRIBED)
    containers = []
    for each in shown:
        row = _row(each, 0.0)
        said = f" ({row['']})" if row[""] else ""
        containers.append(f"{row['container']} {row['state']} {row['messages']}{said}")
    if hidden:
        containers.append(f"and {len(hidden):,} more: {_stages(hidden)}")
    sums = ", ".join(_sums(progress))
    return f"after {progress.seconds:,.1f} s: {sums}; container {', '.join(containers)}"


def late_text(progress: DeployProgress, since_s: float = 0.0) -> str:
    """A hint where Spark starts no container for long, as a cluster without room for it says nothing; else
    empty."""
    is_late = progress.stage == "running" and progress.running_s + since_s >= _LATE_S
    if not is_late or progress.waiting < progress.containers:
        return ""
    return (
        "Spark has started no container yet: its machines are busy, or the cluster lacks executors with free "
        "cores and memory (spark.executor.memory, spark.cores.max)"
    )


def busy_texts(progress: DeployProgress, since_s: float = 0.0) -> list[str]:
    """The containers that have been at one message for long, and which: "container 2 busy 14 s: Partition 0
    at log.in.0@15, late.py line 6: time.sleep(60)"."""
    return [f"container {each.number} {_busy(each, since_s)}" for each in progress.each if _is_busy(each)]


def _is_busy(container: ContainerProgress) -> bool:
    return container.stage == "running" and bool(container.busy)


def _busy(container: ContainerProgress, since_s: float) -> str:
    return f"busy {duration(container.busy_s + since_s)}: {container.busy}"


def named(job: str, text: str) -> str:
    """A text that begins with the name of its job, where that is known."""
    return f"{job}, {text}" if job else text


def containers_text(progress: DeployProgress) -> str:
    """The containers by their states: "1 of 4 containers done, 2 running, 1 failed"."""
    counts = {
        "running": progress.active,
        "waiting": progress.waiting,
        "failed": progress.failed,
        "started again": progress.retried,
    }
    others = [f"{count:,} {what}" for what, count in counts.items() if count]
    return ", ".join([f"{progress.done:,} of {counted(progress.containers, 'container')} done", *others])


def event_lines(before: DeployProgress | None, now: DeployProgress) -> list[str]:
    """Lines on containers that have failed or were started again since an earlier progress."""
    is_same = before is not None and (before.job, before.round) == (now.job, now.round)
    former = {each.number: each for each in before.each} if before is not None and is_same else {}
    lines = []
    for each in now.each:
        was = former.get(each.number, ContainerProgress(number=each.number))
        if each.attempt > was.attempt:
            lines.append(f"container {each.number}: started again by Spark, attempt {each.attempt + 1}")
        if each.stage == "failed" and was.stage != "failed":
            lines.append(f"container {each.number} failed: {each.error}")
    return [named(now.job, line) for line in lines]


def _sums(progress: DeployProgress) -> list[str]:
    return [_messages(progress), *_pace(progress), containers_text(progress)]


def _messages(progress: DeployProgress) -> str:
    if progress.total is None:
        return counted(progress.messages, "message")
    return f"{progress.messages:,} of {counted(progress.total, 'message')}"


def _pace(progress: DeployProgress) -> list[str]:
    if progress.stage in ("ended", "stopped"):
        return [] if not progress.left else [f"{progress.left:,} left for the next start"]
    parts = [f"{progress.rate:,.0f}/s"] if progress.rate else []
    if progress.left is not None:
        parts.append(f"{progress.left:,} left")
    if progress.eta_s:
        parts.append(f"about {duration(progress.eta_s)} to go")
    return parts


def duration(seconds: float) -> str:
    """A duration of which the last digits do not matter: "40 s", "3 min", "2.5 h"."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _part(progress: DeployProgress) -> float | None:
    if progress.left is None or progress.total is None:
        return None
    return 1 - progress.left / progress.total if progress.total else 1.0


def _chosen(
    each: Sequence[ContainerProgress], most: int
) -> tuple[list[ContainerProgress], list[ContainerProgress]]:
    """The containers to show, by number, and the others: failures first, then those with the most left."""
    if len(each) <= most:
        return list(each), []
    ranked = sorted(each, key=lambda one: (_ORDER.index(one.stage), -one.attempt, -(one.left or 0)))
    return sorted(ranked[:most], key=lambda one: one.number), ranked[most:]


def _stages(containers: Sequence[ContainerProgress]) -> str:
    stages = [each.stage for each in containers]
    return ", ".join(f"{stages.count(stage):,} {stage}" for stage in _ORDER if stage in stages)


def _row(container: ContainerProgress, since_s: float) -> dict[str, str]:
    state = container.stage + (f", attempt {container.attempt + 1}" if container.attempt else "")
    silent_s = container.silent_s + since_s
    said = "shut down by its tasks" if container.is_shut_down else container.error
    if container.stage == "running" and silent_s >= _SILENT_S:
        said = f"no report for {duration(silent_s)}"
    elif _is_busy(container):
        said = _busy(container, since_s)
    return {
        "container": str(container.number),
        "state": state,
        "messages": f"{container.messages:,}",
        "left": "-" if container.left is None else f"{container.left:,}",
        "partitions done": f"{container.partitions_done:,} of {container.partitions:,}",
        "": said,
    }
