"""From ``systems.<s>.*`` to the parts of an AMQP system."""

from __future__ import annotations

from typing import ClassVar

from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import MissingExtraError
from streambench.metrics.registry import MetricsRegistry
from streambench.system.amqp.settings import SETTINGS, Settings
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer


class AmqpSystemFactory(SystemFactory):
    """``systems.<s>.samza.factory=amqp``; ``systems.<s>.url`` says where the broker is. ``docs/amqp.md`` has
    all of it.

    **Queues** (``queue.type=quorum`` or ``classic``): a stream is a queue. Its messages are shared out among
    all who read it, and its partitions are the tasks that compete for it. A message is acknowledged after
    the commit that holds its results. There are no offsets to be kept, and no rewind.

    **Fan-out**: a stream with an ``exchange`` is read from a queue of its own for each ``group``.

    **Stream queues** (``queue.type=stream``, of the whole system) keep their messages. They have checkpoints
    and can be replayed, as a log. A stream of n partitions is n queues: t-0, t-1, ...
    """

    keys: ClassVar[frozenset[str] | None] = None
    settings: ClassVar[tuple[Key, ...]] = SETTINGS.keys
    holds_changelogs: ClassVar[bool] = False

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemConsumer:
        settings = _settings(system, config)
        from streambench.system.amqp.consumer import AmqpConsumer

        return AmqpConsumer(settings, metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemProducer:
        settings = _settings(system, config)
        from streambench.system.amqp.producer import AmqpProducer

        return AmqpProducer(settings, metrics)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> SystemAdmin:
        settings = _settings(system, config)
        from streambench.system.amqp.admin import AmqpAdmin

        return AmqpAdmin(settings)


def _settings(system: str, config: Config) -> Settings:
    settings = Settings(system, config)
    try:
        import pika  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"systems.{system}.samza.factory={config[f'systems.{system}.samza.factory']}", "amqp"
        ) from error
    return settings
