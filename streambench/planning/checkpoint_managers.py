"""The factory of checkpoint managers, by a job's configuration."""

from __future__ import annotations

import logging
from typing import Any

from streambench import imports as load
from streambench.checkpoint.api import CheckpointManager
from streambench.checkpoint.memory import memory_checkpoints
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.suggestions import suggest
from streambench.system.commit_journal import commit_journal
from streambench.system.systems import BUILTIN, GROUP, abilities_of, keepers, log_systems

log = logging.getLogger(__name__)

_KEY = "task.checkpoint.system"


def checkpoint_manager(config: Config, job_name: str, *, is_quiet: bool = False) -> CheckpointManager:
    """The checkpoint manager of a job.

    It is in the system of ``task.checkpoint.system``, else of ``job.default.system``, else in the only log
    system, else in the only other one that keeps checkpoints.

    A job that has none of these keeps its checkpoints in memory. A kind of system keeps checkpoints where its
    factory has a method ``get_checkpoint_manager(system, config, job)``. Log systems and those in the memory
    of this process do without it.
    ``is_quiet``: to look only, without a warning of checkpoints that are lost. Raises ConfigError.
    """
    keep = config.integer("task.checkpoint.history")
    if config.text(_KEY) == "file":
        return commit_journal(config, config.directory_at("task.checkpoint.path") / job_name, job_name)
    for key in (_KEY, "job.default.system"):
        system = config.text(key)
        if system is not None:
            return _of_system(config, key, system, job_name, keep)
    able = keepers(config)
    if len(able) > 1:
        raise config.error(
            _KEY, f"is missing: {', '.join(able)} could all keep the checkpoints; say which of them does"
        )
    if able:
        return _of_system(config, _KEY, able[0], job_name, keep)
    systems = config.names_below("systems.")
    if not is_quiet and not all(abilities_of(config, system).in_process for system in systems):
        text = "the checkpoints of %s are kept in memory and lost with this process; set %s=file to keep them"
        log.warning(text, job_name, _KEY)
    return memory_checkpoints("", job_name, keep=keep)


def _of_system(config: Config, key: str, system: str, job: str, keep: int) -> CheckpointManager:
    setting = f"systems.{system}.samza.factory"
    if config.text(setting) is None:
        hint = suggest(system, ["file", *config.names_below("systems.")], _choices(config))
        raise config.error(key, f"there is no system '{system}'; {hint}")
    if system in log_systems(config):
        return commit_journal(config, config.directory_at(f"systems.{system}.path") / "_jobs" / job, job)
    made = load.resolve(config, setting, group=GROUP, builtin=BUILTIN)
    factory: Any = load.instantiate(config, setting, made) if isinstance(made, type) else made
    get = getattr(factory, "get_checkpoint_manager", None)
    if get is None and abilities_of(config, system).in_process:
        return memory_checkpoints(system, job, keep=keep)
    if get is None:
        raise config.error(
            key, f"a system of the kind {config[setting]} keeps no checkpoints; {_choices(config)}"
        )
    manager = get(system, config, job)
    if not isinstance(manager, CheckpointManager):
        raise ConfigError(
            f"{setting}: what get_checkpoint_manager of {config[setting]} returned is no CheckpointManager",
            key=setting,
        )
    return manager


def _choices(config: Config) -> str:
    logs = log_systems(config)
    named = f"name a log system: {', '.join(logs)}" if logs else "define a log system and name it"
    return f"set {_KEY}=file, or {named}"
