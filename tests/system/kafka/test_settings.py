"""What can be configured of a Kafka system, and what is said where it is wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("kafka")

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.system.kafka.settings import Settings, largest_message


def settings(**given: str) -> Settings:
    values = {
        "bootstrap.servers": "a:1, b:2",
        **{key.replace("__", "."): value for key, value in given.items()},
    }
    return Settings.from_config("k", Config({f"systems.k.{key}": value for key, value in values.items()}))


def test_settings_of_kafka_reach_the_clients_as_they_take_them() -> None:
    found = settings(
        consumer__fetch__max__bytes="1000",
        consumer__check__crcs="false",
        producer__compression__type="gzip",
        producer__linger__ms="7",
    )
    assert found.servers == ("a:1", "b:2")
    assert (found.consumer["fetch_max_bytes"], found.consumer["check_crcs"]) == (1000, False)
    assert (found.producer["compression_type"], found.producer["linger_ms"]) == ("gzip", 7)


def test_messages_linger_for_others_much_shorter_than_the_timeout() -> None:
    assert settings().producer["linger_ms"] == 20
    assert settings(patience__ms="40").producer["linger_ms"] == 10
    assert settings(producer__linger__ms="0").producer["linger_ms"] == 0


def test_a_silent_broker_is_given_up_before_the_patience_is_over() -> None:
    for client in ("consumer", "producer", "admin"):
        assert getattr(settings(patience__ms="5000"), client)["request_timeout_ms"] == 2500
    assert [
        getattr(settings(), client)["request_timeout_ms"] for client in ("consumer", "producer", "admin")
    ] == [30_000, 30_000, 10_000]
    found = settings(patience__ms="100", consumer__fetch__max__wait__ms="700").consumer
    assert found["request_timeout_ms"] > found["fetch_max_wait_ms"]
    assert settings(consumer__request__timeout__ms="9000").consumer["request_timeout_ms"] == 9000


def test_how_to_connect_is_said_once() -> None:
    found = settings(
        consumer__security__protocol="SASL_SSL",
        producer__sasl__mechanism="PLAIN",
        consumer__sasl__plain__password="hunter2",
    )
    for client in (found.consumer, found.producer, found.admin):
        assert (client["security_protocol"], client["sasl_mechanism"], client["sasl_plain_password"]) == (
            "SASL_SSL",
            "PLAIN",
            "hunter2",
        )


def test_the_login_of_a_java_client_is_understood() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a\\"b";'
    found = settings(consumer__sasl__jaas__config=jaas)
    assert (found.consumer["sasl_plain_username"], found.consumer["sasl_plain_password"]) == ("me", 'a"b')


def test_no_repr_shows_a_password() -> None:
    assert "hunter2" not in repr(settings(consumer__sasl__plain__password="hunter2"))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("bootstrap__servers", "", "bootstrap.servers: is missing"),
        ("bootstrap__servers", "localhost", "must be host:port"),
        ("bootstrap__server", "a:1", "did you mean bootstrap.servers"),
        ("consumer__fetch__max__byte", "1", "did you mean fetch.max.bytes"),
        ("consumer__group__id", "g", "cannot be set: positions are kept in checkpoints"),
        ("producer__acks", "0", "cannot be set"),
        ("producer__linger__ms", "soon", "must be a whole number"),
        ("consumer__check__crcs", "perhaps", "must be true or false"),
        ("streams__t__retention", "1", "no setting of a topic.*did you mean retention"),
        ("patience__ms", "0", "0 is too small: give 1 or more"),
    ],
)
def test_what_is_wrong_is_an_error_that_names_the_key(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        settings(**{key: value})
    assert caught.value.key == f"systems.k.{key.replace('__', '.')}"


@pytest.mark.parametrize(
    "key", ["consumer__sasl__plain__passwort", "producer__linger__ms", "consumer__ssl__check__hostname"]
)
def test_no_error_repeats_a_value_that_may_be_a_secret(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(**{key: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_the_settings_of_a_topic_are_the_streams_own() -> None:
    found = settings(
        streams__a__b__retention__ms="5",
        streams__a__b__partitions="3",
        streams__a__b__samza__bootstrap="true",
    )
    assert found.topic("a.b", {"retention_ms": 9, "cleanup_policy": "compact"}) == {
        "retention.ms": "5",
        "cleanup.policy": "compact",
    }
    with pytest.raises(ConfigError, match="did you mean segment.ms"):
        found.topic("t", {"segment_m": 1})


@pytest.mark.parametrize("name", ["producer.max.request.size", "producer.max_request_size"])
def test_the_largest_message_is_that_of_the_client(name: str) -> None:
    for given in ({}, {name: "5000"}):
        config = Config({f"systems.k.{key}": each for key, each in given.items()})
        size = settings(**given).producer["max_request_size"]
        assert largest_message(config, SystemStream("k", "t"), None) == size
        assert largest_message(config, SystemStream("k", "t"), 3000) == 3000
        assert largest_message(config, SystemStream("k", "t"), 1 << 30) == size
