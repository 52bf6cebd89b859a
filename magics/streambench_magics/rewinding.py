"""Rewinds of a job of the notebook: by the sub-command, and by the buttons of its panel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from streambench.job.rewind import Rewind
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.plan import job_name
from streambench.system.systems import Systems
from streambench_magics.jobs import Job, require_no_branch


@contextlib.contextmanager
def planned(job: Job, where: str, warn: Callable[[str], object]) -> Iterator[Rewind]:
    """A rewind of a job, not made yet. Raises what ``Rewind.add`` raises."""
    with (
        contextlib.closing(Systems(job.config)) as systems,
        contextlib.closing(checkpoint_manager(job.config, name := job_name(job.config, job.task))) as manager,
    ):
        rewind = Rewind(job.config, systems, name, manager, warn)
        rewind.add([where])
        yield rewind


def rewind_and_start(job: Job, where: str) -> None:
    """Stop a job with a commit, rewind it, and start it there. Nothing is stopped where the place is none.
    Raises MagicError in a branch, and what ``Rewind.add`` raises."""
    require_no_branch(job, "rewind")
    with planned(job, where, unsaid):
        pass
    job.pause()
    job.stop()
    with planned(job, where, unsaid) as rewind:
        rewind.apply()
    job.start()


def unsaid(text: str) -> None:
    """Leave a warning to the rewind itself."""
