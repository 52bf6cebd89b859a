"""``streambench deploy``: a job on Spark, over everything that has arrived since its last checkpoint."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from streambench.cli.job import JobArgument, JobOption, read_job
from streambench.cli.output import say, show_rows
from streambench.debug.view import counted

if TYPE_CHECKING:
    from streambench.spark.result import DeployedContainer, DeployProgress, DeployResult

_PLAIN_EVERY_S = 5.0
_COLUMNS = ("container", "partition", "from", "to", "messages", "seconds", "error")


def add_to(app: typer.Typer) -> None:
    app.command(name="deploy")(deploy)


def deploy(
    job: JobArgument = None,
    config: JobOption = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="MASTER", help="Where Spark runs: local[2], spark://host:7077, yarn, sc://host, ...", show_default="local[*]"),
    ] = None,
    every: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="Again every so many seconds, until Ctrl-C.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Run a job on Apache Spark until it has caught up with what its inputs hold now: the same tasks, the same checkpoints.

    Examples:

        streambench deploy job.properties --master "local[2]"

        streambench deploy job.properties --master spark://host:7077 --every 60

        streambench deploy job.properties --master "local[2]" --dry-run
    """
    if every == 0:
        raise typer.BadParameter("0 seconds: give more, or leave it out to do it once", param_hint="--every")
    settings = read_job(job, config)
    from streambench.spark import deploy as deploy_job

    show, display = deployment_display(Console(highlight=False))
    with display, _sigterm_as_ctrl_c():
        result: DeployResult = deploy_job(settings, master=master, every=every, dry_run=dry_run, progress=show)
    _tell(result)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """A service manager's stop, too, is to leave neither a Spark job nor a directory behind."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def deployment_display(console: Console) -> tuple[Callable[[DeployProgress], None], AbstractContextManager[object]]:
    """What shows the progress of a deployment on the console, and what it is shown in."""
    if console.is_terminal:
        live = Live(Text("starting Spark", style="dim"), console=console, auto_refresh=False, transient=True)
        return lambda progress: live.update(Text(_line(progress)), refresh=True), live
    shown = time.monotonic()

    def show(progress: DeployProgress) -> None:
        nonlocal shown
        if time.monotonic() - shown >= _PLAIN_EVERY_S:
            shown = time.monotonic()
            print(_line(progress), flush=True)

    return show, nullcontext()


def _line(progress: DeployProgress) -> str:
    done = progress.messages
    messages = counted(done, "message") if progress.total is None else f"{done:,} of {counted(progress.total, 'message')}"
    containers = f"{progress.done} of {counted(progress.containers, 'container')} done, {progress.active} running"
    return f"round {progress.round}: {messages}, {containers}, {progress.seconds:.1f} s"


def _tell(result: DeployResult) -> None:
    rows = [row for each in result.containers for row in _rows(each)]
    columns = [name for name in _COLUMNS if name != "error" or result.failed]
    if result.dry_run:
        columns = ["container", "partition", "from", "to"]
    right = ("container", "from", "to", "messages", "seconds")
    show_rows(rows, columns, as_json=False, empty=f"{result.job}: there was nothing to do", right=right)
    if result.dry_run:
        say(f"{result.job}: a dry run; nothing was started")
    else:
        done = f"{counted(result.messages, 'message')} in {counted(len(result.containers), 'container')}"
        said = f"; {result.passed_over}" if result.passed_over else ""
        say(f"{result.job}: {done} in {result.seconds:.1f} s{said}")
    if result.failed:
        print(f"error: {len(result.failed)} of {counted(len(result.containers), 'container')} failed", file=sys.stderr)
        raise typer.Exit(1)


def _rows(container: DeployedContainer) -> Iterator[dict[str, Any]]:
    """A row per partition. What is the container's as a whole stands in its first row, so that no column holds it twice."""
    counts = container.messages_by_partition if container.messages else dict.fromkeys(container.offsets, 0)
    whole = (f"{container.seconds:.1f}", container.error)
    for at, (ssp, (before, after)) in enumerate(sorted(container.offsets.items())):
        messages = counts.get(ssp) if counts else "" if at else container.messages
        values = (container.number, str(ssp), before, after, messages, *(("", "") if at else whole))
        yield dict(zip(_COLUMNS, values, strict=True))
