"""``run``: a job from its start to its end, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from streambench import imports as load
from streambench.checkpoint.api import CheckpointManager, Generation
from streambench.checkpoint.validation import check_backfill
from streambench.clock import SystemClock
from streambench.config import Config
from streambench.container.container import Container, Until
from streambench.container.inputs.partitions import checked_inputs
from streambench.container.known_stores import check_stores
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.descriptors import limit_named
from streambench.errors import ConfigError, FencedError, ReplacedError
from streambench.job.group import GroupMember
from streambench.job.messages import StartContainer
from streambench.job.pickling import shipped, shipped_names
from streambench.job.processes import OnRestart, OnSnapshots, Processes
from streambench.job.result import ContainerRun, RunResult
from streambench.job.runner import EVERY_S, ContainerRunner, OnHang
from streambench.job.running import IfRunning, check_if_running
from streambench.job.shareable import check_shareable
from streambench.job.signals import StopSignals
from streambench.job.starting import starting
from streambench.planning.changelog_partitions import open_generation
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import JobModel, PlannedContainer
from streambench.planning.plan import is_named, job_name, plan
from streambench.system.systems import Systems

_COUNT = "job.container.count"
_ATTEMPTS = 3


def run(
    config: Config | Mapping[str, Any] | str | Path,
    until: Until = "caught-up",
    *,
    task: Any = None,
    container: int | None = None,
    on_snapshots: OnSnapshots | None = None,
    on_restart: OnRestart | None = None,
    every_s: float = EVERY_S,
    on_hang: OnHang | None = None,
    join: bool = False,
    if_running: IfRunning = "take-over",
) -> RunResult:
    """Run a job on this machine until it has caught up with its inputs (or as ``until`` says), commit, and
    say what was done.

    ``config``: a Config, a mapping, or the path of a properties file. ``task``: a task class or function,
    instead of ``task.class``.

    ``until``: ``"caught-up"``; a number of messages; a function that is asked between messages; None: until
    stopped. One container runs in this process. Several (``job.container.count``) run in a process each,
    which end with this one. They cannot share a number of messages or a function (ConfigError), but
    ``container`` can. It names the only one to be run here; the same call runs the others elsewhere.

    The process of a container may die without an error (killed, out of memory, a crash in native code). It is
    then started again from its last commit. That happens up to ``cluster-manager.container.retry.count``
    times in quick succession; ``on_restart`` is called. A container that raises ends the job: what its task
    raised once it would raise again.

    ``join``: be one of several processes that share the tasks of the job. Each of them is called like this,
    and has its share of the tasks as long as it runs (``until`` must be None). When one ends, or dies, the
    others take over its tasks.

    ``if_running``: where the job runs already, ``take-over`` ends that at its last commit, with a warning;
    ``refuse`` raises JobRunningError. Where a Kafka holds the checkpoints, that waits until the lease of a
    process that was killed has ended. That takes some 10 s, or 20 s if it was just starting.

    ``on_snapshots`` gets snapshots of the containers, on any thread, every ``every_s`` seconds and once more
    at the end. ``on_hang``: called where the container of this process is still in a message
    ``task.shutdown.ms`` after it was to stop. It gets an error that names the message, on a thread of its
    own. Without it that is logged: only a second signal, or the end of the process, ends such a run. The
    process of one of several containers is ended then, and that is raised.

    The first Ctrl-C, SIGTERM or SIGHUP stops it cleanly, with a commit: ``ended`` of the result is
    ``"signal"``. The next one raises KeyboardInterrupt. 3 seconds later, or at a third one, the process ends,
    unless it is that of a notebook or an interpreter. What was not committed is done again.

    Raises what a container raises; the others have stopped by then.
    """
    config = Config.of(config)
    config.validate()
    check_if_running(if_running)
    _check_goal(config, until, container, join=join)
    began = time.monotonic()
    # The task is loaded only where the configuration leaves the name to it.
    name = job_name(config, task if is_named(config) else _factory(config, task))
    with limit_named(), starting(config, name, "run", if_running, container=container, join=join):
        asked = _Run(config, until, task, name, container, on_snapshots, on_restart, every_s, on_hang)
        runs = asked.as_member() if join else asked.run()
    return RunResult(name, tuple(runs), time.monotonic() - began)


def _check_goal(config: Config, until: Until, container: int | None, *, join: bool) -> None:
    """Raise ConfigError where a goal is none for those that are to run."""
    if join and (until is not None or container is not None):
        raise ConfigError(
            "a member of a group (join) runs until it is stopped, with its share of the tasks: "
            "until=None, no container"
        )
    if not join and container is None and config.integer(_COUNT) > 1 and until not in (None, "caught-up"):
        what = "a number of messages" if isinstance(until, int) else "a function"
        raise ConfigError(
            f"{_COUNT}={config[_COUNT]}: several containers run side by side and cannot stop at {what} "
            "together; run until 'caught-up', "
            f"name one container (container=0, or --container 0), or set {_COUNT}=1",
            key=_COUNT,
        )


class _Run(Struct, frozen=True):
    """A run, with what ``run`` was given. ``name``: that of the job."""

    config: Config
    until: Until
    task: Any
    name: str
    container: int | None
    on_snapshots: OnSnapshots | None
    on_restart: OnRestart | None
    every_s: float
    on_hang: OnHang | None

    def run(self) -> list[ContainerRun]:
        """Run all containers, in a process each, or the only one in this process."""
        is_one = self.container is not None or self.config.integer(_COUNT) == 1
        return [self._in_process()] if is_one else self._in_processes()

    def as_member(self) -> list[ContainerRun]:
        """Run a share of the tasks, until a signal."""
        _factory(self.config, self.task)  # before others make room for it
        member = GroupMember(
            self.config, self.task, self.name,
            on_snapshot=self._on_snapshot, every_s=self.every_s, on_hang=self.on_hang,
        )  # fmt: skip
        with StopSignals(member.stop_soon, after=member.under_way):
            return [member.run()]

    @property
    def _on_snapshot(self) -> Callable[[ContainerSnapshot], object] | None:
        """``on_snapshots`` for the snapshots of a single container."""
        show = self.on_snapshots
        return None if show is None else lambda snapshot: show([snapshot])

    def _in_process(self) -> ContainerRun:
        choices = 0 if self.on_snapshots is None else 1
        for attempt in range(_ATTEMPTS):
            made = container_of(
                self.config, self.task, self.container, remember_choices=choices, again=attempt > 0
            )
            driver = ContainerRunner(
                made, on_snapshot=self._on_snapshot, every_s=self.every_s, on_hang=self.on_hang
            )
            try:
                with StopSignals(driver.stop_soon, after=driver.under_way):
                    return driver.run(self.until)
            except FencedError as error:
                # Containers that are started one by one may open a generation at the same time: this one then
                # joins the last. But one that was at work, or whose own number was started elsewhere, must
                # not take it back.
                is_last = attempt == _ATTEMPTS - 1
                is_replaced = made.has_begun or isinstance(error, ReplacedError)
                if self.container is None or is_replaced or is_last:
                    raise
        raise AssertionError("the last attempt either returns or raises")

    def _in_processes(self) -> list[ContainerRun]:
        config = self.config
        package = None if self.task is None else shipped(self.task)
        _factory(config, self.task)  # where it cannot be loaded, that is an error of this process
        model, generation = _planned(config, self.name)
        end: Literal["caught-up"] | None = None if self.until is None else "caught-up"
        every = None if self.on_snapshots is None else self.every_s
        names = shipped_names(config)
        orders = [
            StartContainer(config, package, names, model, each.number, generation, end, every)
            for each in model.containers
        ]
        processes = Processes(
            orders, on_snapshots=self.on_snapshots, on_restart=self.on_restart, every_s=self.every_s
        )
        with StopSignals(processes.stop_soon, kill=processes.kill, after=processes.under_way):
            return processes.run()


def container_of(
    config: Config, task: Any, number: int | None, *, remember_choices: int = 0, again: bool = False
) -> Container:
    """The only container of a job, or one of several by its ``number``; not started. ``again``: it was fenced
    before. Raises ConfigError."""
    if number is None:
        return Container(config, task, remember_choices=remember_choices)
    name = job_name(config, _factory(config, task))
    model, generation = _planned(config, name, only=number, again=again)
    planned = PlannedContainer(model, number, generation)
    return Container(config, task, planned=planned, remember_choices=remember_choices)


def containers_of(config: Config, *, remember_choices: int = 0) -> list[Container]:
    """All containers of a job, in one generation; not started. Raises ConfigError."""
    if config.integer(_COUNT) == 1:
        return [container_of(config, None, None, remember_choices=remember_choices)]
    model, generation = _planned(config, job_name(config, _factory(config, None)))
    planned = [PlannedContainer(model, each.number, generation) for each in model.containers]
    return [Container(config, planned=each, remember_choices=remember_choices) for each in planned]


def _planned(
    config: Config, name: str, *, only: int | None = None, again: bool = False
) -> tuple[JobModel, int]:
    """The job model, and the generation to run it in.

    The generation is a new one; for ``only`` one container, the last one if it has the same assignment.

    ``again``: the container was fenced before. The process that closed the last generation may have died
    before there was a newer one."""
    with closing(Systems(config)) as systems, closing(checkpoint_manager(config, name)) as checkpoints:
        if config.integer(_COUNT) > 1:
            check_shareable(config, systems, checkpoints, f"several containers ({_COUNT}={config[_COUNT]})")
        inputs = checked_inputs(config, name, systems)
        last = checkpoints.last_generation()
        check_backfill(name, last, "")
        model = plan(config, name, systems.inputs(inputs), last)
        if only is not None and not 0 <= only < len(model.containers):
            there = len(model.containers)
            raise ConfigError(
                f"there is no container {only}: {_COUNT} is {there}, and they are numbered from 0", key=_COUNT
            )
        if (
            last is None
            or only is None
            or not _fits(last, model)
            or (again and _is_closed(checkpoints, last, only))
        ):
            check_stores(config, name, systems, model, checkpoints)
            last = open_generation(checkpoints, model, now_ms=SystemClock().now_ms())
        return model, last.number


def _is_closed(checkpoints: CheckpointManager, generation: Generation, container: int) -> bool:
    """Check if a container of this generation cannot be claimed any more, although no newer generation is
    there."""
    try:
        checkpoints.claim(generation.number, container, now_ms=SystemClock().now_ms())
    except FencedError:
        return checkpoints.last_generation() == generation
    return False


def _fits(generation: Generation, model: JobModel) -> bool:
    """True where a generation has the containers of a model, with the same tasks."""
    assignment = {number: list(tasks) for number, tasks in generation.assignment.items()}
    return assignment == {each.number: [task.name for task in each.tasks] for each in model.containers}


def _factory(config: Config, task: Any) -> Any:
    return task if task is not None else load.by_path(config, "task.class", config.required("task.class"))
