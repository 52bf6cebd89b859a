"""``%stream deploy``: a job of the notebook on Spark."""

from __future__ import annotations

import importlib
from argparse import Namespace
from functools import partial
from typing import Any

from streambench.cli.deploy_options import DeployOptions
from streambench.cli.deploy_rows import FIGURES, columns_of, dry_run_line, idle_line, is_idle, rows_of
from streambench.cli.option_groups import OptionError
from streambench.config import Config
from streambench.counts import counted
from streambench.masking import masked
from streambench_magics.commands.job_commands import JobCommands
from streambench_magics.commands.status_messages import print_ignored
from streambench_magics.errors import MagicError
from streambench_magics.jobs.deployed import Deployed
from streambench_magics.jobs.jobs import Job, require_no_branch
from streambench_magics.tables import Records


class DeployCommands(JobCommands):
    """The method of the magics."""

    def _deploy(self, args: Namespace) -> Records | None:
        job = self.bench.job(args.name)
        options = DeployOptions(**{name: getattr(args, name) for name in DeployOptions.__struct_fields__})
        try:
            range = options.range()
        except OptionError as error:
            raise MagicError(f"{error.flag}: {error}") from None
        # The libraries of Spark take long to import.
        spark = importlib.import_module("streambench.spark")
        config = options.configured(job.config)
        master = _master(args.master, config)
        how: dict[str, Any] = {"task": job.task, "master": args.master, "if_running": options.if_running}
        if range is None:
            run = partial(spark.deploy, config, **how)
        else:
            run = partial(spark.backfill, config, range, **how)
        if options.dry_run:
            begins_here = range is None and job.alive
            planned = _planned_from_here(job, config, args.master) if begins_here else run(dry_run=True)
            print(dry_run_line(planned))
            if begins_here:
                print(
                    f"{job.name} runs here: without --dry-run it commits and stops first, and the deployment "
                    "begins there"
                )
            return Records(columns_of(planned), rows_of(planned), right=FIGURES, source=planned)
        deploy_display = importlib.import_module("streambench_magics.panel.deploy_display").deploy_display
        if range is not None:
            what = f"the backfill {range.name} of {job.name}"
            with deploy_display(f"deploying {what} on {master}") as display:
                result = run(progress=display.show)
            outputs = ", ".join(map(str, range.outputs(config, job.task)))
            print(f"the outputs of {range.name}: {outputs or 'none'}")
            return _shown(what, result, is_backfill=True)
        require_no_branch(job, "deploy")
        self._stop_job(job, "stopped, and deployed on Spark", " here")
        with deploy_display(f"deploying {job.name} on {master}") as display:
            job.deployed = deployed = Deployed(master)

            def show(progress: Any) -> None:
                deployed.note(progress)
                display.show(progress)

            result = run(progress=show)
            deployed.messages = result.messages
        return _shown(job.name, result, is_backfill=False)


def _planned_from_here(job: Job, config: Config, master: str | None) -> Any:
    """The result of a dry run that begins where the job is now, and not at its last commit."""
    deployment = importlib.import_module("streambench.spark.deployment")
    positions = {each.ssp: each.position for each in job.snapshot().partitions}
    return deployment.planned_result(deployment.checked(config), job.task, None, master, positions)


def _master(given: str | None, config: Config) -> str:
    """The master to deploy on, to be shown. Raises ConfigError where it is none."""
    session = importlib.import_module("streambench.spark.session")
    importlib.import_module("streambench.spark.master").check_master(given)
    return masked("master", given or session.likely_master(config))


def _shown(what: str, result: Any, *, is_backfill: bool) -> Records | None:
    """The containers of a result of ``what``; None where there was nothing to do."""
    if is_idle(result):
        print(idle_line(what, result, is_backfill=is_backfill))
        return None
    said = f"; {result.passed_over}" if result.passed_over else ""
    done = f"{counted(result.messages, 'message')} in {counted(len(result.containers), 'container')}"
    print(f"{what}: {done}{said}")
    print_ignored(result.passed_over)
    if result.windows_left:
        print(f"warning: {result.windows_left}")
    columns = ["container", "tasks", "messages"]
    records = [
        {"container": each.number, "tasks": len(each.tasks), "messages": each.messages}
        for each in result.containers
    ]
    return Records(columns, records, right=columns, source=result)
