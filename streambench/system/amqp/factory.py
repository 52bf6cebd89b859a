"""From ``systems.<s>.*`` to the parts of an AMQP system."""

from __future__ import annotations

from typing import Any, ClassVar

from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import MissingExtraError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.amqp.settings import SETTINGS, Queues, Settings, SizeLimit, Topology
from streambench.system.api import Sender, SystemAdmin, SystemConsumer, SystemFactory, SystemProducer


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

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        _require_pika(system, config)
        from streambench.system.amqp.outgoing import Routing, encoder

        topology = Topology.read(config, system, stream.stream)
        header = Queues.read(config, system, stream.stream).key_header
        routing = Routing(topology.exchange or "", topology.routing_key, header)
        encode = encoder(stream, routing, SizeLimit.read(config, system).max_message_bytes, None)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            encode(envelope, key, message)

        return send


def _settings(system: str, config: Config) -> Settings:
    settings = Settings(system, config)
    _require_pika(system, config)
    return settings


def _require_pika(system: str, config: Config) -> None:
    try:
        import pika  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"systems.{system}.samza.factory={config[f'systems.{system}.samza.factory']}", "amqp"
        ) from error
