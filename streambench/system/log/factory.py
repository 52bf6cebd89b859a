"""From ``systems.<s>.*`` to the parts of a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from streambench.config import Config
from streambench.config_keys import Key
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.api import Sender, SystemFactory
from streambench.system.log.admin import LogAdmin
from streambench.system.log.consumer import LogConsumer
from streambench.system.log.message_check import MessageCheck
from streambench.system.log.producer import LogProducer
from streambench.system.log.settings import PATH, SETTINGS, Settings, configured_streams
from streambench.system.log.staging import StagedWrite
from streambench.system.log.streams import Log


class LogSystemFactory(SystemFactory):
    """Makes the parts of the log in ``systems.<s>.path``. Each part opens its files for itself."""

    keys: ClassVar[frozenset[str] | None] = SETTINGS.system_names
    settings: ClassVar[tuple[Key, ...]] = SETTINGS.keys
    is_local: ClassVar[bool] = True
    consecutive_offsets: ClassVar[bool] = True
    portable_settings: ClassVar[bool] = True
    creates_path: ClassVar[bool] = True

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> LogConsumer:
        return LogConsumer(system, log_of(system, config), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> LogProducer:
        return LogProducer(system, log_of(system, config), metrics)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> LogAdmin:
        return LogAdmin(system, log_of(system, config))

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        check = MessageCheck(system, Settings.read(config, system).max_message_bytes)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            check.header_bytes(stream, f"{stream}.{partition}", key, message, envelope.headers)

        return send

    @contextmanager
    def staged_write(
        self, system: str, config: Config, stream: str, name: str, *, once: bool
    ) -> Iterator[StagedWrite]:
        with log_of(system, config) as log:
            yield StagedWrite(log, stream, name, once=once)


def log_of(system: str, config: Config) -> Log:
    """The log of a configured system, opened once more. Raises ConfigError that names the key."""
    key = f"systems.{system}.path"
    path = config.directory_at(key, f"{PATH}, such as {key}=streams")
    settings, of_streams = Settings.read(config, system), configured_streams(system, config)
    return Log(path, system, settings, of_streams, config.placed(key))
