"""The sub-commands of ``%stream`` that run messages again and compare: crashes and versions of a task."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from streambench.debug.crash_lines import crash_lines, report_lines
from streambench.debug.message_text import message_text
from streambench_magics.job_commands import JobCommands
from streambench_magics.status_messages import status_line
from streambench_magics.time_commands import seen_session

_SHORT = 60
_EVERY = 100


class CompareCommands(JobCommands):
    """Methods of the magics, one per sub-command."""

    def _crash(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        session = seen_session(job)
        with self._running(job):
            if not args.everywhere:
                crash = session.crash(inside_commit=args.inside_commit)
                print("\n".join(crash_lines(crash, _short)))
                return
            with status_line(f"simulating a crash at every step of {job.name}") as update:

                def show(done: int, total: int) -> None:
                    if done % _EVERY == 0:
                        update(f"{done:,} of {total:,}")

                report = session.crash_everywhere(show)
            print("\n".join(report_lines(report)))


def _short(value: Any) -> str:
    return message_text(value, _SHORT)
