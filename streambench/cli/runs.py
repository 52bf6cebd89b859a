"""``streambench runs``: the history of a job's deployments."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import msgspec
import typer

from streambench.cli.job import JobArgument, JobOption, JsonOption, read_job
from streambench.cli.output import moment, show_rows

_FIGURES = ("generation", "seconds", "messages", "per second", "containers", "failed")
_COLUMNS = ("generation", "began", "backfill", *_FIGURES[1:], "outcome", "master")


def runs(
    job: JobArgument = None,
    config: JobOption = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="The last so many.")] = 20,
    json: JsonOption = False,
) -> None:
    """List the deployments of a job on Spark: when, how long, how many messages; oldest first.

    With --every, each round that had something to do is one. Backfills of the job are listed under their
    names. A deployment that was killed "did not end". --json has the offsets of each container before and
    after, and its error.

    Examples:

        streambench runs -c job.properties

        streambench runs --limit 1 --json -c job.properties
    """
    settings = read_job(job, config)
    history = importlib.import_module("streambench.spark.history")
    found = history.runs(settings)[-limit:]
    rows = [_whole(each) if json else _row(each) for each in found]
    columns = _COLUMNS if any(each.backfill for each in found) else [c for c in _COLUMNS if c != "backfill"]
    show_rows(rows, columns, as_json=json, empty="the job was not deployed yet", right=_FIGURES)


def _row(run: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        **dict.fromkeys(_COLUMNS),
        "generation": run.generation,
        "began": moment(run.began_ms),
        "backfill": run.backfill,
        "outcome": run.outcome,
        "master": run.master,
    }
    if not run.containers:
        return row
    return row | {
        "seconds": f"{run.seconds:.1f}",
        "messages": f"{run.messages:,}",
        "per second": f"{run.rate:,.0f}",
        "containers": len(run.containers),
        "failed": run.failed,
    }


def _whole(run: Any) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(run)
    del fields["holders"]
    return {"began": moment(fields.pop("began_ms")), **fields, "failed": run.failed}
