"""The buttons and boxes of a panel that set breakpoints and watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from streambench.debug.control.session import Session
from streambench.debug.stopping.breakpoints import Kind
from streambench.debug.stopping.conditions import named_expression
from streambench_magics.jobs.jobs import Job


def _session(job: Job) -> Session:
    """The session that is shown; started if need be."""
    job.start()
    return job.marked()


def _break(job: Job, value: str) -> None:
    """Add a breakpoint. ``value``: what it stops on, and the condition."""
    kind, _, condition = value.partition(" ")
    _session(job).break_on(condition or "True", on=cast("Kind", kind))


def _watch(job: Job, value: str) -> None:
    """Add a watch, given as ``NAME=EXPRESSION``."""
    _session(job).watch(*named_expression(value))


MARKS: Mapping[str, Callable[[Job, str], object]] = {
    "break": _break,
    "enable": lambda job, value: _session(job).enable(int(value)),
    "disable": lambda job, value: _session(job).enable(int(value), False),
    "remove": lambda job, value: _session(job).remove(int(value)),
    "watch": _watch,
    "unwatch": lambda job, value: _session(job).unwatch(value),
}
"""Per command of the panel, what it does with the value behind it."""
