"""Topics as the brokers of a cluster describe them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.metadata import MetadataRequest

_UNKNOWN = kafka_errors.UnknownTopicOrPartitionError.errno
_PATIENCE_MS = 5_000


def describe_topics(admin: Any, topics: Collection[str]) -> list[dict[str, Any]]:
    """Describe topics, as ``KafkaAdminClient.describe_topics`` does, by what any broker knows.

    A new topic reaches each broker at a time of its own, and another process may ask a broker that has not
    heard of it. A topic that the first broker does not know is therefore asked for at all the others. One
    that cannot be reached is passed over. Raises what kafka-python raises."""
    described: list[dict[str, Any]] = admin.describe_topics(sorted(topics))
    unknown = {each["name"] for each in described if is_unknown(each)}
    if not unknown:
        return described
    found = {each["name"]: each for each in _asked_everywhere(admin, sorted(unknown))}
    return [found.get(each["name"], each) for each in described]


def is_unknown(topic: dict[str, Any]) -> bool:
    """True where a broker described a topic as one that it does not know, or as one without partitions."""
    return topic["error_code"] == _UNKNOWN or not (topic["error_code"] or topic["partitions"])


def _asked_everywhere(admin: Any, topics: list[str]) -> list[dict[str, Any]]:
    """Those of the topics that a broker knows, as it describes them."""
    manager = admin._manager  # kafka-python has no public call that asks a broker by its number
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=each) for each in topics],
        allow_auto_topic_creation=False,
    )

    async def ask(node: int) -> list[dict[str, Any]]:
        response = await manager.send(request, node_id=node, request_timeout_ms=_PATIENCE_MS)
        answer: list[dict[str, Any]] = response.to_dict()["topics"]
        return answer

    found: list[dict[str, Any]] = []
    for broker in admin.describe_cluster()["brokers"]:
        try:
            answer = manager.run(ask, broker["broker_id"])
        except kafka_errors.KafkaError:
            continue
        found += [each for each in answer if not each["error_code"] and each["partitions"]]
    return found
