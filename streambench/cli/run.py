"""``streambench run``: a job on this machine, and a display of it while it runs."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, structs

from streambench.cli.job import JobArgument, JobOption, JsonOption, complete_of, named_job, read_job
from streambench.cli.option_groups import Option, with_options
from streambench.cli.output import live_console, print_error, print_json, print_notes, print_wait, warn
from streambench.cli.running_option import RunningOption
from streambench.counts import counted
from streambench.debug.view.rates import Rates
from streambench.debug.view.view import headline, snapshot_table
from streambench.debug.view.waiting import WaitingHint, begun_at_their_ends
from streambench.errors import StreambenchError
from streambench.job.failure import user_frames
from streambench.job.waits import showing_waits

if TYPE_CHECKING:
    from rich.console import Console

    from streambench.config import Config
    from streambench.container.container import Until
    from streambench.container.observe.snapshot import ContainerSnapshot
    from streambench.container.outputs.dead_letters import ErrorCounts
    from streambench.job.processes import OnSnapshots
    from streambench.job.restarts import Restart
    from streambench.job.result import RunResult
    from streambench.job.running import IfRunning


class RunOptions(Struct):
    """The options that say what runs, how far, and what is shown of it."""

    until: Annotated[
        str | None,
        typer.Option(
            metavar="caught-up",
            help="Stop once all inputs are read to their head.",
            autocompletion=complete_of("caught-up"),
        ),
    ] = None
    messages: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after so many messages; wait for them.")
    ] = None
    container: Annotated[
        int | None,
        typer.Option(min=0, metavar="I", help="Run this container only; the others run elsewhere."),
    ] = None
    join: Annotated[
        bool, typer.Option("--join", help="Share the tasks with all others that are started like this.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing while it runs.")] = False
    watch: Annotated[
        bool, typer.Option("--watch", help="Step it and look inside on the whole terminal; ? lists the keys.")
    ] = False

    @property
    def goal(self) -> Until:
        """The end of the run; None: until it is stopped."""
        return self.messages if self.messages is not None else "caught-up" if self.until else None

    def check(self, *, json: bool) -> None:
        """Raise BadParameter where options do not go together, or there is no terminal to watch on."""
        if self.until is not None and self.until != "caught-up":
            raise typer.BadParameter(
                f"'{self.until}': there is only caught-up; for a number of messages give --messages",
                param_hint="--until",
            )
        if self.join and (self.goal is not None or self.container is not None):
            raise typer.BadParameter(
                "--join runs until Ctrl-C, with its share of the tasks: leave out --until, --messages and "
                "--container"
            )
        if self.until is not None and self.messages is not None:
            raise typer.BadParameter("--until and --messages exclude each other: give one of them")
        if self.watch:
            for name, given in (("--quiet", self.quiet), ("--json", json), ("--join", self.join)):
                if given:
                    raise typer.BadParameter(f"it does not go with {name}", param_hint="--watch")
            from streambench.cli.watch import check_terminal

            check_terminal()


class FailureOptions(RunningOption):
    """The options for a job that runs already, or fails."""

    capture: Annotated[Path | None, Option(metavar="DIR", help="Where a failure writes its capture.")] = None


_DEFAULTS = RunOptions()
_FAILURE_DEFAULTS = FailureOptions()
_PLAIN_EVERY_S = 5.0
_UNCHANGED_EVERY_S = 60.0

_ENDINGS = {
    "caught-up": "caught up with its inputs",
    "end-of-stream": "its inputs have ended",
    "count": "reached the number of messages",
    "condition": "reached the condition",
    "shutdown": "shut down by its tasks",
    "signal": "stopped",
}


@with_options("options", RunOptions)
@with_options("failure", FailureOptions)
def run(
    job: JobArgument = None,
    config: JobOption = None,
    options: RunOptions = _DEFAULTS,
    failure: FailureOptions = _FAILURE_DEFAULTS,
    json: JsonOption = False,
) -> None:
    """Run a job on this machine, until Ctrl-C or as the options say.

    Ctrl-C stops it cleanly: the message it is at is finished, and everything is committed; SIGTERM and the
    end of the terminal do the same. A second Ctrl-C stops it at once. Several containers
    (job.container.count) run in a process each; one whose process dies is started again from its checkpoint.
    With --join several such commands are one group. Each has its share of the tasks, also of one that ends or
    dies, until it ends itself. With --watch: the panel of the notebook on the whole terminal, with keys to
    pause, step, go back and rewind. All containers are in this process then, and what is recorded takes some
    of its speed. With --json: a line per container every few seconds, for each such restart, and at the end.
    The job is a file of key=value lines. It needs task.class=late.py:Late (a class of the file late.py beside
    it) and task.inputs=log.flights. Its streams need systems.log.samza.factory=log and
    systems.log.path=streams. "streambench streams create" makes the input, "streambench send" fills it,
    "streambench keys" lists all keys.

    Examples:

        streambench run job.properties

        streambench run job.properties --until caught-up

        streambench run job.properties --messages 100

        streambench run job.properties --watch
    """
    options.check(json=json)
    settings = read_job(job, config)
    if failure.capture is not None:
        path = failure.capture.absolute()
        settings = settings.with_values({"task.capture": "on", "task.capture.path": path})
    if options.watch:
        _run_watched(settings, options, failure.if_running)
    else:
        sending = f"-c {shlex.quote(str(job or config))}"
        hint = WaitingHint(settings, lambda stream: f"streambench send {stream} {sending}", options.messages)
        with nullcontext() if options.quiet else showing_waits(print_wait):
            _run_shown(settings, options, hint, failure.if_running, json=json)


def _run_watched(settings: Config, options: RunOptions, if_running: IfRunning) -> None:
    """Run the job on the whole terminal. Raises Exit where it was stopped before its goal."""
    from streambench.cli.watch import watch
    from streambench.job.starting import starting

    number = options.container
    alone = starting(settings, named_job(settings), "run", if_running, container=number)
    with showing_waits(print_wait), alone:
        ended = watch(settings, options.goal, number)
    _show_end(ended, options.goal)


def _run_shown(
    settings: Config, options: RunOptions, hint: WaitingHint, if_running: IfRunning, *, json: bool
) -> None:
    """Run the job with a table or lines of its progress. Raises Exit where it was stopped before its goal."""
    from streambench.job.run import run as run_job

    goal = options.goal
    lines = _JsonLines() if json else None
    show: OnSnapshots | None = None
    display: AbstractContextManager[object] = nullcontext()
    if lines:
        show = None if options.quiet else lines.show
    elif not options.quiet:
        shown, display = run_display(live_console())
        show = _with_goal(shown, goal) if isinstance(goal, int) else shown
    last: list[ContainerSnapshot] = []
    try:
        with display:
            result = run_job(
                settings,
                goal,
                container=options.container,
                on_snapshots=_keeping(last, show) if goal == "caught-up" else _with_hint(show, hint),
                on_restart=lines.restarted if lines else None,
                join=options.join,
                on_hang=partial(_give_up, display),
                if_running=if_running,
            )
    except SystemExit as end:
        # It must not end this command as if all were done.
        raise _exited(end) from end
    if lines:
        lines.ended(result)
        _check_end(result, goal)
    else:
        _show_end(result, goal)
    if goal == "caught-up":
        for stream, why in begun_at_their_ends(last, settings).items():
            warn(f"{stream} {why}")


def _show_end(result: RunResult, goal: Until) -> None:
    """Print the summary of a run. Raises Exit where it was stopped before its goal."""
    print(_summary(result))
    print_notes(result)
    _check_end(result, goal)


def _check_end(result: RunResult, goal: Until) -> None:
    if result.ended == "signal" and goal is not None:
        print("error: it was stopped before its goal; everything so far is committed", file=sys.stderr)
        raise typer.Exit(1)


def _with_goal(show: OnSnapshots, messages: int) -> OnSnapshots:
    """Show snapshots, and say before the first one that the run waits for messages.

    This is not said for a job that could not be started, whose error is to stand alone."""
    is_announced = False

    def shown(snapshots: Sequence[ContainerSnapshot]) -> None:
        nonlocal is_announced
        if not is_announced and all(each.state != "failed" for each in snapshots):
            is_announced = True
            count = counted(messages, "message")
            print_wait(f"it stops after {count}, and waits for them if need be (Ctrl-C ends it)")
        show(snapshots)

    return shown


def _keeping(last: list[ContainerSnapshot], show: OnSnapshots | None) -> OnSnapshots:
    """Show snapshots, and keep the last ones in a list."""

    def shown(snapshots: Sequence[ContainerSnapshot]) -> None:
        last[:] = snapshots
        if show is not None:
            show(snapshots)

    return shown


def _with_hint(show: OnSnapshots | None, hint: WaitingHint) -> OnSnapshots | None:
    """Show snapshots, and say so once where a run that does not end by itself has nothing to read."""
    if show is None:
        return None

    def shown(snapshots: Sequence[ContainerSnapshot]) -> None:
        show(snapshots)
        if text := hint.of(snapshots):
            print_wait(f"{text} (Ctrl-C stops this cleanly)")

    return shown


def _give_up(display: AbstractContextManager[object], error: StreambenchError) -> None:
    """End this process although its container does not: as after a crash, the next start goes on from the
    last checkpoint."""
    try:
        display.__exit__(None, None, None)
        print_error(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _exited(end: SystemExit) -> StreambenchError:
    error = StreambenchError(
        f"the task called sys.exit({end.code!r}); nothing since the last checkpoint is committed"
    )
    if frames := user_frames(end):
        error.add_note(frames)
    return error


def run_display(
    console: Console,
) -> tuple[Callable[[Sequence[ContainerSnapshot]], None], AbstractContextManager[object]]:
    """Return the function that shows snapshots of a running job, and the display that it uses."""
    if not console.is_terminal:
        return _Lines().show, nullcontext()
    from rich.live import Live

    live = Live(console=console, auto_refresh=False)
    rates, began = Rates(), time.monotonic()

    def show(snapshots: Sequence[ContainerSnapshot]) -> None:
        rates.add(snapshots)
        height = console.size.height - 1  # the cursor's line
        shown = snapshot_table(
            snapshots, rates, max_rows=height, elapsed_s=time.monotonic() - began, height=height
        )
        live.update(shown, refresh=True)

    return show, live


class _Lines:
    """The display for a log: a line every few seconds, while nothing changes one a minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._rates = Rates()
        self._now = now
        self._began = self._shown = now()
        self._before: object = None

    def show(self, snapshots: Sequence[ContainerSnapshot]) -> None:
        self._rates.add(snapshots)
        now = self._now()
        news = [
            (each.state, each.reason, each.processed, each.error_counts, each.restoring, each.lag)
            for each in snapshots
        ]
        if now - self._shown >= (_PLAIN_EVERY_S if news != self._before else _UNCHANGED_EVERY_S):
            self._shown, self._before = now, news
            print(headline(snapshots, self._rates, elapsed_s=now - self._began).plain, flush=True)


