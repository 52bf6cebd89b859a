"""``deploy``: a job as a Spark batch, over everything that has arrived since its last checkpoint.

The driver plans. Each container is one row of a DataFrame, hence one Spark task. It runs the same Container
as a notebook does, up to the offsets of the plan, and commits by itself. Only the DataFrame API is used, so
that Spark Connect does as well as a classic session. The driver and the executors must see the same
directories (of a ``log`` system, of checkpoints): on several machines that takes a shared file system.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import ConfigError
from streambench.job.running import IfRunning, check_if_running
from streambench.spark.backfill import Backfill
from streambench.spark.master import check_master
from streambench.spark.plan import Offsets, make_plan
from streambench.spark.result import DeployResult
from streambench.spark.round import Watching
from streambench.spark.rounds import Deployment
from streambench.spark.session import check_settings, require
from streambench.spark.shared_session import SharedSession
from streambench.spark.shipment import without_effect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def deploy(
    config: Config | Mapping[str, Any] | str | Path,
    task: Any = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    *,
    every: float | None = None,
    dry_run: bool = False,
    if_running: IfRunning = "refuse",
    **watching: Unpack[Watching],
) -> DeployResult:
    """Run a job on Spark until it has processed what its inputs held when it began.

    ``config``: a Config, a mapping, or the path of a properties file. ``task``: a task class or process
    function, instead of ``task.class``. One of a notebook, or of a file that the executors lack, is shipped
    to them. ``spark``: the session to use, which is left as it was. Else it is the active one, else that of
    ``spark-submit``, else one on ``master`` that is stopped afterwards. Not given, that is ``SPARK_REMOTE``,
    ``spark.master`` of the configuration, or ``local[*]``. A session that is started here takes the keys of
    the configuration under ``spark.``.

    ``every``: do it again, each so many seconds, until Ctrl-C (or ``cancel``), and return the sum. The first
    round that fails ends it and raises; ``serve``, as ``streambench deploy --every`` does, tries it again.
    ``dry_run``: only plan; nothing is started or written. ``progress`` is called about four times a second on
    the calling thread. ``cancel``: set it, from another thread, to stop.

    ``if_running``: what to do where the job is being deployed, or containers of it are running. ``refuse``
    raises a JobRunningError; ``take-over`` ends them at their last commit.

    Running it again goes on from the checkpoints. A process that dies is started again by Spark and goes on
    from its container's last commit. Raises ConfigError, UnknownStreamError and MissingExtraError before
    anything is done. Raises DeployTaskError where a task raised, and TakenOverError where another start has
    taken the job over. Raises DeployError where anything else failed or ``cancel`` was set. All three have
    ``.result``. Raises KeyboardInterrupt at Ctrl-C, after the Spark job is cancelled.
    """
    if every is not None and every <= 0:
        raise ConfigError(f"every={every}: give the seconds from one round to the next, or nothing")
    check_master(master)
    check_if_running(if_running)
    check_watching("deploy", watching, Watching)
    config = checked(config)
    if dry_run:
        return planned_result(config, task, None, master)
    require()
    session = SharedSession(spark, master)
    deployment = Deployment(config, task, session, if_running, watching, goes_on=every is not None)
    with closing(deployment), session:
        return deployment.caught_up() if every is None else deployment.rounds(every)


def backfill(
    config: Config | Mapping[str, Any] | str | Path,
    range: Backfill,
    task: Any = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    *,
    dry_run: bool = False,
    if_running: IfRunning = "refuse",
    **watching: Unpack[Watching],
) -> DeployResult:
    """Process a range of a job's inputs again on Spark, into outputs beside those of the job.

    State begins empty. The job itself, its checkpoints, changelogs and outputs stay as they are; it may run
    meanwhile. The outputs of the stream ``out`` go to ``out-NAME``, by the name of the range. Repeated under
    the same name, it goes on from its own checkpoints, wherever the range begins. ``if_running`` is about
    the backfill of this name. The other arguments, the result and what it raises are those of ``deploy``.
    """
    check_master(master)
    check_if_running(if_running)
    check_watching("backfill", watching, Watching)
    config = checked(config)
    config = range.config(config, Container(config, task).factory)
    if dry_run:
        return planned_result(config, task, range, master)
    require()
    session = SharedSession(spark, master)
    with closing(Deployment(config, task, session, if_running, watching, range)) as deployment, session:
        return deployment.caught_up()


def check_watching(function: str, watching: Mapping[str, object], known: type) -> None:
    """Raise TypeError for a keyword that a function does not take."""
    if unknown := sorted(set(watching) - set(known.__annotations__)):
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")


def planned_result(
    config: Config, task: Any, range: Backfill | None, master: str | None, positions: Offsets | None = None
) -> DeployResult:
    """The result of a dry run, with a configuration that is checked. ``positions``: those of a container that
    would commit before the deployment begins. Raises as ``make_plan``."""
    began = time.monotonic()
    planned = make_plan(config, task, range, positions=positions)
    return DeployResult(
        job=planned.model.name,
        containers=planned.containers(),
        seconds=time.monotonic() - began,
        dry_run=True,
        balance=planned.balance,
        master=master or "",
    )


def checked(config: Config | Mapping[str, Any] | str | Path) -> Config:
    """The configuration as ``portable``. Raises ConfigError where Spark cannot be had with its settings, and
    warns of those without effect."""
    config = portable(config)
    check_settings(config)
    if endpoints := without_effect(config):
        log.warning("%s", endpoints)
    return config


def portable(config: Config | Mapping[str, Any] | str | Path) -> Config:
    """The configuration, with relative paths that mean the same in every process, whatever its working
    directory is. What is landed is received elsewhere: an executor is no place to listen in."""
    config = Config.of(config)
    if not config.directory.is_absolute():
        config = Config.from_text(
            "", origin=config.origin, directory=config.directory.absolute()
        ).with_values(config)
    landed = [
        system
        for system in config.names_below("systems.")
        if config.text(f"systems.{system}.samza.landing") is not None
    ]
    return (
        config.with_values({f"systems.{system}.samza.landing.receive": "false" for system in landed})
        if landed
        else config
    )
