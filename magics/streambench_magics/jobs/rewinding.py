"""Rewinds of a job of the notebook: by the sub-command, and by the buttons of its panel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from streambench.job.rewind import Rewind, planned_rewind
from streambench.planning.plan import job_name
from streambench_magics.jobs.jobs import Job, require_no_branch


def planned(job: Job, where: str, warn: Callable[[str], object]) -> AbstractContextManager[Rewind]:
    """A rewind of a job, not made yet. Raises what ``Rewind.add`` raises."""
    return planned_rewind(job.config, job_name(job.config, job.task), where, warn)


def rewind_and_start(job: Job, where: str, say: Callable[[str], object]) -> None:
    """Stop a job with a commit, rewind it, and start it there. Nothing is stopped where the place is none.
    ``say`` gets a line where the job runs elsewhere, before it ends there. Raises MagicError in a branch,
    FencedError where it was taken over meanwhile, and what ``Rewind.add`` raises."""
    require_no_branch(job, "rewind")
    job.report_takeover()
    with planned(job, where, unsaid):
        pass
    job.pause()
    job.stop()
    if ends := ends_elsewhere(job):
        say(ends)
    with planned(job, where, unsaid) as rewind:
        rewind.apply()
    job.start()


def ends_elsewhere(job: Job) -> str:
    """The processes that a rewind of a stopped job ends; empty where there are none."""
    return f"{elsewhere}; it ends there, at its last commit" if (elsewhere := job.elsewhere) else ""


def unsaid(text: str) -> None:
    """Leave a warning to the rewind itself."""
