"""A topic that not every broker has heard of is there, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient

from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.settings import Settings
from streambench.testing.brokers.kafka import KafkaNodes
from tests.system.kafka.cluster import config, new_stream


@pytest.fixture
def admin(kafka: KafkaNodes) -> Iterator[KafkaAdmin]:
    admin = KafkaAdmin(Settings.from_config("k", config(kafka)))
    yield admin
    admin.close()


def described_by_a_broker_without_news(client: KafkaAdminClient, topics: list[str]) -> list[dict[str, Any]]:
    """The answer of a broker to which the newest topics have not come yet."""
    unknown = kafka_errors.UnknownTopicOrPartitionError.errno
    return [{"error_code": unknown, "name": each, "topic_id": None, "partitions": []} for each in topics]


def test_a_topic_is_there_once_one_broker_knows_it(
    admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream()
    admin.create(stream, 3)
    known = admin.identities([stream.stream])
    monkeypatch.setattr(KafkaAdminClient, "describe_topics", described_by_a_broker_without_news)
    assert admin.exists(stream)
    assert sorted(admin.metadata([stream])[stream]) == [0, 1, 2]
    assert not admin.create(stream, 3)
    assert {name: str(each) for name, each in admin.identities([stream.stream]).items()} == {
        name: str(each) for name, each in known.items()
    }


def test_a_topic_that_no_broker_knows_is_not_there(admin: KafkaAdmin) -> None:
    stream = new_stream()
    assert not admin.exists(stream)
    assert admin.identities([stream.stream]) == {stream.stream: None}
