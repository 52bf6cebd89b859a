"""The base of sub-commands that work on jobs: the jobs, their panels, and errors as a notebook shows them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from IPython.core.interactiveshell import InteractiveShell

from streambench.debug.control.session import Session
from streambench.debug.stopping.conditions import Condition
from streambench.debug.view.panel_state import static_view
from streambench.errors import FencedError, StreambenchError, TaskError
from streambench.job.failure import user_frames
from streambench_magics.commands.command_parser import Parser
from streambench_magics.commands.status_messages import cut_recording_text, say
from streambench_magics.commands.travel_progress import show_travel_progress
from streambench_magics.errors import MagicError, interrupted, task_failed
from streambench_magics.jobs.jobs import Job, showing_delay
from streambench_magics.jobs.task_code import task_file_path
from streambench_magics.jobs.workbench import Workbench
from streambench_magics.panel.panel import STOPPED, Panel, show, static


class JobCommands:
    """The workbench of one IPython shell, with the panels that are shown. ``_panels``: by job."""

    shell: InteractiveShell
    bench: Workbench
    _panels: dict[str, Panel]

    def _close_panel(self, name: str, note: str) -> None:
        panel = self._panels.pop(name, None)
        if panel is not None:
            panel.close(note)
            if panel.reloaded and note == STOPPED:
                show(static(static_view(panel.job), note))

    def _start(self, job: Job) -> None:
        """Start a job that is not started, and say where it goes on."""
        before, session, cut = job.state, job.session, cut_recording_text(job)
        where = job.goes_on
        rerun = 0 if session is None else session.rerun_to_resume
        if over := job.takeover_notice():
            print(over)
        if job.start():
            had = "been abandoned" if session is not None and session.container.abandoned else before
            print(f"{job.name} had {had}; it goes on {where}")
            if cut:
                print(cut)
            if rerun:
                what = "the message before it runs" if rerun == 1 else f"the {rerun:,} messages before it run"
                print(
                    f"{what} again on a copy, to rebuild the state: prints come twice, outputs do not"
                )

    def _report_takeover(self, job: Job) -> None:
        """Raise FencedError, once, where another process has taken it over and no command has said so."""
        with self._running(job):
            job.report_takeover()

    def _stop_job(self, job: Job, note: str, where: str = "") -> None:
        """Commit and stop a job that goes on elsewhere, or at another place. ``note``: below its panel."""
        was_alive = job.alive
        with self._running(job):
            job.pause()
            job.stop()
        if was_alive:
            self._close_panel(job.name, note)
            print(f"{job.name} is stopped{where}, with everything committed")

    def _check_condition(self, until: str | None) -> None:
        """Raise ConditionError for what is no condition, before the job is started or paused for it."""
        if until is not None:
            Condition(until, self.bench.namespace)

    @contextlib.contextmanager
    def _running(self, job: Job) -> Iterator[None]:
        """Show a failure, or where the task was when it was interrupted, with the user's own frames alone;
        show what is waited for."""
        try:
            with showing_delay(job, say):
                yield
        except TaskError as error:
            session = job.session
            goes_on = session is not None and session.can_resume
            file = task_file_path(job.code)
            failed = task_failed(
                self.shell, error, job.name,
                state="in a branch" if session is not None and session.branched else job.state,
                goes_on=goes_on, file=file,
                message=None if session is None else session.message_of(error),
                more=[cut_recording_text(job)],
            )  # fmt: skip
            raise failed from error.__cause__
        except StreambenchError as error:
            frames = user_frames(error)  # of a serde or a chooser of the user's, in a cell
            back = f"%stream step {job.name} takes it over again, at the last commit of that start"
            for note in (frames, back * isinstance(error, FencedError), cut_recording_text(job)):
                if note and note not in getattr(error, "__notes__", []):
                    error.add_note(note)
            raise
        except KeyboardInterrupt as error:
            session = job.session
            at = session.message if session is not None and session.can_resume else None
            stuck = session is not None and session.left_alone
            raise interrupted(self.shell, error, job.name, job.state, at, is_stuck=stuck) from None

    @contextlib.contextmanager
    def _travelling(self, job: Job, session: Session, *, swapped: int = 0) -> Iterator[None]:
        """As ``_running``, for what runs messages again. ``swapped``: so many of them through new code."""
        was_live, had_branch = session.live, session.branched
        with self._running(job), show_travel_progress(session, swapped=swapped):
            try:
                yield
            except KeyboardInterrupt:
                if not session.running:  # else it has not begun to go anywhere
                    print(_place_after_interrupt(job, session, was_live=was_live, had_branch=had_branch))
                raise

    def _begun_session(self, job: Job) -> Session:
        """The session of a job, which may be closed, or run. Raises MagicError where the job has not
        started."""
        if job.session is None:
            raise MagicError(f"{job.name} is {job.state}: it has no history; %stream step begins one")
        return job.session

    def _still_session(self, job: Job) -> Session:
        """The session of a job, which may be closed; paused where it runs, which is said. Raises MagicError
        where the job has not started. All that may be wrong is checked before."""
        session = self._begun_session(job)
        if session.running:
            with self._running(job):
                session.pause()
            print(
                f"{job.name} was running: it {'has' if job.state == 'failed' else 'is'} {job.state} now, at "
                f"{session.position:,}"
            )
        return session


def say_if_dropped(session: Session, *, had_branch: bool) -> None:
    """Say that a way through time has dropped the branch that it began in."""
    if had_branch and not session.branched:
        print("the branch is dropped; %stream swap begins one again")


def _place_after_interrupt(job: Job, session: Session, *, was_live: bool, had_branch: bool) -> str:
    """The place of a job whose way through time was interrupted."""
    position = f"at {session.position:,}"
    if not session.live:
        return f"{job.name} stays in the past, {position} of {session.latest:,}"
    if was_live:
        return f"{job.name} stays {'live' if job.alive else job.state}, {position}"
    dropped = "; its branch is dropped" if had_branch else ""
    return f"{job.name} is live again, {position}{dropped}"


def name_and_number(what: list[str], parser: Parser, jobs: Collection[str] = ()) -> tuple[str | None, int]:
    """A job and a number of messages (1), both of which may be left out. ``jobs``: those that there are.
    Raises MagicError."""
    name, number = None, "1"
    if what and _is_figures(what[-1].removeprefix("-")):
        *what, number = what
    if what:
        name, *what = what
    if what:
        raise MagicError(f"a job and a number of messages, at most; {parser.usage_line()}")
    figures = number.replace(",", "")
    if int(figures) < 1:
        raise MagicError(f"'{number}' is not a number of 1 or more; {parser.usage_line()}")
    if name is not None and jobs and name not in jobs:
        raise MagicError(
            f"there is no job {name}, and it is no number of messages (write it in figures); there is "
            f"{', '.join(jobs)}; {parser.usage_line()}"
        )
    return name, int(figures)


def check_store(name: str | None, known: Collection[str], jobs: Collection[str] = ()) -> None:
    """Raise MagicError for a store that is not known. ``name``: None for all of them; ``jobs``: those that
    may be meant instead."""
    if name is not None and name not in known:
        is_job = f"; for the job: --job {name}" if name in jobs else ""
        raise MagicError(
            f"there is no store '{name}' (there are: {', '.join(sorted(known)) or 'none at all'}){is_job}"
        )


def _is_figures(text: str) -> bool:
    return text.replace(",", "").isdecimal()
