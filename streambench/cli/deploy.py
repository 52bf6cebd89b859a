"""``streambench deploy``: a job on Spark, over everything that has arrived since its last checkpoint."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from streambench.cli.job import JobArgument, JobOption, JsonOption, read_job
from streambench.cli.output import print_json, say, show_rows, tell_after
from streambench.container.observe.snapshot import lag_between
from streambench.debug.view import counted

if TYPE_CHECKING:
    from streambench.spark.result import DeployedContainer, DeployProgress, DeployResult
    from streambench.spark.running import IfRunning

_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.25
_COLUMNS = ("container", "partition", "from", "to", "messages", "seconds", "error")


def add_to(app: typer.Typer) -> None:
    app.command(name="deploy")(deploy)


def deploy(
    job: JobArgument = None,
    config: JobOption = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="Where Spark runs: local[2], spark://host:7077, yarn, sc://host, ...",
            show_default="that of spark-submit, SPARK_REMOTE, spark.master, or local[*]",
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Again every so many seconds, until Ctrl-C."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    if_running: Annotated[
        str,
        typer.Option(
            metavar="refuse|take-over",
            help="Where the job runs already: refuse, or end that at its last commit.",
        ),
    ] = "refuse",
    json: JsonOption = False,
) -> None:
    """Run a job on Apache Spark until it has caught up with what its inputs hold now: the same tasks, the
    same checkpoints.

    --dry-run shows the plan and starts and writes nothing: containers, their tasks and partitions, the first
    offset that each would read, the one where it would end, and the lag in between. With --json there is one
    object per container, and no progress.

    Examples:

        streambench deploy job.properties --master "local[2]"

        streambench deploy job.properties --master spark://host:7077 --every 60

        streambench deploy job.properties --master "local[2]" --dry-run
    """
    if every == 0:
        raise typer.BadParameter("0 seconds: give more, or leave it out to do it once", param_hint="--every")
    if if_running not in ("refuse", "take-over"):
        raise typer.BadParameter(f"{if_running}: give refuse or take-over", param_hint="--if-running")
    settings = read_job(job, config)
    # Shown first: to import Spark's library and to start it takes seconds.
    show, display = (None, nullcontext()) if dry_run or json else deployment_display(Console(highlight=False))
    with display, _sigterm_as_ctrl_c():
        from streambench.spark import deploy as deploy_job

        result: DeployResult = deploy_job(
            settings,
            master=master,
            every=every,
            dry_run=dry_run,
            if_running=cast("IfRunning", if_running),
            progress=show,
        )
    if json:
        for each in result.containers:
            print_json(_object(each, dry_run=dry_run))
        _fail(result)
    else:
        _show(result)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """A service manager's stop, too, is to leave neither a Spark job nor a directory behind."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def deployment_display(
    console: Console,
) -> tuple[Callable[[DeployProgress], None], AbstractContextManager[object]]:
    """Return the function that shows the progress of a deployment, and its display: one line that changes.
    Where the console is no terminal it is a line every few seconds, the first one at once."""
    if console.is_terminal:
        live = Live(Text(_line(None, 0.0), style="dim"), console=console, auto_refresh=False, transient=True)
        display = _Display(lambda line: live.update(Text(line), refresh=True), _LIVE_EVERY_S)
        return display.show, _both(live, display)
    plain = _Display(lambda line: print(line, flush=True), _PLAIN_EVERY_S)
    return plain.show, plain


