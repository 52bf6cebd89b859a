"""The producer and the admin of a simple plug-in."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.config import Config
from streambench.errors import (
    MessageTooLargeError,
    OffsetError,
    SerdeError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OLDEST, OutgoingMessageEnvelope, PartitionMetadata, SystemStream
from streambench.system.api import SystemProducer
from streambench.system.pull import PullSystemFactory, StreamConsumer, StreamProducer

ONE, TWO = SystemStream("sys", "one"), SystemStream("sys", "two")


class Recording(StreamProducer):
    def __init__(self, calls: list[tuple[Any, ...]], stream: str, failing: dict[str, Exception]) -> None:
        self.calls = calls
        self.stream = stream
        self.failing = failing

    def _note(self, *call: Any) -> None:
        self.calls.append((self.stream, *call))
        if call[0] in self.failing:
            raise self.failing.pop(call[0])

    def send(self, message: bytes, key: bytes | None = None) -> None:
        self._note("send", message, key)

    def commit(self) -> None:
        self._note("commit")

    def close(self) -> None:
        self._note("close")


class Choosing(Recording):
    def send_to(self, partition: int, message: bytes, key: bytes | None = None) -> None:
        self._note("send_to", partition, message, key)


class Factory(PullSystemFactory):
    """Streams of as many partitions as their name says."""

    kind: ClassVar[type[Recording]] = Recording

    def __init__(self, **failing: Exception) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing = failing

    def partitions(self, system: str, stream: str, config: Config) -> int:
        return {"one": 1, "two": 2}.get(stream, 0)

    def consumer(
        self, system: str, stream: str, partition: int, offset: str | None, config: Config
    ) -> StreamConsumer:
        raise AssertionError("nothing is read here")

    def producer(self, system: str, stream: str, config: Config) -> StreamProducer:
        return self.kind(self.calls, stream, self.failing)

    def made(self) -> SystemProducer:
        producer = self.get_producer("sys", Config(), MetricsRegistry())
        producer.start()
        return producer


class ChoosingFactory(Factory):
    kind = Choosing


def test_a_flush_commits_what_was_sent_to_and_nothing_else() -> None:
    factory = Factory()
    producer = factory.made()
    producer.send("task", OutgoingMessageEnvelope(ONE, b"1", b"k"))
    producer.sender(TWO)("task", OutgoingMessageEnvelope(TWO, "as sent"), None, b"2", 1)
    producer.flush("task")
    producer.flush("another")
    producer.send("task", OutgoingMessageEnvelope(ONE, b"3", partition=0))
    producer.flush("task")
    producer.stop()
    assert factory.calls == [
        ("one", "send", b"1", b"k"), ("two", "send", b"2", None), ("one", "commit"), ("two", "commit"),
        ("one", "send", b"3", None), ("one", "commit"), ("one", "close"), ("two", "close"),
    ]  # fmt: skip


def test_one_that_can_choose_gets_the_partition() -> None:
    factory = ChoosingFactory()
    producer = factory.made()
    producer.send("task", OutgoingMessageEnvelope(TWO, b"1", partition=1))
    producer.sender(TWO)("task", OutgoingMessageEnvelope(TWO, "as sent"), b"k", b"2", 0)
    assert factory.calls == [("two", "send_to", 1, b"1", None), ("two", "send_to", 0, b"2", b"k")]


@pytest.mark.parametrize("named", [{"partition": 1}, {"partition_key": b"k"}])
def test_a_message_with_a_partition_is_refused_by_one_that_cannot_choose(
    named: dict[str, Any],
) -> None:
    factory = Factory()
    envelope = OutgoingMessageEnvelope(TWO, b"1", **named)
    with pytest.raises(StreamSystemError, match=r"sys\.two .*Recording cannot choose the partition.*send_to"):
        factory.made().sender(TWO)("task", envelope, None, b"1", 1)
    assert factory.calls == []


@pytest.mark.parametrize("call", ["send", "commit"])
def test_after_a_failure_no_flush_says_again_that_all_is_written(call: str) -> None:
    producer = Factory(**{call: OSError("disk full")}).made()
    for _ in range(2):
        with pytest.raises(StreamSystemError, match=r"sys\.one .*OSError: disk full"):
            producer.send("task", OutgoingMessageEnvelope(ONE, b"1"))
            producer.flush("task")
    with pytest.raises(StreamSystemError, match="disk full"):
        producer.flush("another")


@pytest.mark.parametrize("error", [MessageTooLargeError("5 MB"), SerdeError("no")])
def test_a_message_that_is_refused_does_not_spoil_the_others(error: Exception) -> None:
    factory = Factory(send=error)
    producer = factory.made()
    with pytest.raises(type(error), match=str(error)):
        producer.send("task", OutgoingMessageEnvelope(ONE, b"1"))
    producer.send("task", OutgoingMessageEnvelope(ONE, b"2"))
    producer.flush("task")
    assert factory.calls[-1] == ("one", "commit")


@pytest.mark.parametrize(("message", "key", "setting"), [("m", None, "msg"), (b"m", "k", "key")])
def test_what_is_not_bytes_is_refused_with_the_setting_that_is_missing(
    message: Any, key: Any, setting: str
) -> None:
    factory = Factory()
    with pytest.raises(SerdeError, match=rf"sys\.one.*systems\.sys\.samza\.{setting}\.serde="):
        factory.made().send("task", OutgoingMessageEnvelope(ONE, message, key))
    assert factory.calls == []


def test_a_stream_and_a_partition_that_are_not_there_are_named() -> None:
    with pytest.raises(UnknownStreamError, match=r"no stream sys\.three"):
        Factory().made().send("task", OutgoingMessageEnvelope(SystemStream("sys", "three"), b"1"))
    with pytest.raises(UnknownStreamError, match=r"sys\.two has no partition 2; it has 2"):
        Factory().made().send("task", OutgoingMessageEnvelope(TWO, b"1", partition=2))


class ReadOnly(PullSystemFactory):
    def partitions(self, system: str, stream: str, config: Config) -> int:
        return 1

    def consumer(
        self, system: str, stream: str, partition: int, offset: str | None, config: Config
    ) -> StreamConsumer:
        raise AssertionError("nothing is read here")


def test_without_a_producer_nothing_can_be_written() -> None:
    with pytest.raises(StreamSystemError, match=r"sys\.one cannot be written to: a ReadOnly has no producer"):
        ReadOnly().get_producer("sys", Config(), MetricsRegistry()).send(
            "task", OutgoingMessageEnvelope(ONE, b"1")
        )


# The admin


class Noting(Factory):
    def __init__(self, found: PartitionMetadata | None) -> None:
        super().__init__()
        self.found = found

    def bounds(self, system: str, stream: str, partition: int, config: Config) -> PartitionMetadata | None:
        return self.found


class NumberedBounds(Noting):
    numbered: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("kind", "found", "metadata"),
    [
        (Noting, None, (OLDEST, None, None)),
        (NumberedBounds, None, (OLDEST, None, None)),
        # Without an order nothing may be said to be the end: all messages would seem to lie behind it.
        (Noting, ("a", "c", None), (OLDEST, "c", None)),
        (Noting, ("a", "c", "d"), (OLDEST, "c", None)),
        (NumberedBounds, ("3", "9", None), ("3", "9", "10")),
        (NumberedBounds, ("3", "9", "12"), ("3", "9", "12")),
        (NumberedBounds, (None, None, None), (None, None, OLDEST)),
        (NumberedBounds, (None, None, "12"), (None, None, "12")),
    ],
)
def test_bounds_are_those_found_where_they_are_of_use(
    kind: type[Noting], found: Any, metadata: Any
) -> None:
    admin = kind(None if found is None else PartitionMetadata(*found)).get_admin("sys", Config())
    assert admin.metadata([TWO]) == {TWO: dict.fromkeys(range(2), PartitionMetadata(*metadata))}


def test_an_error_of_looking_up_a_stream_names_it() -> None:
    class Offline(Factory):
        def partitions(self, system: str, stream: str, config: Config) -> int:
            raise ConnectionError("offline")

    with pytest.raises(StreamSystemError, match=r"sys\.one cannot be looked up: ConnectionError: offline"):
        Offline().get_admin("sys", Config()).metadata([ONE])


def test_bounds_that_are_no_offsets_are_an_error_that_names_the_partition() -> None:
    admin = NumberedBounds(PartitionMetadata("1", "x", None)).get_admin("sys", Config())
    with pytest.raises(OffsetError, match=r"sys\.one\.0 cannot be looked up: 'x' is no offset"):
        admin.metadata([ONE])


def test_a_stream_that_is_there_is_not_created_again_and_others_not_at_all() -> None:
    admin = Factory().get_admin("sys", Config())
    assert admin.create(TWO, 2) is False
    with pytest.raises(StreamExistsError, match=r"sys\.two is there already, with 2 partitions and not 3"):
        admin.create(TWO, 3)
    with pytest.raises(
        UnknownStreamError, match=r"no stream sys\.three, and this kind of system cannot create one"
    ):
        admin.create(SystemStream("sys", "three"), 1)


IDS = st.integers(0, 20).map(str)
POSITIONS = st.one_of(st.just(OLDEST), IDS, IDS.map("after:{}".format))


@given(POSITIONS, POSITIONS, POSITIONS)
def test_positions_of_numbers_are_in_one_order(one: str, other: str, third: str) -> None:
    compare = NumberedBounds(None).get_admin("sys", Config()).compare
    orders = [compare(one, other), compare(other, third), compare(one, third)]
    assert compare(one, one) == 0
    assert compare(other, one) == -(orders[0] or 0)
    if orders[0] == orders[1]:
        assert orders[2] == orders[0]


@given(POSITIONS, POSITIONS)
def test_of_positions_that_say_nothing_only_what_is_certain_is_said(one: str, other: str) -> None:
    compare = Noting(None).get_admin("sys", Config()).compare
    same = one.removeprefix("after:") == other.removeprefix("after:")
    if OLDEST in (one, other):
        assert compare(one, other) == (one != OLDEST) - (other != OLDEST)
    elif same:
        assert compare(one, other) == one.startswith("after:") - other.startswith("after:")
    else:
        assert compare(one, other) is None


@pytest.mark.parametrize("position", [OLDEST, "after:3", "", "x"])
def test_nothing_follows_what_is_no_message(position: str) -> None:
    with pytest.raises(OffsetError):
        NumberedBounds(None).get_admin("sys", Config()).after(position)
