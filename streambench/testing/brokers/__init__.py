"""Brokers on this machine, for tests and tutorials: nodes of Apache Kafka, a RabbitMQ server."""
