"""The factory of a landed system: it stands before that of the system itself."""

from __future__ import annotations

import logging
from collections.abc import Collection

from streambench import imports as load
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream
from streambench.system.api import Sender, SystemFactory, SystemProducer, accept
from streambench.system.capabilities import Checking
from streambench.system.landing.admin import LandedAdmin, LandedLog
from streambench.system.landing.consumer import LandedConsumer
from streambench.system.landing.receiver import Receiver
from streambench.system.log.consumer import LogConsumer
from streambench.system.log.factory import LogSystemFactory, log_of
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

_LIMITS = ("max.message.bytes", "max.body.bytes")


def landing_key(system: str) -> str:
    """The key that names the log in which a system is landed."""
    return f"systems.{system}.samza.landing"


class LandedSystemFactory(SystemFactory):
    """Makes consumers and admins of what was landed of a system. What is sent to it goes out through its own
    producer."""

    def __init__(self, source: SystemFactory, target: str) -> None:
        """``target``: the log system."""
        self.source = source
        self.target = target

    @property
    def creates_streams(self) -> bool:
        return self.source.creates_streams

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> LogConsumer:
        """Reads what was landed, and receives nothing."""
        return LogConsumer(system, LandedLog(log_of(self.target, config), system), metrics)

    def get_input(
        self,
        system: str,
        config: Config,
        metrics: MetricsRegistry,
        streams: Collection[SystemStream],
        who: str,
    ) -> LandedConsumer:
        """The consumer of a container, which receives ``streams`` as well, unless the configuration leaves
        that to others. ``who``: its job."""
        receiver = None
        if config.boolean(f"{landing_key(system)}.receive"):
            receiver = self.get_receiver(system, config, metrics, streams, who)
        admin = self.get_admin(system, config, metrics)
        log = LandedLog(log_of(self.target, config), system)
        return LandedConsumer(system, log, admin, metrics, receiver, config.integer("task.shutdown.ms"))

    def get_receiver(
        self,
        system: str,
        config: Config,
        metrics: MetricsRegistry,
        streams: Collection[SystemStream],
        who: str,
    ) -> Receiver:
        """Return the receiver of the system. Raises ConfigError where the log would not keep what is
        acknowledged."""
        key = f"systems.{self.target}.fsync"
        if log_of(self.target, config).settings.fsync == "never":
            what = (
                f"'never' forces nothing to the disk, but what is landed in '{self.target}' "
                f"({landing_key(system)}) is acknowledged"
            )
            raise config.error(
                key,
                f"{what} as durable, so that a loss of power would lose it for good: write flush or batch",
            )
        _compare_limits(system, self.target, self.source, config)
        return Receiver(system, streams, self.target, self.source, config, metrics, who=who)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemProducer:
        return load.call_promised(self.source.get_producer, 2, system, config, metrics)

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        if isinstance(self.source, Checking):
            return self.source.get_check(system, config, stream, largest)
        return accept

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> LandedAdmin:
        """Raises ConfigError where there is nothing to be gained by landing."""
        parts = system, config, metrics or MetricsRegistry()
        source = load.call_promised(self.source.get_admin, 2, *parts)
        if source.replayable:
            source.close()
            raise config.error(
                landing_key(system),
                f"'{system}' keeps its messages itself: it need not be landed; leave this key out",
            )
        return LandedAdmin(system, log_of(self.target, config), source, config)


def landed(systems: Systems, config: Config, system: str, factory: SystemFactory) -> LandedSystemFactory:
    """Return the factory of a system that the configuration has landed; ``factory`` is its own.

    Raises ConfigError where it is landed in what is no log."""
    key = landing_key(system)
    target = config.required(key)
    if config.text(landing_key(target)) is not None:
        raise config.error(key, f"'{target}' is landed itself: name a log system that is not")
    if not isinstance(systems.factory(target, key=key), LogSystemFactory):
        raise config.error(key, f"'{target}' is no log system: landing needs one, to be read from again")
    return LandedSystemFactory(factory, target)


def receiver_of(
    systems: Systems,
    config: Config,
    system: str,
    metrics: MetricsRegistry,
    streams: Collection[SystemStream],
    who: str,
) -> Receiver:
    """Return the receiver of streams of a system that is landed. Raises ConfigError where it is not."""
    factory = systems.factory(system)
    if not isinstance(factory, LandedSystemFactory):
        raise config.error(
            landing_key(system),
            f"is missing: '{system}' is not landed; name the log system that is to keep what is received",
        )
    return factory.get_receiver(system, config, metrics, streams, who)


def _compare_limits(system: str, target: str, source: SystemFactory, config: Config) -> None:
    """Warn where the configuration lets messages in that the log will not take, whose senders should be
    refused at once."""
    own = f"systems.{target}.max.message.bytes"
    most = log_of(target, config).settings.max_message_bytes
    prefix = f"systems.{system}."
    known = {
        name: key.default
        for key in source.settings
        if "<" not in (name := key.pattern.removeprefix("systems.<s>."))
    }
    for name, text in {**known, **config.below(prefix)}.items():
        is_said = prefix + name in config or own in config
        if (
            name.endswith(_LIMITS)
            and is_said
            and text is not None
            and text.strip().isdecimal()
            and int(text) > most
        ):
            log.warning(
                "%s%s=%s is more than %s=%d: what is larger than that is received, and cannot be landed; "
                "make them equal",
                prefix,
                name,
                text,
                own,
                most,
            )
