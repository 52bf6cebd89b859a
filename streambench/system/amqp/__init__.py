"""Message brokers that speak AMQP 0-9-1, RabbitMQ above all. Begin at ``AmqpSystemFactory``."""

from streambench.system.amqp.factory import AmqpSystemFactory

__all__ = ["AmqpSystemFactory"]
