"""``streambench deploy``: a job on Spark, over everything that has arrived since its last checkpoint."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from streambench.cli.deploy_display import deploy_display
from streambench.cli.deploy_options import DeployOptions
from streambench.cli.deploy_rows import FIGURES, columns_of, dry_run_line, idle_line, is_idle, rows_of
from streambench.cli.job import JobOption, JsonOption, complete_of, read_job
from streambench.cli.option_groups import OptionError, with_options
from streambench.cli.output import live_console, print_json, print_notes, show_rows
from streambench.container.observe.snapshot import lag_between
from streambench.counts import counted
from streambench.job.signals import StopSignals

if TYPE_CHECKING:
    from streambench.config import Config
    from streambench.job.running import IfRunning
    from streambench.spark.backfill import Backfill
    from streambench.spark.result import DeployedContainer, DeployProgress, DeployResult
    from streambench.spark.service import JobStatus, ServiceStatus


JobsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[JOB.properties]...", help="The jobs; one session serves all.", show_default=False
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="MASTER",
        help="Where Spark runs: local[2], spark://host:7077, yarn, sc://host, ...",
        autocompletion=complete_of("local[2]", "local[*]", "spark://", "yarn", "sc://"),
        show_default="that of spark-submit, SPARK_REMOTE, spark.master, or local[*]",
    ),
]


class ServiceOptions(Struct):
    """The options of a deployment that goes on: ``every`` so many seconds."""

    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Again every so many seconds, until Ctrl-C, which cancels a round, or SIGTERM, which lets "
            "it end. A round that fails is tried again, after longer and longer pauses. The exit code is 1 "
            "where the last round of a job failed, or another start has taken the job over.",
        ),
    ] = None
    status: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --every: the file that holds the status, as JSON."),
    ] = None
    health: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="With --every: answer /healthz on this port of 127.0.0.1.",
        ),
    ] = None

    stuck_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="With --every: /healthz is 503 while a round has shown no progress for so long.",
            show_default="120, 5 x --every or 3 x the last round, the longest of them",
        ),
    ] = None

    def check(self) -> None:
        """Raise BadParameter for options that do not go together."""
        if self.every == 0:
            what = "0 seconds: give more, or leave it out to do it once"
            raise typer.BadParameter(what, param_hint="--every")
        if self.stuck_after == 0:
            raise typer.BadParameter("0 seconds: give more, or leave it out", param_hint="--stuck-after")
        given = {"--status": self.status, "--health": self.health, "--stuck-after": self.stuck_after}
        if self.every is None and (wrong := next((key for key in given if given[key] is not None), None)):
            raise typer.BadParameter(
                "it shows a deployment that goes on: give --every SECONDS", param_hint=wrong
            )


@with_options("service", ServiceOptions)
@with_options("options", DeployOptions)
def deploy(
    jobs: JobsArgument = None,
    config: JobOption = None,
    master: MasterOption = None,
    options: DeployOptions = DeployOptions(),  # noqa: B008
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress, only the result.")] = False,
    service: ServiceOptions = ServiceOptions(),  # noqa: B008
    json: JsonOption = False,
    # That of python -m streambench.spark.
    archive: Annotated[Path | None, typer.Option("--archive", hidden=True)] = None,
) -> None:
    """Run a job on Apache Spark until it has caught up with what its inputs hold now: the same tasks, the
    same checkpoints.

    --dry-run shows the plan, and starts and writes nothing. The plan has containers, their tasks and
    partitions, the first offset that each would read, the last one, and the lag between them. With --json
    there is one object per container, and no progress.

    Examples:

        streambench deploy job.properties --master "local[2]"

        streambench deploy job.properties --master spark://host:7077 --every 60

        streambench deploy job.properties --master "local[2]" --containers 4 --by-lag --dry-run

        streambench deploy a.properties b.properties --every 60 --status status.json --health 8090

        streambench deploy job.properties --backfill fixed --from timestamp:2026-03-01 --to upcoming
    """
    range = _range(options, service)
    only_one = "--dry-run" if options.dry_run else "--backfill" if range is not None else None
    given = [*(jobs or ()), *([] if config is None else [config])]
    settings = _settings(given if archive is None else _with_code_of(archive, given), options, only_one)
    # Shown first: to import Spark's library and to start it takes seconds.
    display = None if options.dry_run or json or quiet else deploy_display(live_console())
    show = None if display is None else display.show
    results: list[DeployResult] = []
    statuses: list[JobStatus] = []
    try:
        with display or nullcontext():
            if service.every is not None:
                results += _serve(settings, service, master, options.if_running, show, statuses)
            else:
                for each in _once(settings, range, master, options, show):
                    results.append(each)
    finally:  # where a later job raised, too
        for result in results:
            _show(result, as_json=json, is_named=len(settings) > 1, is_backfill=range is not None)
    _fail_service(statuses, results)
    _show_outputs(settings[0], None if json or options.dry_run else range)
    _fail(results)


def _range(options: DeployOptions, service: ServiceOptions) -> Backfill | None:
    """The range of a backfill. Raises BadParameter for options that do not go together."""
    service.check()
    try:
        range = options.range()
    except OptionError as error:
        raise typer.BadParameter(str(error), param_hint=error.flag) from None
    if range is not None and service.every is not None:
        raise typer.BadParameter("a backfill has an end: leave it out", param_hint="--every")
    return range


def _settings(jobs: Sequence[Path], options: DeployOptions, only_one: str | None) -> list[Config]:
    """The configurations of the jobs. ``only_one``: an option that goes with one job alone."""
    if len(jobs) > 1 and only_one is not None:
        raise typer.BadParameter(f"{len(jobs)} jobs: give one with {only_one}", param_hint=only_one)
    return [options.configured(read_job(each)) for each in jobs or (None,)]


def _with_code_of(archive: Path, jobs: Sequence[Path]) -> list[Path]:
    """A packaged job, under each of the configurations that are given instead of its own."""
    from streambench.spark.package import with_configuration

    found = [each if each.suffix == ".zip" else with_configuration(archive, each) for each in jobs]
    return found or [archive]


def _once(
    settings: Sequence[Config],
    range: Backfill | None,
    master: str | None,
    options: DeployOptions,
    show: Callable[[DeployProgress], None] | None,
) -> Iterator[DeployResult]:
    """One round of each job, one after the other."""
    from streambench.spark import backfill, deploy_all
    from streambench.spark import deploy as deploy_job

    dry_run, if_running = options.dry_run, options.if_running
    with _sigterm_as_ctrl_c():
        if range is not None:
            yield backfill(
                settings[0], range, master=master, dry_run=dry_run, if_running=if_running, progress=show
            )
        elif len(settings) == 1:
            yield deploy_job(
                settings[0], master=master, dry_run=dry_run, if_running=if_running, progress=show
            )
        else:
            yield from deploy_all(settings, master=master, if_running=if_running, progress=show)


def _serve(
    settings: Sequence[Config],
    service: ServiceOptions,
    master: str | None,
    if_running: IfRunning,
    show: Callable[[DeployProgress], None] | None,
    statuses: list[JobStatus],
) -> list[DeployResult]:
    """Rounds until a signal ends them. ``statuses`` becomes those of the jobs, also where this raises."""
    from streambench.spark import serve
    from streambench.spark.health import HealthServer, StatusFile

    file = None if service.status is None else StatusFile(service.status)
    server = None if service.health is None else HealthServer(service.health)

    def report(status: ServiceStatus) -> None:
        statuses[:] = status.jobs
        if server is not None:
            server.show(status)
        if file is not None:  # the last, as it may raise
            file.write(status)

    stop = threading.Event()
    assert service.every is not None
    try:
        with StopSignals(stop.set, (signal.SIGTERM,), after="the current round"):
            return serve(
                settings, every=service.every, master=master, if_running=if_running,
                stuck_after=service.stuck_after, report=report, stop=stop, progress=show,
            )  # fmt: skip
    finally:
        if server is not None:
            server.close()


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


def _show(result: DeployResult, *, as_json: bool, is_named: bool, is_backfill: bool) -> None:
    """Print a result. ``is_named``: its objects name the job, as there are several."""
    if as_json:
        named = {"job": result.job} if is_named else {}
        for each in result.containers:
            print_json({**named, **_object(each, dry_run=result.dry_run)})
        return
    if is_idle(result):
        print(idle_line(result.job, result, is_backfill=is_backfill))
        return
    empty = f"{result.job}: there was nothing to do"
    show_rows(rows_of(result), columns_of(result), as_json=False, empty=empty, right=FIGURES)
    if result.dry_run:
        print(dry_run_line(result))
    else:
        done = f"{counted(result.messages, 'message')} in {counted(len(result.containers), 'container')}"
        said = f"; {result.passed_over}" if result.passed_over else ""
        print(f"{result.job}: {done} in {result.seconds:.1f} s{said}")
        print_notes(result)


def _fail_service(statuses: Sequence[JobStatus], results: Sequence[DeployResult]) -> None:
    """Print which jobs of a service have no round that ended well, and exit with 1 where one has failed."""
    shown = {result.job for result in results}
    for each in statuses:
        if each.state == "taken over":
            print(f"error: {each.error}", file=sys.stderr)
        elif each.failed:
            print(f"error: {each.failed}", file=sys.stderr)
    if silent := [each.job for each in statuses if not each.error and each.job not in shown]:
        print(f"{', '.join(silent)}: no round has ended well", file=sys.stderr)
    if any(each.failures or each.state == "taken over" for each in statuses):
        raise typer.Exit(1)


def _show_outputs(config: Config, range: Backfill | None) -> None:
    """Print the streams that a backfill has sent to."""
    if range is not None:
        outputs = ", ".join(map(str, range.outputs(config)))
        print(f"  the outputs of {range.name}: {outputs or 'none'}")


def _fail(results: Sequence[DeployResult]) -> None:
    """Exit with 1 where a container has failed."""
    for each in results:
        if each.failed:
            of = counted(len(each.containers), "container")
            print(f"error: {len(each.failed)} of {of} failed", file=sys.stderr)
            raise typer.Exit(1)


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
        seconds = {"seconds": container.seconds} if container.seconds else {}
        return {**row, "lag": container.span, **seconds, "partitions": partitions}
    counts = container.messages_by_partition
    for each, ssp in zip(partitions, sorted(container.offsets), strict=True):
        each["messages"] = counts.get(ssp) if counts or not container.messages else None
    whole = {name: getattr(container, name) for name in ("messages", "seconds", "error", "attempt")}
    return {**row, **whole, "log": container.log or None, "partitions": partitions}
