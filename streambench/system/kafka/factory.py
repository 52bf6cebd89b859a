"""From ``systems.<s>.*`` to the parts of a Kafka system."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

from streambench.checkpoint.api import CheckpointManager
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import MissingExtraError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.api import Sender, SystemAdmin, SystemConsumer, SystemFactory, SystemProducer
from streambench.system.capabilities import NamedWrite
from streambench.system.kafka.message_check import checked_size
from streambench.system.kafka.settings import CHECKPOINTS, SETTINGS, TOPIC_KEYS, Settings, largest_message


class KafkaSystemFactory(SystemFactory):
    """``systems.<s>.samza.factory=kafka``; ``systems.<s>.bootstrap.servers`` says where. Checkpoints may be
    kept there, too."""

    keys: ClassVar[frozenset[str] | None] = None
    settings: ClassVar[tuple[Key, ...]] = SETTINGS.keys
    stream_settings: ClassVar[frozenset[str]] = TOPIC_KEYS
    consecutive_offsets: ClassVar[bool] = True
    portable_settings: ClassVar[bool] = True

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemConsumer:
        settings = _settings(system, config)
        from streambench.system.kafka.consumer import KafkaConsumer

        return KafkaConsumer(settings, metrics, config.command("checkpoints --rewind oldest"))

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemProducer:
        settings = _settings(system, config)
        from streambench.system.kafka.producer import KafkaProducer

        return KafkaProducer(settings, metrics)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> SystemAdmin:
        settings = _settings(system, config)
        from streambench.system.kafka.admin import KafkaAdmin

        return KafkaAdmin(settings)

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        limit = largest_message(config, stream, largest)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            ssp = SystemStreamPartition(stream.system, stream.stream, partition)
            checked_size(ssp, key, message, envelope.timestamp, envelope.headers, limit)

        return send

    def get_checkpoint_manager(self, system: str, config: Config, job: str) -> CheckpointManager:
        """The checkpoints of a job, kept in a topic of its own."""
        settings = _settings(system, config)
        from streambench.system.kafka.checkpoints import KafkaCheckpointManager
        from streambench.system.kafka.exactly_once import TransactionalCheckpointManager

        is_exact = config.text("task.processing.guarantee") == "exactly-once"
        kind = TransactionalCheckpointManager if is_exact else KafkaCheckpointManager
        return kind(settings, job, keep=config.integer("task.checkpoint.history"))

    def holds_checkpoints(self, stream: str) -> bool:
        return stream.startswith(CHECKPOINTS)

    def get_named_write(self, system: str, config: Config, name: str) -> NamedWrite:
        settings = _settings(system, config)
        from streambench.system.kafka.named_writes import KafkaNamedWrite

        return KafkaNamedWrite(settings, name)

    def get_jobs(self, system: str, config: Config) -> list[str]:
        """The jobs that keep their checkpoints here, sorted. Raises StreamSystemError."""
        settings = _settings(system, config)
        from streambench.system.kafka.admin import KafkaAdmin
        from streambench.system.kafka.checkpoints import job_of
        from streambench.system.kafka.named_writes import PREFIX

        with closing(KafkaAdmin(settings)) as admin:
            names = map(job_of, admin.checkpoint_topics())
            return sorted(name for name in names if not name.startswith(PREFIX))


def _settings(system: str, config: Config) -> Settings:
    try:
        return Settings.from_config(system, config)
    except ModuleNotFoundError as error:
        if error.name != "kafka":
            raise
        raise MissingExtraError(
            f"systems.{system}.samza.factory={config[f'systems.{system}.samza.factory']}", "kafka"
        ) from error
