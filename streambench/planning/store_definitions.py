"""The stores of a job by its configuration, and their changelogs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from streambench import imports as load
from streambench.config import Config
from streambench.errors import ConfigError, StoreError
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.serde.formats import format_of
from streambench.serde.registry import serde_named
from streambench.serde.streams import readable
from streambench.store.cache import CachedEngine
from streambench.store.engine import StoreEngine, StoreEngineFactory
from streambench.store.expiry import STAMP_BYTES, ExpiringEngine
from streambench.store.task_store import ValueLimit
from streambench.system.beside import changelog_system
from streambench.system.systems import Systems, abilities_of, keepers, kind_name

log = logging.getLogger(__name__)

_CACHED = 1_000

GROUP = "streambench.stores"
"""The entry-point group by which a package adds a kind of store."""

BUILTIN = {
    "memory": "streambench.store.memory:MemoryEngineFactory",
    "rocksdb": "streambench.store.rocksdb:RocksDbEngineFactory",
}


class StoreDefinition(Struct, frozen=True):
    """A store of a job: every task has its part of it.

    ``changelog`` None: what it holds is lost when the container stops. ``changelog_settings``: those with
    which the changelog is created. ``cache``: how many entries are cached (None: as many as suit the engine),
    ``batch``: how many changes of them are written at once. ``ttl_ms``: how long an entry lives after it was
    written; None: for ever. ``limit``: of the size of values; None: any may be. ``formats``: of keys and of
    values, the names of the bytes that their serdes write; ``checks_formats``: state that other serdes have
    written is refused. ``snapshot_changes``: a snapshot is written after so many changes; 0: never.
    """

    name: str
    factory: StoreEngineFactory
    key_serde: Serde
    value_serde: Serde
    formats: tuple[str, str]
    changelog: SystemStream | None
    changelog_settings: Mapping[str, int | str]
    cache: int | None
    batch: int
    ttl_ms: int | None
    limit: ValueLimit | None
    reuses_files: bool
    checks_formats: bool
    snapshot_changes: int

    @property
    def directory_key(self) -> str:
        """The key of the directory below which it has its files."""
        return "job.non-logged.store.base.dir" if self.changelog is None else "job.logged.store.base.dir"

    def shown_key(self, key: bytes) -> Any:
        """A key to look at; its bytes where they cannot be decoded."""
        return readable(self.key_serde, key)

    def shown_value(self, value: bytes) -> Any:
        """A value to look at; its bytes where they cannot be decoded."""
        return readable(self.value_serde, value)

    def shown_write(self, value: bytes | None) -> Any:
        """A value as a trace has it, to look at: with the time of its entry before it, where entries expire.
        None for no value."""
        if value is None:
            return None
        return self.shown_value(value if self.ttl_ms is None else value[STAMP_BYTES:])

    def engine(
        self,
        task: str,
        config: Config,
        directory: Path,
        now_ms: Callable[[], int],
        above: Callable[[StoreEngine], StoreEngine] | None = None,
    ) -> StoreEngine:
        """The engine for a task's part, with the layers above it. ``above``: puts another layer below the one
        that knows the age of entries. Raises ConfigError, StoreError."""
        try:
            engine = self.factory.get_engine(self.name, task, config, directory)
        except StoreError as error:
            if not isinstance(error.__cause__, OSError) or self.directory_key not in config:
                raise
            raise StoreError(f"{config.placed(self.directory_key)}: {error}") from error
        size = (0 if engine.in_memory else max(self.batch, _CACHED)) if self.cache is None else self.cache
        if size:
            engine = CachedEngine(engine, size, self.batch)
        if above is not None:
            engine = above(engine)
        return self.with_expiry(engine, now_ms)

    def with_expiry(self, engine: StoreEngine, now_ms: Callable[[], int]) -> StoreEngine:
        """An engine whose entries expire, where those of the store do; else the same one."""
        return engine if self.ttl_ms is None else ExpiringEngine(engine, self.ttl_ms, now_ms)


def store_definitions(config: Config, job: str, systems: Systems | None = None) -> dict[str, StoreDefinition]:
    """The stores of a job, by name, in the order of their names. A store is defined by any key below
    ``stores.<n>.``.

    ``systems`` knows which systems there are. Raises ConfigError that names the key.
    """
    found = changelogs(config, job, systems or Systems(config))
    names = config.names_below("stores.")
    for name in names:
        if name not in found and config.text(f"stores.{name}.changelog") is None:
            _warn_of_choice(config, name)
    return {name: _definition(config, name, found.get(name)) for name in names}


def changelogs(config: Config, job: str, systems: Systems) -> dict[str, SystemStream]:
    """The changelogs of the stores that have one, by the names of the stores.

    A store that names no changelog gets ``<job>-<store>-changelog`` in the system of
    ``job.changelog.system``, else of ``job.default.system``, else in the only log system. Else it is in the
    system of the checkpoints, or beside them (see ``system.beside``). One whose changelog is ``none`` has
    none. Raises ConfigError that names the key.
    """
    found: dict[str, SystemStream] = {}
    owners: dict[SystemStream, str] = {}
    for name in config.names_below("stores."):
        changelog = _changelog(config, name, job, systems)
        if changelog is None:
            continue
        other = owners.setdefault(changelog, name)
        if other != name:
            key = f"stores.{name}.changelog"
            raise config.error(
                key, f"{changelog} is the changelog of the store '{other}' already: each has its own"
            )
        found[name] = changelog
    return found


def _definition(config: Config, name: str, changelog: SystemStream | None) -> StoreDefinition:
    prefix = f"stores.{name}."
    names = {key: config.required(key) for key in (prefix + "key.serde", prefix + "msg.serde")}
    key_serde, value_serde = (serde_named(config, serde, key=key) for key, serde in names.items())
    key_name, value_name = names.values()
    size = prefix + "object.cache.size"
    cache = None if config.text(size) is None else config.integer(size)
    batch = config.integer(prefix + "write.batch.size")
    if cache and cache < batch:
        what = (
            f"the cache must hold a full batch ({prefix}write.batch.size is {batch}): give {batch} "
            "or more, or 0 for no cache"
        )
        raise config.error(size, what)
    drops, disallows = (config.boolean(f"{prefix}{what}.large.messages") for what in ("drop", "disallow"))
    return StoreDefinition(
        name,
        _factory(config, name),
        key_serde,
        value_serde,
        (format_of(config, key_name, key_serde), format_of(config, value_name, value_serde)),
        changelog,
        changelog_settings={
            "cleanup.policy": "compact",
            **{
                key: config.integer(f"{prefix}changelog.{key}")
                for key in ("min.compaction.lag.ms", "delete.retention.ms")
            },
        },
        cache=cache,
        batch=batch,
        ttl_ms=_ttl_ms(config, prefix),
        limit=(
            ValueLimit(config.integer(prefix + "changelog.max.message.size.bytes"), drops and not disallows)
            if drops or disallows
            else None
        ),
        reuses_files=not config.boolean(prefix + "clean.on.container.start"),
        checks_formats=config.boolean(prefix + "serde.check"),
        snapshot_changes=config.integer(prefix + "snapshot.changes"),
    )


def _ttl_ms(config: Config, prefix: str) -> int | None:
    for key in (prefix + "ttl.ms", prefix + "rocksdb.ttl.ms"):
        if config.text(key) is not None:
            ttl_ms = config.integer(key)
            return ttl_ms if ttl_ms > 0 else None
    return None


def _factory(config: Config, name: str) -> StoreEngineFactory:
    key = f"stores.{name}.factory"
    named: Any = load.resolve(config, key, group=GROUP, builtin=BUILTIN)
    made = load.instantiate(config, key, named) if isinstance(named, type) else named
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
        _check_holds_state(config, stream.system, key)
        return stream
    system, system_key = changelog_system(config, job, systems)
    if system is None:
        if named is not None:
            raise config.error(
                key,
                f"write {key}=system.{named}, or name the system of all changelogs with job.changelog.system",
            )
        return None
    systems.factory(system, key=system_key)
    _check_holds_state(config, system, system_key)
    return SystemStream(system, named or f"{job}-{store}-changelog".replace(" ", "-"))


def _check_holds_state(config: Config, system: str, key: str | None) -> None:
    """Raise ConfigError where a system cannot give back what a store has written to it."""
    if key is not None and not abilities_of(config, system).holds_changelogs:
        raise config.error(
            key,
            f"'{system}' is a {kind_name(config, system)} system, which cannot hold a changelog: that needs "
            "keys, and messages that can be read again. Name a log system or a Kafka "
            "(job.changelog.system=...); or name none, and set task.checkpoint.system=file to keep state and "
            "checkpoints together in files",
        )


def _warn_of_choice(config: Config, store: str) -> None:
    able = keepers(config)
    if able:
        log.warning(
            "the store '%s' has no changelog and is lost at a stop: %s could all keep it; say which with "
            "job.changelog.system, or set stores.%s.changelog=none",
            store,
            ", ".join(able),
            store,
        )
