"""The Kafka system on a real broker: what is written is read, and where its limits are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka import errors as kafka_errors

from streambench.errors import (
    MessageTooLargeError,
    OffsetError,
    SerdeError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.system.kafka.cluster import all_of, config, new_stream, sent


@pytest.fixture(scope="module")
def systems(kafka: KafkaNodes) -> Iterator[Systems]:
    made = Systems(config(kafka))
    yield made
    made.close()


@pytest.fixture
def stream(systems: Systems) -> SystemStream:
    made = new_stream()
    systems.admin("k").create(made, 2)
    return made


def at(stream: SystemStream, partition: int) -> SystemStreamPartition:
    return SystemStreamPartition(stream.system, stream.stream, partition)


def test_everything_of_a_message_is_read_as_it_was_sent(systems: Systems, stream: SystemStream) -> None:
    producer = systems.producer("k", MetricsRegistry())
    producer.register("a")
    producer.start()
    headers = {"trace": b"\x00\xff", "empty": b""}
    producer.send("a", OutgoingMessageEnvelope(stream, b"one", b"key", None, 1, 1_700_000_000_000, headers))
    producer.send("a", OutgoingMessageEnvelope(stream, None, b"key", None, 1, 1_700_000_000_001))
    producer.send("a", OutgoingMessageEnvelope(stream, b"", None, None, 1, 1_700_000_000_002))
    producer.flush("a")
    producer.stop()
    found = all_of(systems, stream)
    assert found[0] == []
    assert [(e.offset, e.key, e.message, e.timestamp, e.headers) for e in found[1]] == [
        ("0", b"key", b"one", 1_700_000_000_000, headers),
        ("1", b"key", None, 1_700_000_000_001, None),
        ("2", None, b"", 1_700_000_000_002, None),
    ]


def test_reading_begins_where_it_was_asked_to(systems: Systems, stream: SystemStream) -> None:
    sent(systems, stream, [(0, None, b"%d" % number) for number in range(50)])
    assert [e.offset for e in all_of(systems, stream, {0: "47"})[0]] == ["47", "48", "49"]
    assert all_of(systems, stream, {0: "50"})[0] == []


@pytest.mark.parametrize(
    ("offset", "reason"), [("51", "0 to 3.*made again"), ("x", "'x' is no offset"), ("-1", "no offset")]
)
def test_an_offset_that_is_not_there_is_an_error_that_says_what_is(
    systems: Systems, stream: SystemStream, offset: str, reason: str
) -> None:
    sent(Systems(config_uncommitted(systems)), stream, [(0, None, b"x")] * 3)
    with pytest.raises(OffsetError, match=reason):
        all_of(Systems(config_uncommitted(systems)), stream, {0: offset})


def config_uncommitted(systems: Systems) -> object:
    return systems._config.with_values({"systems.k.consumer.isolation.level": "read_uncommitted"})


def test_what_was_deleted_is_not_passed_over_in_silence(systems: Systems, stream: SystemStream) -> None:
    sent(systems, stream, [(0, None, b"x")] * 10)
    systems.admin("k").delete_before(stream, 0, 6)  # type: ignore[attr-defined]
    assert systems.admin("k").metadata([stream])[stream][0] == PartitionMetadata("6", "9", "10")
    with pytest.raises(
        OffsetError, match=r"offset 2 is outside of what the partition holds, 6 to 10.*Kafka has deleted it"
    ):
        all_of(systems, stream, {0: "2"})


def test_a_partition_without_room_loses_nothing_and_delays_no_other(
    systems: Systems, stream: SystemStream
) -> None:
    sent(systems, stream, [(number % 2, None, b"%d" % number) for number in range(400)])
    consumer = systems.consumer("k", MetricsRegistry())
    full, free = at(stream, 0), at(stream, 1)
    consumer.register(full, "0")
    consumer.register(free, "0")
    consumer.start()
    found: dict[SystemStreamPartition, list[str]] = {full: [], free: []}
    while len(found[full]) < 7:
        for envelope in consumer.poll({full: 7 - len(found[full]), free: 3}, 100):
            found[envelope.ssp].append(envelope.offset)
    while not consumer.at_head(free):
        polled = consumer.poll({free: 30}, 100)
        assert len(polled) <= 30
        for envelope in polled:
            found[envelope.ssp].append(envelope.offset)
    assert len(found[full]) == 7
    assert not consumer.at_head(full)
    while not consumer.at_head(full):
        for envelope in consumer.poll({full: 50}, 100):
            found[envelope.ssp].append(envelope.offset)
    consumer.stop()
    consumer.stop()
    assert found == dict.fromkeys([full, free], [str(number) for number in range(200)])


def test_a_partition_is_at_its_head_only_as_long_as_nothing_new_is_there(
    systems: Systems, stream: SystemStream
) -> None:
    consumer = systems.consumer("k", MetricsRegistry())
    ssp = at(stream, 0)
    consumer.register(ssp, "0")
    consumer.start()
    assert not consumer.at_head(ssp)
    while not consumer.at_head(ssp):
        assert consumer.poll({ssp: 10}, 50) == []
    sent(systems, stream, [(0, None, b"new")])
    arrived = []
    while not arrived:
        arrived = consumer.poll({ssp: 10}, 50)
        assert arrived or not consumer.at_head(ssp)
    assert not consumer.at_head(ssp)
    while not consumer.at_head(ssp):
        assert consumer.poll({ssp: 10}, 50) == []
    consumer.stop()


def test_what_a_transaction_aborted_is_not_read_and_does_not_hide_the_head(
    kafka: KafkaNodes, systems: Systems, stream: SystemStream
) -> None:
    from kafka import KafkaProducer

    assert kafka.cluster is not None
    with KafkaProducer(
        bootstrap_servers=kafka.cluster.servers.split(","), transactional_id=stream.stream
    ) as producer:
        producer.init_transactions()
        for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(stream.stream, b"%d" % number, partition=0).get(30)
            ends()
    assert [e.message for e in all_of(systems, stream)[0]] == [b"0"]


def test_a_stream_is_made_once(systems: Systems, stream: SystemStream) -> None:
    admin = systems.admin("k")
    assert not admin.create(stream, 2)
    with pytest.raises(StreamExistsError, match="with 2 partitions and not 3"):
        admin.create(stream, 3)
    assert stream in admin.streams()
    assert admin.metadata([stream])[stream] == dict.fromkeys(range(2), PartitionMetadata(None, None, "0"))


def test_a_stream_grows_and_goes(systems: Systems, stream: SystemStream) -> None:
    admin = systems.admin("k")
    sent(systems, stream, [(1, None, b"stays")])
    admin.grow(stream, 4)
    admin.grow(stream, 3)
    sent(systems, stream, [(3, None, b"new")])
    assert {number: [e.message for e in found] for number, found in all_of(systems, stream).items()} == {
        0: [], 1: [b"stays"], 2: [], 3: [b"new"]
    }  # fmt: skip
    admin.delete(stream)
    assert stream not in admin.streams()
    for ask in (
        lambda: admin.metadata([stream]),
        lambda: admin.delete(stream),
        lambda: admin.grow(stream, 5),
    ):
        with pytest.raises(UnknownStreamError):
            ask()
    assert admin.create(stream, 1)
    assert all_of(systems, stream) == {0: []}


def test_a_partition_that_is_not_there_cannot_be_read(systems: Systems, stream: SystemStream) -> None:
    with pytest.raises(UnknownStreamError, match=r"\.5: it has 2 partitions"):
        all_of(systems, stream, {5: "0"})


def test_offsets_are_ordered_by_number(systems: Systems) -> None:
    admin = systems.admin("k")
    assert (
        admin.compare("9", "10"),
        admin.compare("10", "10"),
        admin.compare("10", "9"),
        admin.compare("10", "x"),
    ) == (-1, 0, 1, None)
    assert admin.after("9") == "10"


def test_settings_of_a_stream_reach_its_topic(kafka: KafkaNodes) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource

    stream = new_stream()
    systems = Systems(config(kafka, **{f"streams.{stream.stream}.segment.ms": 1000}))
    systems.admin("k").create(stream, 1, cleanup_policy="compact", segment_ms=9, min_compaction_lag_ms=5)
    systems.close()
    assert kafka.cluster is not None
    admin = KafkaAdminClient(bootstrap_servers=kafka.cluster.servers.split(","))
    found = admin.describe_configs([ConfigResource("TOPIC", stream.stream)], config_filter="all")["topic"][
        stream.stream
    ]
    admin.close()
    wanted = {"cleanup.policy": "compact", "segment.ms": "1000", "min.compaction.lag.ms": "5"}
    assert {key: found[key]["value"] for key in wanted} == wanted


def test_a_message_that_is_too_large_is_refused_and_spoils_no_other(kafka: KafkaNodes) -> None:
    stream = new_stream()
    systems = Systems(config(kafka, **{f"streams.{stream.stream}.max.message.bytes": 5000}))
    systems.admin("k").create(stream, 1)
    with pytest.raises(MessageTooLargeError, match=r"a message of \d+ bytes .* it takes 5000"):
        sent(systems, stream, [(0, None, b"x" * 5000)])
    producer = systems.producer("k", MetricsRegistry())
    producer.register("a")
    producer.start()
    for number in range(200):  # far more than one batch of this topic holds
        producer.send("a", OutgoingMessageEnvelope(stream, b"%d" % number + b"." * 900, None, None, 0))
        if number % 50 == 0:
            with pytest.raises(MessageTooLargeError):
                producer.send("a", OutgoingMessageEnvelope(stream, b"x" * 6000, None, None, 0))
    producer.flush("a")
    producer.stop()
    assert [e.message.rstrip(b".") for e in all_of(systems, stream)[0]] == [
        b"%d" % number for number in range(200)
    ]
    systems.close()


def test_no_more_is_kept_unacknowledged_than_was_allowed(kafka: KafkaNodes) -> None:
    stream = new_stream()
    systems = Systems(config(kafka, buffer__bytes=20_000))
    systems.admin("k").create(stream, 1)
    producer = systems.producer("k", MetricsRegistry())
    producer.register("a")
    producer.start()
    most = 0
    for _ in range(300):
        producer.send("a", OutgoingMessageEnvelope(stream, b"x" * 1000, None, None, 0))
        most = max(most, producer._bytes)  # type: ignore[attr-defined]
    producer.flush("a")
    producer.stop()
    assert 10_000 < most <= 20_000
    assert len(all_of(systems, stream)[0]) == 300
    systems.close()


def test_who_else_writes_to_what_belongs_to_one_source_is_found_out(
    systems: Systems, stream: SystemStream
) -> None:
    sent(systems, stream, [(0, b"a", b"before"), (1, b"a", b"before")])
    producer = systems.producer("k", MetricsRegistry())
    producer.register("a")
    producer.start()
    producer.fence("a", [at(stream, 0)], 1, 1)
    for partition in (0, 1):
        producer.send("a", OutgoingMessageEnvelope(stream, b"mine", b"a", None, partition))
    producer.flush("a")
    sent(systems, stream, [(0, b"a", b"late"), (1, b"a", b"late")])
    producer.send("a", OutgoingMessageEnvelope(stream, b"mine", b"a", None, 1))
    producer.flush("a")
    producer.send("a", OutgoingMessageEnvelope(stream, b"mine", b"a", None, 0))
    with pytest.raises(
        StreamSystemError,
        match=rf"{at(stream, 0)}: a change of state was to get offset 2 and got 3: something else",
    ):
        producer.flush("a")
    producer.stop()


def test_where_a_partition_ends_is_told_by_its_only_writer_alone(
    systems: Systems, stream: SystemStream
) -> None:
    producer = systems.producer("k", MetricsRegistry())
    producer.register("a")
    producer.start()
    producer.fence("a", [at(stream, 0)], 1, 1)
    producer.send("a", OutgoingMessageEnvelope(stream, b"mine", b"a", None, 0))
    producer.flush("a")
    assert producer.ends([at(stream, 0), at(stream, 1)]) == {at(stream, 0): "1"}
    sent(systems, stream, [(0, b"a", b"late")])
    with pytest.raises(
        StreamSystemError,
        match=rf"{at(stream, 0)}: .* end at offset 1, and the partition at 2: something else",
    ):
        producer.ends([at(stream, 0)])
    producer.stop()


def test_a_limit_that_could_not_be_asked_for_is_asked_for_again(
    kafka: KafkaNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream()
    systems = Systems(config(kafka, **{f"streams__{stream.stream}__max__message__bytes": 5_000_000}))
    systems.admin("k").create(stream, 1)
    real, asked = KafkaAdminClient.describe_configs, []

    def describe(*arguments: Any, **more: Any) -> Any:
        asked.append(None)
        if len(asked) == 1:
            raise kafka_errors.NodeNotReadyError
        return real(*arguments, **more)

    monkeypatch.setattr(KafkaAdminClient, "describe_configs", describe)
    sent(systems, stream, [(0, None, b"x" * 3_000_000)])
    assert len(asked) == 2
    systems.close()


@pytest.mark.parametrize("held", [False, True], ids=["sent", "held back"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"a": None}}, {"headers": {"a": 5}}, {"headers": {"a": "text"}},
        {"headers": {b"a": b"5"}},
        {"headers": {"\ud800": b""}}, {"headers": [("a", b"5")]}, {"timestamp": "now"}, {"timestamp": 1.5},
        {"timestamp": -5},
        {"timestamp": 2**70},
    ],
)  # fmt: skip
def test_headers_and_timestamps_that_kafka_cannot_take_are_encoding_errors(
    systems: Systems, stream: SystemStream, wrong: dict[str, Any], held: bool
) -> None:
    producer = systems.producer("k", MetricsRegistry())
    if held:
        producer.hold()
    producer.start()
    with pytest.raises(
        SerdeError, match=f"{at(stream, 0)}: .*({'header' if 'headers' in wrong else 'timestamp'})"
    ):
        producer.send("a", OutgoingMessageEnvelope(stream, b"x", None, None, 0, **wrong))
    producer.stop()


def test_a_stream_that_is_deleted_while_it_is_written_to_is_told(kafka: KafkaNodes) -> None:
    stream = new_stream()
    systems = Systems(config(kafka, patience__ms=1000, producer__max__block__ms=500))
    systems.admin("k").create(stream, 1)
    producer = systems.producer("k", MetricsRegistry())
    producer.register("a")
    producer.start()
    send = producer.sender(stream)
    systems.admin("k").delete(stream)
    with pytest.raises(UnknownStreamError, match=f"{stream} was deleted while it was written to"):
        send("a", OutgoingMessageEnvelope(stream, b"x"), None, b"x", 0)
        producer.flush("a")
    producer.stop()
    systems.close()


@pytest.mark.parametrize(
    ("message", "key", "reason"),
    [("text", None, "this message is a str"), (b"x", 5, "this key is a int"), (None, None, "neither")],
)
def test_what_kafka_cannot_take_is_refused(
    systems: Systems, stream: SystemStream, message: object, key: object, reason: str
) -> None:
    with pytest.raises(SerdeError, match=reason):
        sent(systems, stream, [(0, key, message)])  # type: ignore[list-item]


def test_without_a_broker_the_error_names_the_servers_and_the_key(kafka: KafkaNodes) -> None:
    settings = {
        "systems.k.bootstrap.servers": "127.0.0.1:1", "systems.k.consumer.bootstrap.timeout.ms": "200",
        "systems.k.consumer.sasl.plain.password": "verysecret",
    }  # fmt: skip
    systems = Systems(config(kafka).with_values(settings))
    with pytest.raises(
        StreamSystemError,
        match=r"no Kafka broker answers at 127\.0\.0\.1:1; .*systems\.k\.bootstrap\.servers",
    ) as caught:
        systems.admin("k").metadata([new_stream()])
    assert "verysecret" not in repr(caught.value)
