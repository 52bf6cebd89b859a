"""The sub-commands of ``%stream`` about commits: commit, checkpoints and rewind."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from contextlib import closing
from typing import Any

from streambench.debug.view.panel_state import to_do_again
from streambench.job.rewind import Rewind
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import natural
from streambench.planning.pending_commits import pending_in
from streambench.planning.plan import job_name
from streambench_magics.commands.commands import PARSERS
from streambench_magics.commands.job_commands import JobCommands
from streambench_magics.commands.status_messages import say_if_busy, warn_of_pending
from streambench_magics.errors import MagicError
from streambench_magics.jobs.jobs import Job, require_no_branch
from streambench_magics.jobs.rewinding import ends_elsewhere, planned, unsaid
from streambench_magics.tables import Records

_ALL = "the value has all of them: pandas.DataFrame(_) shows it as a table"


class CheckpointCommands(JobCommands):
    """Methods of the magics, one per sub-command."""

    def _commit(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            job.commit()
        print(f"{job.name} is committed")

    def _checkpoints(self, args: Namespace) -> Records:
        job = self.bench.job(args.name)
        with contextlib.closing(checkpoint_manager(job.config, job_name(job.config, job.task))) as manager:
            if manager.directory is not None:
                warn_of_pending(pending_in(manager.directory))
        if args.history:
            return self._history(job)
        records: list[dict[str, Any]] = []
        with self._running(job):
            say_if_busy(job)
            # After a deployment the snapshot is older than the last commit.
            partitions = () if job.deployed is not None else job.snapshot().partitions
        for each in partitions:
            last = {
                "checkpoint": each.checkpointed,
                "position": each.position,
                "to do again": to_do_again([each]),
            }
            records += [{"task": task, "partition": str(each.ssp), **last} for task in each.tasks]
        if not records:
            return self._history(job, last=True)
        records.sort(key=lambda record: natural(record["task"]))
        figures = ["checkpoint", "position", "to do again"]
        return Records(["task", "partition", *figures], records, right=figures, more=_ALL)

    def _history(self, job: Job, *, last: bool = False) -> Records:
        with closing(checkpoint_manager(job.config, job_name(job.config, job.task))) as manager:
            kept = {task: [each] for task, each in manager.read_last().items()} if last else manager.history()
        # A line for each partition of each checkpoint. A checkpoint without a generation is of no commit.
        records = [
            {
                "task": task,
                "commit": f"{checkpoint.generation}.{checkpoint.sequence}" if checkpoint.generation else None,
                "partition": str(ssp),
                "checkpoint": offset,
            }
            for task in sorted(kept, key=natural)
            for checkpoint in kept[task]
            for ssp, offset in sorted(checkpoint.offsets.items())
        ]
        columns = (
            ["task", "partition", "checkpoint"] if last else ["task", "commit", "partition", "checkpoint"]
        )
        return Records(
            columns,
            records,
            right=["commit", "checkpoint"],
            note="" if records else f"{job.name} has no checkpoint yet",
            more=_ALL,
        )

    def _rewind(self, args: Namespace) -> None:
        job = self.bench.job(args.what[0] if args.what[1:] else None)
        if args.what[2:]:
            raise MagicError(f"a job and a place, at most; {PARSERS['rewind'].usage_line()}")
        require_no_branch(job, "rewind")
        self._report_takeover(job)
        session = job.session
        is_open = session is not None and (job.alive or session.can_resume)
        with planned(job, args.what[-1], unsaid if is_open else _warn) as rewind:
            if not is_open:
                self._apply(job, rewind, args.what[-1])
                return
        # The place was checked before anything is stopped. Stopping commits, so it is planned again.
        self._stop_job(job, "stopped, and rewound")
        with planned(job, args.what[-1], _warn) as rewind:
            self._apply(job, rewind, args.what[-1])

    def _apply(self, job: Job, rewind: Rewind, where: str) -> None:
        if ends := ends_elsewhere(job):
            print(ends)
        for task, places in rewind.places().items():
            print(f"{task}: goes on with {places}")
        rewind.apply()
        job.forget_ended()
        if job.config.names_below("stores."):
            stores = (
                "begin empty"
                if where == "oldest"
                else "stay as its last checkpoint has them"
                if where == "upcoming" or "@" in where
                else "are those of that commit"
            )
            print(f"the stores of {job.name} {stores}")
        print(f"{job.name} goes on from there with its next step or run")


def _warn(text: str) -> None:
    print(f"warning: {text}")
