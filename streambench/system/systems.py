"""The systems of one job: from ``systems.<s>.*`` to factories, admins, consumers and producers, each made
when first asked for."""

from __future__ import annotations

import logging
import pkgutil
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from streambench import config_keys
from streambench import imports as load
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import (
    ConfigError,
    StreambenchError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
    do_all,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import StreamsMetadata, SystemStream, SystemStreamPartition
from streambench.suggestions import suggest
from streambench.system.api import (
    Sender,
    SystemAdmin,
    SystemConsumer,
    SystemFactory,
    SystemProducer,
    accept,
)
from streambench.system.capabilities import Checking, ListsJobs, Receiving

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

KEYS_MOVE = (
    "From now on, many keys go to other partitions than before. What a job keeps for a key stays with the "
    "task that had it: for keys that move to another task, counts and other state start from zero."
)
"""The remark once a stream has grown."""

WRAPPERS = {"samza.landing": "streambench.system.landing:landed"}
"""Settings of any system, and the function ``(systems, config, system, factory)`` that returns the factory to
use in place of the system's own. It is imported where the setting stands."""

_NOT_FEWER = "; a stream can get more of them, not fewer"
_Named = TypeVar("_Named", SystemStream, SystemStreamPartition)


def builtin_kind(config: Config, system: str) -> str | None:
    """The kind of a system that comes with streambench (``log``, ...), named by name or by path; None for any
    other."""
    named = (config.text(f"systems.{system}.samza.factory") or "").replace(":", ".")
    return next((kind for kind, path in BUILTIN.items() if named in (kind, path.replace(":", "."))), None)


def abilities_of(config: Config, system: str) -> SystemFactory | type[SystemFactory]:
    """Return what declares the abilities of a system: its factory, or the class of it.

    They are those of the system itself, also where it is landed. Where there is no such factory they are the
    defaults: its error is raised where it is used."""
    setting = f"systems.{system}.samza.factory"
    if config.text(setting) is None:
        return SystemFactory
    try:
        found = load.resolve(config, setting, group=GROUP, builtin=BUILTIN, again=False)
    except StreambenchError:
        return SystemFactory
    is_factory = isinstance(found, SystemFactory) or (
        isinstance(found, type) and issubclass(found, SystemFactory)
    )
    return found if is_factory else SystemFactory


def kind_name(config: Config, system: str) -> str:
    """Return how errors call the kind of a system: ``log``, ..., else as the configuration does."""
    return builtin_kind(config, system) or config.text(f"systems.{system}.samza.factory") or "memory"


def builtin_settings() -> list[Key]:
    """The settings of the systems that come with streambench, beyond those that all systems have."""
    factories = (pkgutil.resolve_name(path) for path in BUILTIN.values())
    return [key for factory in factories for key in factory.settings]


def settings_of(config: Config, system: str) -> list[Key]:
    """The settings of one system of a kind that comes with streambench, under its own name; else none."""
    kind = builtin_kind(config, system)
    settings = pkgutil.resolve_name(BUILTIN[kind]).settings if kind is not None else ()
    return [key._replace(pattern=key.pattern.replace("<s>", system)) for key in settings]


def settings_of_streams(config: Config, system: str) -> dict[str, dict[str, str]]:
    """The settings of the streams of one system of a kind that comes with streambench, by stream.

    The names of streams and of settings may have dots: a key ends in the longest setting that is known."""
    kind = builtin_kind(config, system)
    factory = pkgutil.resolve_name(BUILTIN[kind]) if kind is not None else None
    prefix = f"systems.{system}.streams."
    known = {"partitions", *getattr(factory, "stream_settings", ())}
    known |= {each.pattern.partition(".<t>.")[2] for each in getattr(factory, "settings", ())} - {""}
    found: dict[str, dict[str, str]] = {}
    for key, value in config.below(prefix).items():
        stream, dot, setting = key.partition(".samza.")
        if dot:
            setting = f"samza.{setting}"
        elif setting := max((each for each in known if key.endswith(f".{each}")), key=len, default=""):
            stream = key.removesuffix(f".{setting}")
        else:
            stream, _, setting = key.partition(".")
        found.setdefault(stream, {})[setting] = value
    return found


def known_key(config: Config, key: str) -> Key | None:
    """The description of a key: one of the table, or a setting of the system that it belongs to."""
    known = config_keys.find(key)
    if known is not None or not key.startswith("systems."):
        return known
    patterns = ((each, re.escape(each.pattern)) for each in settings_of(config, key.split(".")[1]))
    return next((each for each, text in patterns if re.fullmatch(text.replace("<t>", ".+"), key)), None)


def log_systems(config: Config) -> list[str]:
    """The names of the log systems that the configuration defines, sorted."""
    return [system for system in config.names_below("systems.") if builtin_kind(config, system) == "log"]


def keepers(config: Config) -> list[str]:
    """The names of the systems that may keep checkpoints and changelogs, sorted. These are the log systems.
    Where there are none, they are systems whose factories have a ``get_checkpoint_manager``."""
    return log_systems(config) or [
        system for system in config.names_below("systems.") if _keeps_checkpoints(config, system)
    ]


def _keeps_checkpoints(config: Config, system: str) -> bool:
    setting = f"systems.{system}.samza.factory"
    return config.text(setting) is not None and hasattr(
        load.resolve(config, setting, group=GROUP, builtin=BUILTIN), "get_checkpoint_manager"
    )


class Systems:
    """The systems of a job's configuration. ``fallback`` is the factory of those that name none (or
    ``memory``)."""

    def __init__(self, config: Config, fallback: SystemFactory | None = None) -> None:
        self._config = config
        self.metrics = MetricsRegistry()
        """Those of the admins; a container has them among its own."""
        self._fallback = fallback
        self._factories: dict[str, SystemFactory] = {}
        self._admins: dict[str, SystemAdmin] = {}
        self._warned: set[SystemStream] = set()

    def names(self) -> list[str]:
        """The systems that the configuration defines, sorted."""
        return self._config.names_below("systems.")

    def factory(self, system: str, *, key: str | None = None) -> SystemFactory:
        """The factory of a system. Raises ConfigError naming ``key`` (where the system was mentioned) if
        there is no such system."""
        if system not in self._factories:
            setting = f"systems.{system}.samza.factory"
            if self._fallback is not None and (self._config.text(setting) or "memory") == "memory":
                return self._fallback
            if setting not in self._config:
                raise self._missing(system, key)
            factory = load.resolve(self._config, setting, group=GROUP, builtin=BUILTIN)
            if isinstance(factory, type):
                factory = load.instantiate(self._config, setting, factory)
            if not isinstance(factory, SystemFactory):
                raise self._config.error(setting, f"{self._config[setting]} is not a SystemFactory")
            self._check_keys(system, factory)
            self._factories[system] = self._wrapped(system, factory)
        return self._factories[system]

    def jobs(self, system: str) -> list[str]:
        """The jobs that keep their checkpoints in a system, sorted; none of one that does not list them.
        Raises ConfigError and StreamSystemError."""
        factory = self.factory(system)
        return factory.get_jobs(system, self._config) if isinstance(factory, ListsJobs) else []

    def has(self, system: str) -> bool:
        """True where the factory of a system is known already, because it was asked for or added."""
        return system in self._factories

    def add(self, system: str, factory: SystemFactory) -> None:
        """Define a system that the configuration does not name."""
        self._factories[system] = factory

    def check_names(self) -> None:
        """Raise ConfigError at the first key of a system that nothing defines: what it says would be left out
        in silence."""
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
            make = self.factory(system).get_admin
            self._admins[system] = load.call_promised(make, 2, system, self._config, self.metrics)
        return self._admins[system]

    def consumer(self, system: str, metrics: MetricsRegistry) -> SystemConsumer:
        """A new consumer of a system."""
        return load.call_promised(self.factory(system).get_consumer, 2, system, self._config, metrics)

    def input(
        self, system: str, metrics: MetricsRegistry, streams: Collection[SystemStream], who: str
    ) -> SystemConsumer:
        """A new consumer of a system for a container, which also receives what is only there while it is
        received. ``streams``: the inputs of the job; ``who``: the job."""
        factory = self.factory(system)
        if not isinstance(factory, Receiving):
            return self.consumer(system, metrics)
        own = [each for each in streams if each.system == system]
        return factory.get_input(system, self._config, metrics, own, who)

    def producer(self, system: str, metrics: MetricsRegistry) -> SystemProducer:
        """A new producer of a system."""
        return load.call_promised(self.factory(system).get_producer, 2, system, self._config, metrics)

    def check(self, stream: SystemStream, largest: int | None = None) -> Sender:
        """A sender that sends nothing, and refuses what a producer itself refuses (``Checking``). Raises
        ConfigError.

        ``largest``: the size limit that a broker has given (``SizeLimited``)."""
        factory = self.factory(stream.system)
        if not isinstance(factory, Checking):
            return accept
        return factory.get_check(stream.system, self._config, stream, largest)

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        """The ``SystemAdmin.metadata`` of streams of any systems."""
        found: StreamsMetadata = {}
        for system, wanted in _by_system(streams).items():
            found.update(self.admin(system).metadata(wanted))
        return found

    def glance(self, partitions: Iterable[SystemStreamPartition]) -> StreamsMetadata:
        """The ``SystemAdmin.glance`` of partitions of any systems; nothing of those whose system does not
        answer."""
        found: StreamsMetadata = {}
        for system, wanted in _by_system(partitions).items():
            try:
                found.update(self.admin(system).glance(wanted))
            except UnknownStreamError:
                raise
            except StreamSystemError as error:
                log.debug("%s does not answer: %s", system, error)
        return found

    def metadata_of(self, partitions: Iterable[SystemStreamPartition]) -> StreamsMetadata:
        """The ``SystemAdmin.metadata_of`` of partitions of any systems."""
        found: StreamsMetadata = {}
        for system, wanted in _by_system(partitions).items():
            found.update(self.admin(system).metadata_of(wanted))
        return found

    def inputs(
        self,
        streams: Iterable[SystemStream],
        of: Collection[SystemStreamPartition] | None = None,
    ) -> StreamsMetadata:
        """``metadata`` of the inputs of the job: that one is not there is reported with the key, and with
        what makes it. ``of``: only these partitions are needed."""
        found: StreamsMetadata = {}
        for system, wanted in _by_system(streams).items():
            try:
                admin = self.admin(system)
                own = None if of is None else [ssp for ssp in of if ssp.system_stream in wanted]
                found.update(admin.metadata(wanted) if own is None else admin.metadata_of(own))
            except UnknownStreamError as error:
                raise self._unknown_input(wanted, error) from None
        return found

    def _unknown_input(self, wanted: Iterable[SystemStream], error: UnknownStreamError) -> UnknownStreamError:
        """The error for the first of these inputs that is not there, with the key that names it; ``error`` is
        of one of them."""
        for stream in wanted:
            try:
                self.admin(stream.system).metadata([stream])
            except UnknownStreamError as found:
                named = [name.partition("#")[0] for name in self._config.names("task.inputs")]
                key = "task.inputs" if str(stream) in named else "task.broadcast.inputs"
                return UnknownStreamError(f"{key}: {found}{self.remedy(stream.system, str(stream))}")
        return UnknownStreamError(f"task.inputs: {error}")  # it has come meanwhile

    def remedy(self, system: str, stream: str) -> str:
        """The command that creates a missing stream of a system, for the end of an error; empty where
        streambench does not create it."""
        if not self.factory(system).creates_streams:
            return ""
        command = self._config.command(f"streams create {stream}")
        return f"; '{command}' makes one"

    def output(self, stream: SystemStream) -> SystemStream:
        """The stream that gets what tasks send to a stream (``task.output.suffix``)."""
        suffix = self._config.text("task.output.suffix")
        return stream if suffix is None else SystemStream(stream.system, f"{stream.stream}{suffix}")

    def create(self, stream: SystemStream, partitions: int | None = None) -> bool:
        """Create a stream with so many partitions, else with as many as the configuration says for it (1 if
        it does not)."""
        key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
        number = self._config.integer(key) if partitions is None else partitions
        if number < 1:
            raise self._config.error(key, f"{number} partitions: a stream has at least one")
        admin = self.admin(stream.system)
        try:
            return admin.create(stream, number)
        except StreamExistsError as error:
            present = number
            with suppress(StreambenchError):  # the first error is the one to know
                present = admin.partition_count(stream)
            raise StreamExistsError(f"{error}{self._growing(stream, present, number)}") from None

    def created(self, stream: SystemStream) -> int:
        """The number of partitions of an output, which is created where it is missing. A warning says that
        it has other partitions than the configuration gives it."""
        admin = self.admin(stream.system)
        try:
            present = admin.partition_count(stream)
        except UnknownStreamError:
            self.create(stream)
            present = admin.partition_count(stream)
        key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
        wanted = self._config.integer(key) if self._config.get(key, "").strip() else present
        if wanted != present and stream not in self._warned:
            self._warned.add(stream)
            growing = self._growing(stream, present, wanted)
            self._config.warn(
                key, f"{stream} is there already, with {present} partitions and not {wanted}{growing}"
            )
        return present

    def grow(self, stream: SystemStream, partitions: int) -> int:
        """Give a stream so many partitions, durably; returns how many it had. Raises StreamExistsError where
        it had more."""
        admin = self.admin(stream.system)
        before = admin.partition_count(stream)
        if partitions < before:
            raise StreamExistsError(f"{stream} has {before} partitions{_NOT_FEWER}")
        admin.grow(stream, partitions)
        return before

    def _growing(self, stream: SystemStream, present: int, wanted: int) -> str:
        """The remedy, for the end of a text, for a stream that has other partitions than wanted."""
        if wanted == present or type(self.admin(stream.system)).grow is SystemAdmin.grow:
            return ""  # the latter: this kind of system cannot
        if wanted < present:
            return _NOT_FEWER
        command = self._config.command(f"streams grow {stream} --partitions {wanted}")
        return f"; '{command}' gives it as many"

    def close(self) -> None:
        """Close the admins."""
        admins, self._admins = self._admins, {}
        do_all([admin.close for admin in admins.values()])

    def _missing(self, system: str, key: str | None) -> ConfigError:
        setting = f"systems.{system}.samza.factory"
        others = [name for name in self.names() if f"systems.{name}.samza.factory" in self._config]
        hint = suggest(system, others, f"define it with {setting}=log (or {', '.join(sorted(BUILTIN))}, ...)")
        what = f"there is no system '{system}'; {hint}"
        return self._config.error(key, what) if key else ConfigError(what, key=setting)

    def _wrapped(self, system: str, factory: SystemFactory) -> SystemFactory:
        """The factory, or one around it where a setting of the system asks for that."""
        for name, path in WRAPPERS.items():
            if self._config.text(f"systems.{system}.{name}") is not None:
                factory = pkgutil.resolve_name(path)(self, self._config, system, factory)
        return factory

    def _check_keys(self, system: str, factory: SystemFactory) -> None:
        if factory.keys is None:
            return
        prefix = f"systems.{system}."
        # References stay as they are: a job is packed where its secrets may not be.
        for name in [key.removeprefix(prefix) for key in self._config if key.startswith(prefix)]:
            if not name.startswith(("samza.", "streams.")) and name not in factory.keys:
                hint = suggest(name, factory.keys, prefix=prefix)
                raise self._config.error(
                    f"{prefix}{name}",
                    f"is not a setting of this kind of system{hint and '; '}{hint}",
                )


def _by_system(named: Iterable[_Named]) -> dict[str, list[_Named]]:
    systems: dict[str, list[_Named]] = {}
    for each in named:
        systems.setdefault(each.system, []).append(each)
    return systems
