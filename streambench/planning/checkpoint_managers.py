"""The factory of checkpoint managers, by a job's configuration."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from streambench import imports as load
from streambench.checkpoint.api import CheckpointManager
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.checkpoint.memory import memory_checkpoints
from streambench.checkpoint.pending_writes import PendingWrites
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.suggestions import suggest
from streambench.system.beside import add_beside
from streambench.system.producers_applier import apply_left
from streambench.system.systems import BUILTIN, GROUP, Systems, builtin_kind, keepers, log_systems

log = logging.getLogger(__name__)

_KEY = "task.checkpoint.system"


def checkpoint_manager(config: Config, job_name: str, *, is_quiet: bool = False) -> CheckpointManager:
    """The checkpoint manager of a job.

    It is in the system of ``task.checkpoint.system``, else of ``job.default.system``, else in the only log
    system, else in the only other one that keeps checkpoints.

    A job that has none of these keeps its checkpoints in memory. A kind of system keeps checkpoints where its
    factory has a method ``get_checkpoint_manager(system, config, job)``; log and memory systems do without.
    ``is_quiet``: to look only, without a warning of checkpoints that are lost. Raises ConfigError.
    """
    keep = config.integer("task.checkpoint.history")
    if config.text(_KEY) == "file":
        return _journal(config, config.directory_at("task.checkpoint.path") / job_name, job_name, keep)
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
    lasting = [system for system in _systems(config) if builtin_kind(config, system) != "memory"]
    if lasting and not is_quiet:
        log.warning(
            "the checkpoints of %s are kept in memory and lost with this process; set %s=file to keep them",
            job_name,
            _KEY,
        )
    return memory_checkpoints("", job_name, keep=keep)


def _of_system(config: Config, key: str, system: str, job: str, keep: int) -> CheckpointManager:
    setting = f"systems.{system}.samza.factory"
    if config.text(setting) is None:
        raise config.error(key, f"there is no system '{system}'; {_hint(config, system)}")
    kind = builtin_kind(config, system)
    if kind == "log":
        return _journal(config, config.directory_at(f"systems.{system}.path") / "_jobs" / job, job, keep)
    if kind == "memory":
        return memory_checkpoints(system, job, keep=keep)
    made = load.resolve(config, setting, group=GROUP, builtin=BUILTIN)
    factory: Any = load.instantiate(config, setting, made) if isinstance(made, type) else made
    get = getattr(factory, "get_checkpoint_manager", None)
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


def _journal(config: Config, directory: Path, job: str, keep: int) -> JournalCheckpointManager:
    def apply(effects: PendingWrites) -> None:
        systems = Systems(config)
        add_beside(config, job, systems)
        try:
            apply_left(effects, systems)
        finally:
            systems.close()

    return JournalCheckpointManager(directory, job, keep=keep, apply=apply)


def _systems(config: Config) -> list[str]:
    return config.names_below("systems.")


def _hint(config: Config, system: str) -> str:
    return suggest(system, ["file", *_systems(config)]) or _choices(config)


def _choices(config: Config) -> str:
    logs = log_systems(config)
    return f"set {_KEY}=file" + (
        f", or name a log system: {', '.join(logs)}" if logs else ", or define a log system and name it"
    )
