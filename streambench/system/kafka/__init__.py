"""Apache Kafka as a system of streams, by way of kafka-python; and a Kafka of one's own to try it with."""

from streambench.system.kafka.factory import KafkaSystemFactory

__all__ = ["KafkaSystemFactory"]
