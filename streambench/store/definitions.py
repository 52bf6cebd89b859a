"""The stores that a configuration defines."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from streambench import load
from streambench.config import Config
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.serde.registry import serde_named
from streambench.store.engine import StoreEngineFactory

GROUP = "streambench.stores"
"""The entry-point group by which a package adds a store engine."""

_BUILTIN = {"memory": "streambench.store.memory:MemoryEngineFactory"}


class StoreDefinition(Struct):
    """A store: what keeps it, its serdes, and its changelog (None: it is lost when the container stops)."""

    name: str
    factory: StoreEngineFactory
    key_serde: Serde
    value_serde: Serde
    changelog: SystemStream | None


def store_definitions(config: Config, job: str) -> dict[str, StoreDefinition]:
    """The stores of ``stores.<n>.*``, by name. ``job`` is the job's full name, which default changelogs are named after. Raises
    ConfigError."""
    return {name: _definition(config, job, name) for name in config.names_below("stores.")}


def _definition(config: Config, job: str, name: str) -> StoreDefinition:
    key = f"stores.{name}.factory"
    made: Any = load.named(config, key, group=GROUP, builtin=_BUILTIN)
    factory = made() if isinstance(made, type) else made
    if not isinstance(factory, StoreEngineFactory):
        raise config.error(key, f"{config.text(key)} is not a StoreEngineFactory")
    key_serde, value_serde = (
        serde_named(config, config.required(key), key=key) for key in (f"stores.{name}.key.serde", f"stores.{name}.msg.serde")
    )
    return StoreDefinition(name, factory, key_serde, value_serde, _changelog(config, job, name))


def _changelog(config: Config, job: str, name: str) -> SystemStream | None:
    """The stream given, else one named after job and store on the system for changelogs, so that a job with one log system is durable as
    it is."""
    key = f"stores.{name}.changelog"
    given = config.text(key)
    if given == "none":
        return None
    system = config.text("job.changelog.system") or config.text("job.default.system") or _only_log_system(config)
    if given is None:
        return SystemStream(system, f"{job}-{name}-changelog") if system else None
    if "." in given:
        stream = SystemStream.parse(given)
    elif system:
        stream = SystemStream(system, given)
    else:
        raise config.error(key, f"'{given}' names no system: write system.stream, or set job.changelog.system")
    if stream.system not in config.names_below("systems."):
        raise config.error(key, f"there is no system '{stream.system}': define systems.{stream.system}.samza.factory")
    return stream


def _only_log_system(config: Config) -> str | None:
    logs = [system for system in config.names_below("systems.") if config.text(f"systems.{system}.samza.factory") == "log"]
    return logs[0] if len(logs) == 1 else None