class _Display:
    """The latest progress, shown again every few seconds with the time that has passed, also while none
    comes: Spark starts meanwhile.

    Between two rounds nothing is shown. ``write`` is called on one thread at a time."""

    def __init__(
        self, write: Callable[[str], object], every_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._every_s = every_s
        self._now = now
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._latest: DeployProgress | None = None
        self._is_between = False
        self._came = self._shown = now()
        self._thread = threading.Thread(target=self._repeat, name="streambench-deploy-display", daemon=True)

    def __enter__(self) -> _Display:
        self._came = self._now()
        self._put()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def show(self, progress: DeployProgress) -> None:
        """Take a newer progress. What is new in kind is shown at once."""
        with self._lock:
            before, self._latest, self._came = self._latest, progress, self._now()
            is_other = before is None or (before.round, before.stage) != (progress.round, progress.stage)
            self._is_between = progress.done >= progress.containers
        if is_other or self._now() - self._shown >= self._every_s:
            self._put()

    def _repeat(self) -> None:
        while not self._ended.wait(max(0.05, self._shown + self._every_s - self._now())):
            if self._now() - self._shown >= self._every_s:
                self._put()

    def _put(self) -> None:
        with self._lock:
            self._shown = self._now()
            if not self._is_between:
                self._write(_line(self._latest, self._shown - self._came))


@contextmanager
def _both(outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> Iterator[None]:
    with outer, inner:
        yield


def _line(progress: DeployProgress | None, since_s: float) -> str:
    """``since_s``: how long ago this was so."""
    if progress is None:
        return "planning"  # without a time: that of the round begins only now
    seconds = progress.seconds + since_s
    if progress.stage == "starting Spark":
        return f"round {progress.round}: starting Spark, {seconds:.1f} s"
    done = progress.messages
    messages = (
        counted(done, "message")
        if progress.total is None
        else f"{done:,} of {counted(progress.total, 'message')}"
    )
    containers = (
        f"{progress.done} of {counted(progress.containers, 'container')} done, {progress.active} running"
    )
    return f"round {progress.round}: {messages}, {containers}, {seconds:.1f} s"


def _show(result: DeployResult) -> None:
    rows = [row for each in result.containers for row in _rows(each)]
    columns = [name for name in _COLUMNS if name != "error" or result.failed]
    if result.dry_run:
        columns = ["container", "tasks", "partition", "from", "to", "lag"]
    right = ("container", "from", "to", "lag", "messages", "seconds")
    show_rows(rows, columns, as_json=False, empty=f"{result.job}: there was nothing to do", right=right)
    if result.dry_run:
        lags = ", ".join(f"{_lag(each.span)} in container {each.number}" for each in result.containers)
        say(f"{result.job}: a dry run; nothing was started; lag: {lags}")
    else:
        done = f"{counted(result.messages, 'message')} in {counted(len(result.containers), 'container')}"
        said = f"; {result.passed_over}" if result.passed_over else ""
        say(f"{result.job}: {done} in {result.seconds:.1f} s{said}")
        tell_after(result)
    _fail(result)


def _fail(result: DeployResult) -> None:
    if result.failed:
        print(
            f"error: {len(result.failed)} of {counted(len(result.containers), 'container')} failed",
            file=sys.stderr,
        )
        raise typer.Exit(1)


def _rows(container: DeployedContainer) -> Iterator[dict[str, Any]]:
    """A row per partition. What is the container's as a whole stands in its first row, so that no column
    holds it twice."""
    counts = container.messages_by_partition if container.messages else dict.fromkeys(container.offsets, 0)
    tasks, seconds = ", ".join(container.tasks), f"{container.seconds:.1f}"
    for at, (ssp, (before, after)) in enumerate(sorted(container.offsets.items())):
        messages = counts.get(ssp) if counts else "" if at else container.messages
        of_whole = (
            {"tasks": "", "seconds": "", "error": ""}
            if at
            else {"tasks": tasks, "seconds": seconds, "error": container.error}
        )
        row = {"container": container.number, "partition": str(ssp), "from": before, "to": after}
        yield {**row, "lag": _lag(lag_between(before, after)), "messages": messages, **of_whole}


def _lag(lag: int | None) -> str:
    return "unknown" if lag is None else str(max(lag, 0))


def _object(container: DeployedContainer, *, dry_run: bool) -> dict[str, Any]:
    """A container as JSON has it; of a dry run without what only a run knows."""
    partitions: list[dict[str, Any]] = [
        {"partition": str(ssp), "from": before, "to": after}
        for ssp, (before, after) in sorted(container.offsets.items())
    ]
    row: dict[str, Any] = {"container": container.number, "tasks": list(container.tasks)}
    if dry_run:
        for each in partitions:
            each["lag"] = lag_between(each["from"], each["to"])
        return {**row, "lag": container.span, "partitions": partitions}
    counts = container.messages_by_partition
    for each, ssp in zip(partitions, sorted(container.offsets), strict=True):
        each["messages"] = counts.get(ssp) if counts or not container.messages else None
    whole = {
        "messages": container.messages,
        "seconds": container.seconds,
        "error": container.error,
        "attempt": container.attempt,
    }
    return {**row, **whole, "partitions": partitions}