class _JsonLines:
    """The same for programs: what each container is at, one line for each."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def show(self, snapshots: Sequence[ContainerSnapshot]) -> None:
        now = time.monotonic()
        if now - self._shown >= _PLAIN_EVERY_S:
            self._shown = now
            for each in snapshots:
                figures = {"processed": each.processed, "lag": each.lag}
                _show("progress", container=each.container, state=each.state, reason=each.reason, **figures)

    def restarted(self, restart: Restart) -> None:
        _show("restart", **structs.asdict(restart))

    def ended(self, result: RunResult) -> None:
        for each in result.containers:
            offsets = {str(ssp): list(span) for ssp, span in each.offsets.items()}
            plain = {"offsets": offsets, "passed_over": _plain(each.passed_over)}
            _show("end", **{**structs.asdict(each), **plain})


def _plain(passed_over: ErrorCounts) -> dict[str, object]:
    """For JSON: partitions as text, as everywhere."""
    kinds = [{**structs.asdict(each), "ssp": each.ssp and str(each.ssp)} for each in passed_over.kinds]
    return {**structs.asdict(passed_over), "kinds": kinds}


def _show(event: str, **what: object) -> None:
    print_json({"event": event, **what})
    sys.stdout.flush()


def _summary(result: RunResult) -> str:
    done = counted(result.messages, "message") + (
        f" in {len(result.containers)} containers" if len(result.containers) > 1 else ""
    )
    rate = f", {result.messages / result.seconds:,.0f}/s" if result.seconds else ""
    said = f"{result.passed_over}; " if result.passed_over else ""
    again = "".join(
        f"; container {each.container} was started again {_times(each.restarts)}"
        for each in result.containers
        if each.restarts
    )
    ended = f"{result.job}: {_ENDINGS[result.ended]}; {done} in {result.seconds:.1f} s{rate}"
    return f"{ended}; {said}committed{again}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
