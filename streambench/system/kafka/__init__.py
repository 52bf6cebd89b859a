"""Apache Kafka as a system of streams, by way of kafka-python. Begin at ``KafkaSystemFactory``."""

from streambench.system.kafka.factory import KafkaSystemFactory

__all__ = ["KafkaSystemFactory"]
