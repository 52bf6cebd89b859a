"""The log as a system: what a container sees of it through the plug-in contract."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.errors import (
    ConfigError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.log import LogAdmin, LogSystemFactory
from streambench.system.systems import Systems
from tests.system.log.parts import CLICKS, P0, P1, Parts, outgoing


def test_what_is_sent_comes_back_as_it_was(parts: Parts) -> None:
    producer = parts.producer()
    producer.send("task", outgoing(b"1", b"k", timestamp=5, headers={"a": b"b"}))
    producer.send("task", outgoing(None, b"k", timestamp=6))
    producer.send("task", outgoing(b"3", partition=1, timestamp=7))
    producer.flush("task")
    consumer = parts.consumer({P0: "0", P1: "0"})
    assert consumer.poll({P0: 10, P1: 10}, 0) == [
        IncomingMessageEnvelope(P0, "0", b"k", b"1", 5, {"a": b"b"}),
        IncomingMessageEnvelope(P0, "1", b"k", None, 6, None),
        IncomingMessageEnvelope(P1, "0", None, b"3", 7, None),
    ]


def test_an_unknown_stream_or_partition_is_named(parts: Parts) -> None:
    producer = parts.producer()
    with pytest.raises(UnknownStreamError, match=r"log\.click .*did you mean log\.clicks"):
        producer.send("task", OutgoingMessageEnvelope(SystemStream("log", "click"), b"1", partition=0))
    with pytest.raises(UnknownStreamError, match=r"log\.clicks has no partition 2"):
        producer.send("task", outgoing(b"1", partition=2))
    with pytest.raises(StreamSystemError, match="which of the 2 partitions"):
        producer.send("task", outgoing(b"1", partition=None))
    with pytest.raises(UnknownStreamError, match=r"log\.clicks has no partition 7"):
        parts.consumer({SystemStreamPartition("log", "clicks", 7): "0"})
    with pytest.raises(UnknownStreamError, match=r"log\.klicks"):
        parts.admin.metadata([CLICKS, SystemStream("log", "klicks")])


def test_a_log_whose_directory_is_missing_says_so(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    missing = rf"no stream log.a: there is no directory {path}, which systems.log.path names; "
    config = Config({"systems.log.samza.factory": "log", "systems.log.path": str(path)})
    with (
        closing(Systems(config)) as systems,
        pytest.raises(UnknownStreamError, match=missing),
    ):
        systems.metadata([SystemStream("log", "a")])


def test_a_log_whose_directory_cannot_be_made_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    key = "systems.log.path"
    config = Config({"systems.log.samza.factory": "log", key: str(tmp_path / "link" / "log")})
    with (
        closing(Systems(config)) as systems,
        pytest.raises(StreamSystemError, match=rf"link cannot be made, which {re.escape(key)} names: "),
    ):
        systems.create(SystemStream("log", "a"))


def test_the_admin_tells_oldest_newest_and_upcoming(parts: Parts) -> None:
    parts.producer().send_columns(CLICKS, 0, None, [b"x"] * 10)
    assert parts.admin.metadata([CLICKS]) == {
        CLICKS: {0: PartitionMetadata("0", "9", "10"), 1: PartitionMetadata(None, None, "0")}
    }
    assert parts.admin.streams() == [CLICKS]


def test_settings_of_a_stream_go_before_those_of_the_system(
    tmp_path: Path,
) -> None:
    config = Config(
        {
            "systems.log.path": tmp_path,
            "systems.log.retention.ms": "1",
            "systems.log.streams.a.b.retention.ms": "2",
            "systems.log.streams.a.b.samza.offset.default": "oldest",
            "systems.log.streams.a.b.partitions": "3",
        }
    )
    admin = LogSystemFactory().get_admin("log", config)
    for name in ("a.b", "c"):
        admin.create(SystemStream("log", name), 1)
    assert [admin.log.stream(name).settings.retention_ms for name in ("a.b", "c")] == [2, 1]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("systems.log.streams.clicks.retension.ms", "5", "did you mean retention.ms"),
        (
            "systems.log.streams.clicks.retention.ms",
            "long",
            "systems.log.streams.clicks.retention.ms: 'long' is not a whole number",
        ),
        ("systems.log.segment.bytes", "1k", "systems.log.segment.bytes: '1k' is not a whole number"),
        (
            "systems.log.cleanup.policy",
            "shred",
            "systems.log.cleanup.policy: 'shred' is not one of delete, compact",
        ),
        (
            "systems.log.fsync",
            "sometimes",
            "systems.log.fsync: 'sometimes' is not one of flush, batch, never",
        ),
    ],
)
def test_a_wrong_setting_is_told_with_its_key(tmp_path: Path, key: str, value: str, told: str) -> None:
    config = Config({"systems.log.path": tmp_path, key: value})
    with pytest.raises(ConfigError) as raised:
        LogSystemFactory().get_admin("log", config).create(CLICKS, 1)
        LogSystemFactory().get_producer("log", config, MetricsRegistry()).send("task", outgoing(b"1"))
    assert told in str(raised.value)
    assert raised.value.key == key


def test_a_log_without_a_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"systems\.log\.path"):
        LogSystemFactory().get_admin("log", Config({}))


def test_an_unknown_setting_of_the_system_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    config = Config(
        {"systems.log.samza.factory": "log", "systems.log.path": tmp_path, "systems.log.linger": "5"}
    )
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        Systems(config).admin("log")


def test_a_growing_stream_keeps_what_it_has_and_goes_on_for_open_readers(parts: Parts) -> None:
    producer, consumer = parts.producer(), parts.consumer({P0: "0"})
    elsewhere: LogAdmin = LogSystemFactory().get_admin("log", parts.config)
    producer.send("task", OutgoingMessageEnvelope(CLICKS, b"before", partition=0))
    producer.flush("task")
    elsewhere.grow(CLICKS, 4)
    producer.send("task", OutgoingMessageEnvelope(CLICKS, b"after", partition=0))
    producer.flush("task")
    assert [each.message for each in consumer.poll({P0: 10}, 0)] == [b"before", b"after"]
    assert list(parts.admin.metadata([CLICKS])[CLICKS]) == [0, 1, 2, 3]
    assert parts.upcoming(3) == "0"
    parts.admin.grow(CLICKS, 3)
    assert list(elsewhere.metadata([CLICKS])[CLICKS]) == [0, 1, 2, 3]
    assert not parts.admin.create(CLICKS, 4)
    for each in (producer, consumer):
        each.stop()
    elsewhere.close()


def test_a_stream_that_is_made_anew_does_not_inherit_partitions(parts: Parts) -> None:
    parts.admin.grow(CLICKS, 4)
    parts.admin.delete(CLICKS)
    parts.admin.create(CLICKS, 1)
    assert list(parts.admin.metadata([CLICKS])[CLICKS]) == [0]
    with pytest.raises(UnknownStreamError):
        parts.admin.grow(SystemStream("log", "none"), 2)


def test_more_partitions_than_can_be_listed_are_refused(parts: Parts) -> None:
    with pytest.raises(StreamSystemError, match="at most 100,000 partitions, not 10,000,000,000"):
        parts.admin.create(SystemStream("log", "vast"), 10**10)
    with pytest.raises(StreamSystemError, match="at most 100,000 partitions"):
        parts.admin.grow(CLICKS, 10**10)
    assert parts.admin.streams() == [CLICKS]
