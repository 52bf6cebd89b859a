"""Contents of a notebook: tasks, configurations and jobs, each by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from streambench import imports
from streambench.config import Config
from streambench.errors import ConfigError
from streambench_magics.errors import MagicError
from streambench_magics.jobs.jobs import Job

DEFAULT_CONFIG = """\
systems.log.samza.factory=log
systems.log.path=streambench-data
systems.log.samza.key.serde=string
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
"""
"""The configuration of a job that names none: a log system in the folder of the notebook, with JSON messages,
read from the oldest on."""


class Workbench:
    """The tasks, configurations and jobs of one notebook. ``namespace``: the user's variables."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self.namespace = namespace
        self.tasks: dict[str, Any] = {}
        self.configs: dict[str, Config] = {}
        self.jobs: dict[str, Job] = {}
        self.peeked_fields: dict[str, set[str]] = {}
        """The fields of the messages that were looked at, by their stream, to complete them."""
        self._last: str | None = None

    def job(self, name: str | None = None) -> Job:
        """The job of that name; without a name, the one used last. Raises MagicError."""
        if name is None:
            name = self._last
        if name is None or name not in self.jobs:
            known = f"; there is {', '.join(self.jobs)}" if self.jobs else ""
            asked = f"there is no job {name}" if name else "there is no job yet"
            made = name if name is not None and name.isidentifier() else "NAME"
            raise MagicError(f"{asked}{known}: %stream create {made} --task TASK makes one")
        self._last = name
        return self.jobs[name]

    def use_one_of(self, jobs: Sequence[Job]) -> None:
        """Have what follows without a name be for one of these jobs: the one used last, else the first."""
        if self._last not in [job.name for job in jobs]:
            self._last = jobs[0].name

    def meant(self, words: Iterable[str]) -> list[Job]:
        """The job that a line with these words is for: the first that it names, else the one used last."""
        name = next((each for each in words if each in self.jobs), self._last)
        return [self.jobs[name]] if name in self.jobs else []

    def create(
        self,
        name: str,
        task: str | None,
        config: str | None,
        inputs: list[str],
        *,
        history: int | bool | None = None,
        replaces: Callable[[], None] = lambda: None,
    ) -> tuple[Job, Job | None]:
        """A new job, and the one it replaces, which is stopped. With nothing but the name of a job that is
        there: the same once more, with its task and its configuration as they are now.

        ``replaces`` is called once the new job is known to be right, before the old one is stopped."""
        self._last = (
            name  # also if nothing comes of it: what follows without a name is not meant for another job
        )
        old = self.jobs.get(name)
        if old is not None and task is None and config is None and not inputs:
            job = old.renewed(self._config_now(old))
            if history is not None:
                job.history = history
        else:
            job = self._new(name, task, config)
            if inputs:
                job.set_inputs(inputs)
            job.history = history
        job.check()
        if old is not None:
            # A panel that is still at work could start the old job again.
            replaces()
            old.stop()
        self.jobs[name] = job
        return job, old

    def put(self, job: Job, replaces: Callable[[], None]) -> None:
        """Add a job, or put it in the place of the one of its name, which is stopped."""
        old = self.jobs.get(job.name)
        if old is not None:
            replaces()
            old.stop()
        self._last = job.name
        self.jobs[job.name] = job

    def task(self, name: str) -> Any:
        """A task by name. Raises MagicError."""
        found = self._known(name)
        if found is None:
            known = f"; there is {', '.join(self.tasks)}" if self.tasks else ""
            raise MagicError(f"there is no task {name}{known}: write one with %%streamtask {name}")
        return found

    def config(self, name: str | None) -> Config:
        """A configuration by name: of ``%%streamconfig``, a variable, or a properties file. None: the default
        one. Raises MagicError."""
        if name is None:
            return Config.from_text(DEFAULT_CONFIG)
        if name in self.configs:
            return self.configs[name]
        value = self.namespace.get(name)
        if isinstance(value, Mapping):
            return Config.of(value)
        if Path(name).is_file():
            return Config.from_file(name)
        known = f"; there is {', '.join(self.configs)}" if self.configs else ""
        raise MagicError(
            f"there is no configuration {name}{known}: write one with %%streamconfig {name}, or name a "
            "properties file"
        )

    def version(self, name: str) -> Any:
        """A task or a configuration by name (or a variable), or a task as ``file.py:Class``, to be compared.
        Raises MagicError, ConfigError."""
        task = self._known(name)
        if task is not None:
            return task
        if ".py:" in name:
            return imports.by_path(Config({"the task": name}), "the task", name)
        is_variable = isinstance(self.namespace.get(name), Mapping)
        if name in self.configs or is_variable or Path(name).is_file():
            return self.config(name)
        if name in self.jobs:
            raise MagicError(f"{name} is a job: name its task, {self.jobs[name].task_name}")
        known = ", ".join([*self.tasks, *self.configs]) or "none at all"
        raise MagicError(
            f"there is no task and no configuration {name}; there is {known} (in a file: FILE.py:Class)"
        )

    def config_with(self, system: str, name: str | None = None) -> Config:
        """The configuration that says what a system is: the named one, else the nearest one that defines it.
        Raises MagicError."""
        if name is not None:
            return self.config(name)
        found = next(
            (config for config in self.all_configs() if system in config.names_below("systems.")), None
        )
        if found is None:
            known = sorted({each for config in self.all_configs() for each in config.names_below("systems.")})
            raise MagicError(
                f"there is no system {system}; there is {', '.join(known)}: define it in a %%streamconfig"
            )
        return found

    def all_configs(self) -> list[Config]:
        """All configurations, the nearest first: that of the job used last, of the others, those without a
        job, the default one. Those of replays, whose streams cannot be read, come last."""
        jobs = sorted(self.jobs.values(), key=lambda job: (job.is_replay, job.name != self._last))
        return [*(job.config for job in jobs), *reversed(self.configs.values()), self.config(None)]

    def _new(self, name: str, task: str | None, config: str | None) -> Job:
        found = self.config(config)
        if task is None:
            task = name if self._known(name) is not None or found.text("task.class") is None else None
        if task is None:
            job = Job(name, found, lambda: None, None, self.namespace)
        else:
            self.task(task)
            job = Job(name, found, lambda: self._known(task), task, self.namespace)
        job.config_name = config
        return job

    def _config_now(self, job: Job) -> Config | None:
        """The configuration of a job as its cell, variable or file has it now; None where that is gone."""
        try:
            return None if job.config_name is None else self.config(job.config_name)
        except MagicError:
            return None

    def _known(self, task: str) -> Any:
        """A task by name: of ``%%streamtask``, else a class or function of the notebook."""
        if task in self.tasks:
            return self.tasks[task]
        value = self.namespace.get(task)
        return (
            value
            if callable(value) and (callable(getattr(value, "process", None)) or not isinstance(value, type))
            else None
        )


def parsed_config(name: str, text: str) -> Config:
    """The configuration in a cell whose first line is the magic; lines in errors are those of the cell.
    Raises ConfigError."""
    try:
        config = Config.from_text("\n" + text, origin=name)
        config.validate()
    except ConfigError as error:
        raise ConfigError(str(error), key=error.key) from None
    return config
