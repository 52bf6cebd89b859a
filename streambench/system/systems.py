"""The systems of one job: from ``systems.<s>.*`` to factories, admins, consumers and producers, each made when first asked for."""

from __future__ import annotations

import difflib
import logging
import pkgutil
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from streambench import load
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import ConfigError, StreamSystemError, UnknownStreamError, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata, SystemStream
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer

if TYPE_CHECKING:
    from streambench.system.landing import LandedSystemFactory, Receiver

log = logging.getLogger(__name__)

GROUP = "streambench.systems"
"""The entry-point group by which a package adds a kind of system."""

BUILTIN = {
    "log": "streambench.system.log:LogSystemFactory",
    "memory": "streambench.system.memory:MemorySystemFactory",
    "file": "streambench.system.file:FileSystemFactory",
    "kafka": "streambench.system.kafka:KafkaSystemFactory",
    "amqp": "streambench.system.amqp:AmqpSystemFactory",
    "webhook": "streambench.system.webhook:WebhookSystemFactory",
    "tcp": "streambench.system.net:TcpSystemFactory",
    "udp": "streambench.system.net:UdpSystemFactory",
}


# A file is there or not, and the rest is as configured: to create such a stream would hide that something else is wrong.
_MADE_BY_OTHERS = ("file", "tcp", "udp", "webhook")


def builtin_kind(config: Config, system: str) -> str | None:
    """The kind of a system that comes with streambench (``log``, ...), named by name or by path; None for any other."""
    named = (config.text(f"systems.{system}.samza.factory") or "").replace(":", ".")
    return next((kind for kind, path in BUILTIN.items() if named in (kind, path.replace(":", "."))), None)


def builtin_settings() -> list[Key]:
    """The settings of the systems that come with streambench, beyond those that all systems have."""
    factories = (pkgutil.resolve_name(path) for path in BUILTIN.values())
    return [key for factory in factories for key in factory.settings]


def log_systems(config: Config) -> list[str]:
    """The names of the log systems that the configuration defines, sorted."""
    return [system for system in config.names_below("systems.") if builtin_kind(config, system) == "log"]


def keepers(config: Config) -> list[str]:
    """The names of the systems that may keep what a job has to remember, its checkpoints and changelogs, sorted: the log systems, or where
    there are none, those of other kinds that keep checkpoints (their factories have a ``get_checkpoint_manager``)."""
    return log_systems(config) or [system for system in config.names_below("systems.") if _keeps_checkpoints(config, system)]


def _keeps_checkpoints(config: Config, system: str) -> bool:
    setting = f"systems.{system}.samza.factory"
    return config.text(setting) is not None and hasattr(load.named(config, setting, group=GROUP, builtin=BUILTIN), "get_checkpoint_manager")


