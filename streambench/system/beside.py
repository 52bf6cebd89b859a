"""The system of changelogs that lie beside the checkpoints, for jobs none of whose own systems can hold them.

Offsets and state go together. Where the checkpoints are files, the changelogs are a log in the same
directory; where they live in this process's memory, so do the changelogs. No configuration defines this
system, and no command lists it.
"""

from __future__ import annotations

import pkgutil

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer
from streambench.system.compacted_memory import CompactedMemoryFactory
from streambench.system.systems import BUILTIN, Systems, abilities_of, keepers

NAME = "_checkpoints"
"""The name of the system. No user has reason to call one so, and it is refused."""

DIRECTORY = "changelogs"
"""The directory of the changelogs, within that of the job's checkpoints."""

_CHECKPOINTS = "task.checkpoint.system"


class BesideFactory(SystemFactory):
    """Makes the parts of a log that no configuration defines, in the directory ``path``."""

    def __init__(self, path: str) -> None:
        self._factory: SystemFactory = pkgutil.resolve_name(BUILTIN["log"])()
        self._values = {f"systems.{NAME}.samza.factory": "log", f"systems.{NAME}.path": path}

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemConsumer:
        return self._factory.get_consumer(system, config.with_values(self._values), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemProducer:
        return self._factory.get_producer(system, config.with_values(self._values), metrics)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemAdmin:
        return self._factory.get_admin(system, config.with_values(self._values), metrics)


def changelog_system(config: Config, job: str, systems: Systems) -> tuple[str | None, str | None]:
    """The system of changelogs that name none, and the key that says so.

    It is that of ``job.changelog.system``, of ``job.default.system``, the only system that can keep them,
    that of the checkpoints, or this one beside them.

    None where several systems could keep the checkpoints, of which none is named: a start is refused for
    that. Raises ConfigError.
    """
    for key in ("job.changelog.system", "job.default.system"):
        system = config.text(key)
        if system is not None:
            return system, key
    able = keepers(config)
    if len(able) == 1:
        return able[0], f"systems.{able[0]}.samza.factory"
    kept_in = config.text(_CHECKPOINTS)
    if not systems.has(NAME):
        if kept_in is None and able:
            return None, None
        if kept_in is not None and kept_in != "file" and not abilities_of(config, kept_in).in_process:
            return kept_in, _CHECKPOINTS
    add_beside(config, job, systems)
    return NAME, None


def add_beside(config: Config, job: str, systems: Systems) -> None:
    """Have ``systems`` know the system beside the checkpoints of this job. Raises ConfigError where the
    configuration has its name."""
    taken = next(iter(config.below(f"systems.{NAME}.")), None)
    if taken is not None:
        key = f"systems.{NAME}.{taken}"
        raise config.error(
            key,
            f"the name {NAME} is that of the changelogs beside the checkpoints: name the system otherwise",
        )
    if systems.has(NAME):
        return
    if config.text(_CHECKPOINTS) == "file":
        directory = config.directory_at("task.checkpoint.path") / job / DIRECTORY
        systems.add(NAME, BesideFactory(str(directory.absolute())))
    else:
        systems.add(NAME, CompactedMemoryFactory())
