"""The result of a deployment as a table, in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streambench.container.observe.snapshot import lag_between
from streambench.counts import sum_known

if TYPE_CHECKING:
    from streambench.spark.result import DeployedContainer, DeployResult

FIGURES = ("container", "from", "to", "lag", "messages", "seconds")
"""The columns that are set to the right."""

_MOST_NAMED = 12
_COLUMNS = ("container", "partition", "from", "to", "messages", "seconds", "error")
_PLANNED = ("container", "tasks", "partition", "from", "to", "lag")


def columns_of(result: DeployResult) -> list[str]:
    """The columns of the table of a result."""
    return [name for name in (_PLANNED if result.dry_run else _COLUMNS) if name != "error" or result.failed]


def rows_of(result: DeployResult) -> list[dict[str, Any]]:
    """A row per container and partition."""
    return [row for each in result.containers for row in _rows(each)]


def is_idle(result: DeployResult) -> bool:
    """True where no container was started, as none had anything to do."""
    return not (result.dry_run or result.rounds or result.messages or result.failed)


def idle_line(name: str, result: DeployResult, *, is_backfill: bool = False) -> str:
    """The line for a deployment that had nothing to do. ``name``: that of the job, or of the backfill."""
    said = f"{name}: there was nothing to do"
    if (count := len(result.containers)) == 0:
        return said
    end = "range" if is_backfill else "inputs"
    if count == 1:
        return f"{said}: its container is at the end of its {end}"
    return f"{said}: all {count:,} containers are at the end of their {end}"


def dry_run_line(result: DeployResult) -> str:
    """The last line of a dry run: how much each container would read."""
    balance = f"; dealt {result.balance}" if result.balance else ""
    each = sorted(result.containers, key=lambda each: (each.seconds, each.span or 0))
    if len(each) > _MOST_NAMED:
        lags = (
            f"{_lag(sum_known(one.span for one in each))}, from {_planned(each[0])} to {_planned(each[-1])}"
        )
    else:
        lags = ", ".join(map(_planned, result.containers))
    return f"{result.job}: a dry run; nothing was started; lag: {lags}{balance}"


def _planned(container: DeployedContainer) -> str:
    seconds = f" ({container.seconds:,.1f} s)" if container.seconds else ""
    return f"{_lag(container.span)} in container {container.number}{seconds}"


def _rows(container: DeployedContainer) -> Iterator[dict[str, Any]]:
    """A row per partition. What is the container's as a whole stands in its first row, so that no column
    holds it twice."""
    counts = container.messages_by_partition if container.messages else dict.fromkeys(container.offsets, 0)
    tasks, seconds = ", ".join(container.tasks), f"{container.seconds:.1f}"
    for at, (ssp, (before, after)) in enumerate(sorted(container.offsets.items())):
        messages = counts.get(ssp) if counts else "" if at else container.messages
        of_whole = (
            {"tasks": "", "seconds": "", "error": ""}
            if at
            else {"tasks": tasks, "seconds": seconds, "error": container.error}
        )
        row = {"container": container.number, "partition": str(ssp), "from": before, "to": after}
        yield {**row, "lag": _lag(lag_between(before, after)), "messages": messages, **of_whole}


def _lag(lag: int | None) -> str:
    return "unknown" if lag is None else str(max(lag, 0))
