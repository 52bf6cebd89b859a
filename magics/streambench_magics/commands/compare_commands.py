"""The sub-commands of ``%stream`` that run messages again: crashes, comparisons, shrinking."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streambench.config import Config
from streambench.counts import counted
from streambench.debug.comparison.comparison import Comparison, compare
from streambench.debug.comparison.comparison_lines import comparison_lines
from streambench.debug.crash.crash_lines import crash_lines, report_lines
from streambench.debug.effects.effect_lines import more_lines
from streambench.debug.message_text import message_text, short_text
from streambench.debug.replay.shrinking import shrink, small_path
from streambench.debug.stopping.slices import Progress
from streambench.recording.file import check_target
from streambench.recording.recording import Recording
from streambench_magics.commands.commands import REPLAYED
from streambench_magics.commands.job_commands import JobCommands
from streambench_magics.commands.status_messages import late_status, status_line
from streambench_magics.errors import MagicError
from streambench_magics.jobs.jobs import Job

_LONGEST = 1_000
_EVERY = 100
_MOST_SHOWN = 10


class CompareCommands(JobCommands):
    """Methods of the magics, one per sub-command."""

    def _crash(self, args: Namespace) -> None:
        if args.everywhere and args.inside_commit:
            raise MagicError("--everywhere crashes inside of each commit, too: leave out --inside-commit")
        job = self.bench.job(args.name)
        session = self._still_session(job)
        with self._running(job):
            if not args.everywhere:
                crash = session.crash(inside_commit=args.inside_commit)
                print("\n".join(crash_lines(crash)))
                return
            with status_line(f"simulating a crash at every step of {job.name}") as update:

                def show(done: int, total: int) -> None:
                    if done % _EVERY == 0:
                        update(f"{done:,} of {total:,}")

                report = session.crash_everywhere(show)
            print("interrupted: " * bool(report.left) + "\n".join(report_lines(report)))

    def _compare(self, args: Namespace) -> None:
        if args.last is not None and args.over is not None:
            raise MagicError("over the last messages of the job, or --over something else: give one of them")
        names = [args.a] if args.b is None else [args.a, args.b]
        sides = [self.bench.version(each) for each in names]
        job = self.bench.job(args.job) if self.bench.jobs or args.job else None
        if len(sides) == 1:
            if job is None or job.session is None:
                raise MagicError(f"compare {names[0]} with what? Name a second task")
            sides.insert(0, job.session.container.factory)
            names = [f"{job.name} as it runs", *names]
        with late_status(f"comparing {names[0]} and {names[1]}") as update:
            comparison = self._compared(job, sides[0], sides[1], args, _in_two_passes(update))
        print("\n".join(comparison_lines(comparison, (names[0], names[1]))))

    def _compared(self, job: Job | None, a: Any, b: Any, args: Namespace, progress: Progress) -> Comparison:
        over, attributes = args.over, args.attributes
        if over is None:
            if job is None:
                raise MagicError("over which messages? Name a recording or a stream: --over WHAT")
            session = self._still_session(job)
            with self._running(job):
                last = args.last or REPLAYED
                return compare(a, b, session, last=last, attributes=attributes, progress=progress)
        config = None
        if not Path(over).is_file():
            is_own = job is not None and not job.is_replay
            system = over.partition(".")[0]
            config = job.config if job is not None and is_own else self.bench.config_with(system)
        if job is None:
            return compare(a, b, over, config=config, attributes=attributes, progress=progress)
        task = job.task if isinstance(a, Config) or isinstance(b, Config) else None
        with self._running(job):
            return compare(a, b, over, task=task, config=config, attributes=attributes, progress=progress)

    def _shrink(self, args: Namespace) -> None:
        path = Path(args.file).expanduser()
        to = small_path(path) if args.to is None else Path(args.to).expanduser()
        recording = Recording.read(path)
        check_target(to, "save")
        recorded = recording.header.task.name
        name = args.task or (recorded if recorded in self.bench.tasks else None)
        task = None if name is None else self.bench.version(name)
        with status_line(f"shrinking {path.name}, {counted(len(recording), 'message')}") as update:
            small = shrink(recording, task=task, progress=_shown(update))
        small.save(to)
        fail = "still fails" if len(small) == 1 else "still fail"
        print(f"{counted(len(small), 'message')} of {len(recording):,} {fail} alike: {to}")
        for message in list(small.decoded())[:_MOST_SHOWN]:
            key = "" if message.key is None else f"  key {short_text(message.key)}"
            print(f"        {message.ssp}@{message.offset}{key}  {message_text(message.message, _LONGEST)}")
        for line in more_lines(len(small) - _MOST_SHOWN):
            print(f"        {line}")


def _in_two_passes(update: Callable[[str], None]) -> Progress:
    """Show the progress of both passes: the messages run through both, then what they did is compared."""
    last, verb = 0, "run"

    def show(done: int, total: int) -> None:
        nonlocal last, verb
        verb = verb if done >= last else "compared"
        last = done
        update(f"{done:,} of {total:,} messages {verb}")

    return show


def _shown(update: Callable[[str], None]) -> Callable[[int, int], None]:
    def show(left: int, tried: int) -> None:
        update(f"{counted(left, 'message')} left, {counted(tried, 'run')}")

    return show
