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
    """``systems.<s>.samza.factory=amqp``; ``systems.<s>.url`` says where the broker is.

    **Queues** (``queue.type=quorum`` or ``classic``). A stream is a queue. Its messages are shared out among
    all who read it: containers of this job, and of others (*load balancing*).
    ``systems.<s>.streams.<t>.partitions=n`` makes n tasks compete for it, in as many containers as
    ``job.container.count`` says; of order, only what one of them gets is certain. A message is acknowledged
    once it was processed and a commit has made durable what became of it. What is not acknowledged when a
    container or its connection dies is delivered again, with the header ``amqp.redelivered``. A queue
    cannot be rewound: there are no offsets to be kept.

    **Fan-out**. A stream with ``streams.<t>.exchange=E`` is read from a queue that is bound to the exchange
    E, one for each ``group`` (default: the job). Every group gets everything, and shares it out among its
    members.

    **Stream queues** (``queue.type=stream``, of the whole system) keep their messages, which can be read from
    any offset, as often as one likes. They have checkpoints and can be replayed, as a log. A stream of n
    partitions is n queues, named as in a super stream: t-0, t-1, ...

    Messages are persistent, and a flush returns when the broker has confirmed all of them. One that no queue
    takes is an error.
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
