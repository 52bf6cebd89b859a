"""Which stores a job has, as its configuration says, and where their changelogs are."""

from __future__ import annotations

import logging
from typing import Any

from msgspec import Struct

from streambench import load
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.serde.registry import serde_named
from streambench.store.engine import StoreEngineFactory
from streambench.system.systems import Systems, log_systems

log = logging.getLogger(__name__)

GROUP = "streambench.stores"
"""The entry-point group by which a package adds a kind of store."""

BUILTIN = {"memory": "streambench.store.memory:MemoryEngineFactory"}


class StoreDefinition(Struct, frozen=True):
    """A store of a job: every task has its part of it. ``changelog`` None: what it holds is lost when the container stops."""

    name: str
    factory: StoreEngineFactory
    key_serde: Serde
    value_serde: Serde
    changelog: SystemStream | None


def store_definitions(config: Config, job: str, systems: Systems | None = None) -> dict[str, StoreDefinition]:
    """The stores of a job, by name, in the order of their names. A store is defined by any key below ``stores.<n>.``.

    A store that names no changelog gets ``<job>-<store>-changelog`` in the system of ``job.changelog.system``, else of
    ``job.default.system``, else in the only log system; where there is none of these, it has no changelog. ``systems`` knows which systems
    there are. Raises ConfigError that names the key.
    """
    systems = systems or Systems(config)
    definitions = {name: _definition(config, name, job, systems) for name in config.names_below("stores.")}
    owners: dict[SystemStream, str] = {}
    for name, definition in definitions.items():
        if definition.changelog is not None:
            other = owners.setdefault(definition.changelog, name)
            if other != name:
                key = f"stores.{name}.changelog"
                raise config.error(key, f"{definition.changelog} is the changelog of the store '{other}' already: each has its own")
    return definitions


def _definition(config: Config, name: str, job: str, systems: Systems) -> StoreDefinition:
    key_serde, value_serde = (
        serde_named(config, config.required(key), key=key) for key in (f"stores.{name}.key.serde", f"stores.{name}.msg.serde")
    )
    return StoreDefinition(name, _factory(config, name), key_serde, value_serde, _changelog(config, name, job, systems))


def _factory(config: Config, name: str) -> StoreEngineFactory:
    key = f"stores.{name}.factory"
    named: Any = load.named(config, key, group=GROUP, builtin=BUILTIN)
    made = load.called(config, key, named) if isinstance(named, type) else named
    if not isinstance(made, StoreEngineFactory):
        raise config.error(key, f"{config.text(key)} is not a StoreEngineFactory")
    return made


def _changelog(config: Config, store: str, job: str, systems: Systems) -> SystemStream | None:
    key = f"stores.{store}.changelog"
    named = config.text(key)
    if named is not None and named.lower() == "none":
        return None
    if named is not None and "." in named:
        try:
            stream = SystemStream.parse(named)
        except ConfigError as error:
            raise config.error(key, str(error)) from None
        systems.factory(stream.system, key=key)
        return stream
    system, system_key = _default_system(config)
    if system is None:
        if named is not None:
            raise config.error(key, f"write {key}=system.{named}, or name the system of all changelogs with job.changelog.system")
        _warn_of_choice(config, store)
        return None
    systems.factory(system, key=system_key)
    return SystemStream(system, named or f"{job}-{store}-changelog".replace(" ", "-"))


def _default_system(config: Config) -> tuple[str | None, str | None]:
    """The system of changelogs that name none, and the key that says so."""
    for key in ("job.changelog.system", "job.default.system"):
        system = config.text(key)
        if system is not None:
            return system, key
    logs = log_systems(config)
    return (logs[0], f"systems.{logs[0]}.samza.factory") if len(logs) == 1 else (None, None)


def _warn_of_choice(config: Config, store: str) -> None:
    logs = log_systems(config)
    if logs:
        log.warning(
            "the store '%s' has no changelog and is lost at a stop: %s are all log systems; say which with job.changelog.system, or set "
            "stores.%s.changelog=none", store, ", ".join(logs), store,
        )  # fmt: skip
