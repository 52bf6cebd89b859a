"""From ``systems.<s>.*`` to the parts of a Kafka system."""

from __future__ import annotations

from typing import ClassVar

from streambench.checkpoint.api import CheckpointManager
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.system.api import SystemFactory
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.checkpoints import KafkaCheckpointManager
from streambench.system.kafka.consumer import KafkaConsumer
from streambench.system.kafka.producer import KafkaProducer
from streambench.system.kafka.settings import Settings


class KafkaSystemFactory(SystemFactory):
    """``systems.<s>.samza.factory=kafka``; ``systems.<s>.bootstrap.servers`` says where. Checkpoints may be kept there, too."""

    keys: ClassVar[frozenset[str] | None] = None

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> KafkaConsumer:
        return KafkaConsumer(Settings.from_config(system, config), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> KafkaProducer:
        return KafkaProducer(Settings.from_config(system, config), metrics)

    def get_admin(self, system: str, config: Config) -> KafkaAdmin:
        return KafkaAdmin(Settings.from_config(system, config))

    def get_checkpoint_manager(self, system: str, config: Config, job: str) -> CheckpointManager:
        """The checkpoints of a job, kept in a topic of its own."""
        return KafkaCheckpointManager(Settings.from_config(system, config), job, keep=config.integer("task.checkpoint.history"))