class Systems:
    """What a job's configuration says of its systems. ``fallback`` is the factory of those that name none (or ``memory``)."""

    def __init__(self, config: Config, fallback: SystemFactory | None = None) -> None:
        self._config = config
        self._fallback = fallback
        self._factories: dict[str, SystemFactory] = {}
        self._admins: dict[str, SystemAdmin] = {}
        self._landings: dict[str, LandedSystemFactory] = {}

    def names(self) -> list[str]:
        """The systems that the configuration defines, sorted."""
        return self._config.names_below("systems.")

    def factory(self, system: str, *, key: str | None = None) -> SystemFactory:
        """The factory of a system. Raises ConfigError naming ``key`` (where the system was mentioned) if there is no such system."""
        if system not in self._factories:
            setting = f"systems.{system}.samza.factory"
            if self._fallback is not None and self._config.get(setting, "memory") == "memory":
                return self._fallback
            if setting not in self._config:
                raise self._missing(system, key)
            factory = load.named(self._config, setting, group=GROUP, builtin=BUILTIN)
            if isinstance(factory, type):
                factory = load.called(self._config, setting, factory)
            if not isinstance(factory, SystemFactory):
                raise self._config.error(setting, f"{self._config[setting]} is not a SystemFactory")
            self._check_keys(system, factory)
            self._factories[system] = self._landed(system, factory)
        return self._factories[system]

    def check_names(self) -> None:
        """Raise ConfigError at the first key of a system that nothing defines: what it says would be left out in silence."""
        if self._fallback is not None:
            return
        defined = {name for name in self.names() if f"systems.{name}.samza.factory" in self._config}
        for key in self._config:
            head, _, rest = key.partition(".")
            system = rest.partition(".")[0]
            if head == "systems" and system not in defined:
                raise self._missing(system, key)

    def admin(self, system: str) -> SystemAdmin:
        """The admin of a system, the same at each call."""
        if system not in self._admins:
            self._admins[system] = self.factory(system).get_admin(system, self._config)
        return self._admins[system]

    def consumer(self, system: str, metrics: MetricsRegistry) -> SystemConsumer:
        """A new consumer of a system."""
        return self.factory(system).get_consumer(system, self._config, metrics)

    def input(self, system: str, metrics: MetricsRegistry, streams: Collection[SystemStream], who: str) -> SystemConsumer:
        """A new consumer of a system for a container, which also brings what is only there while somebody receives it (where the system is
        landed). ``streams``: the inputs of the job; ``who``: the job."""
        self.factory(system)
        landing = self._landings.get(system)
        if landing is None:
            return self.consumer(system, metrics)
        return landing.get_input(system, self._config, metrics, [each for each in streams if each.system == system], who)

    def receiver(self, system: str, metrics: MetricsRegistry, streams: Collection[SystemStream], who: str) -> Receiver:
        """What receives streams of a system that is landed. Raises ConfigError where it is not."""
        self.factory(system)
        landing = self._landings.get(system)
        if landing is None:
            key = f"systems.{system}.samza.landing"
            raise self._config.error(key, f"is missing: '{system}' is not landed; name the log system that is to keep what is received")
        return landing.get_receiver(system, self._config, metrics, streams, who)

    def producer(self, system: str, metrics: MetricsRegistry) -> SystemProducer:
        """A new producer of a system."""
        return self.factory(system).get_producer(system, self._config, metrics)

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        """What ``SystemAdmin.metadata`` says of streams of any systems."""
        found: dict[SystemStream, dict[int, PartitionMetadata]] = {}
        for system, wanted in _by_system(streams).items():
            found.update(self.admin(system).metadata(wanted))
        return found

    def glance(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        """What ``SystemAdmin.glance`` says of streams of any systems; nothing of those whose system does not answer."""
        found: dict[SystemStream, dict[int, PartitionMetadata]] = {}
        for system, wanted in _by_system(streams).items():
            try:
                found.update(self.admin(system).glance(wanted))
            except UnknownStreamError:
                raise
            except StreamSystemError as error:
                log.debug("%s does not answer: %s", system, error)
        return found

    def inputs(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        """``metadata`` of the inputs of the job: that one is not there is told with the key, and with what makes it."""
        found: dict[SystemStream, dict[int, PartitionMetadata]] = {}
        for system, wanted in _by_system(streams).items():
            try:
                found.update(self.admin(system).metadata(wanted))
            except UnknownStreamError as error:
                keys = [key for key in ("task.inputs", "task.broadcast.inputs") if self._config.text(key)]
                raise UnknownStreamError(f"{' or '.join(keys)}: {error}{self.remedy(system)}") from None
        return found

    def remedy(self, system: str, stream: str = "SYSTEM.STREAM") -> str:
        """How a stream of a system is made that is not there, for the end of an error; empty where that is not for streambench to do."""
        if builtin_kind(self._config, system) in _MADE_BY_OTHERS:
            return ""
        return f"; 'streambench streams create {stream}' makes one, in a notebook '%stream streams create {stream}'"

    def create(self, stream: SystemStream, partitions: int | None = None) -> bool:
        """Create a stream with so many partitions, else with as many as the configuration says for it (1 if it does not)."""
        key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
        number = self._config.integer(key) if partitions is None else partitions
        if number < 1:
            raise self._config.error(key, f"{number} partitions: a stream has at least one")
        return self.admin(stream.system).create(stream, number)

    def close(self) -> None:
        """Close the admins."""
        admins, self._admins = self._admins, {}
        do_all([admin.close for admin in admins.values()])

    def _missing(self, system: str, key: str | None) -> ConfigError:
        setting = f"systems.{system}.samza.factory"
        others = [name for name in self.names() if f"systems.{name}.samza.factory" in self._config]
        near = difflib.get_close_matches(system, others, n=1)
        hint = f"did you mean {near[0]}?" if near else f"define it with {setting}=log (or {', '.join(sorted(BUILTIN))}, ...)"
        what = f"there is no system '{system}'; {hint}"
        return self._config.error(key, what) if key else ConfigError(what, key=setting)

    def _landed(self, system: str, factory: SystemFactory) -> SystemFactory:
        """The factory, or one of what was landed where the configuration has the system landed."""
        key = f"systems.{system}.samza.landing"
        target = self._config.text(key)
        if target is None:
            return factory
        from streambench.system.landing import LandedSystemFactory  # it needs the log, as few jobs do

        if self._config.text(f"systems.{target}.samza.landing") is not None:
            raise self._config.error(key, f"'{target}' is landed itself: name a log system that is not")
        self.factory(target, key=key)
        if builtin_kind(self._config, target) != "log":
            raise self._config.error(key, f"'{target}' is no log system: landing needs one, to be read from again")
        landing = self._landings[system] = LandedSystemFactory(factory, target)
        return landing

    def _check_keys(self, system: str, factory: SystemFactory) -> None:
        if factory.keys is None:
            return
        for name in self._config.below(f"systems.{system}."):
            if not name.startswith(("samza.", "streams.")) and name not in factory.keys:
                near: Collection[str] = difflib.get_close_matches(name, factory.keys, n=1)
                hint = f"; did you mean systems.{system}.{next(iter(near))}?" if near else ""
                raise self._config.error(f"systems.{system}.{name}", f"is not a setting of this kind of system{hint}")


def _by_system(streams: Iterable[SystemStream]) -> dict[str, list[SystemStream]]:
    systems: dict[str, list[SystemStream]] = {}
    for stream in streams:
        systems.setdefault(stream.system, []).append(stream)
    return systems
