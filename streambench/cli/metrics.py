"""``streambench metrics``: what is measured, in which unit, and what it means."""

from __future__ import annotations

from typing import Annotated

import typer

from streambench.cli.output import show_entries
from streambench.metrics.catalogue import METRICS


def metrics(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List the metrics that every job has, with their units and meanings.

    A job reports them as metrics.reporters says: to a stream (snapshot), to Prometheus (prometheus), to the
    log (log). What a task adds by context.metrics goes the same ways, in a group of the task's name.

    Examples:

        streambench metrics

        streambench run job.properties    # with metrics.reporters=p and metrics.reporter.p.class=prometheus
        in it
    """
    rows = [
        {
            "of": each.source,
            "name": f"{each.group}.{each.pattern}",
            "kind": each.kind,
            "unit": each.unit,
            "meaning": each.meaning,
        }
        for each in METRICS
    ]
    show_entries(
        rows, ("of", "name", "kind", "unit", "meaning"), title="name", prose="meaning", as_json=as_json
    )
