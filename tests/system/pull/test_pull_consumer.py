"""The consumer of a simple plug-in: its threads, queues and failures, which its author never sees."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from streambench.config import Config
from streambench.errors import (
    CorruptDataError,
    OffsetError,
    StreambenchError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.system.pull import PullSystemFactory, StreamConsumer, StreamMessage
from streambench.system.pull.consumer import PullConsumer

_reading: list[PullConsumer] = []


@pytest.fixture(autouse=True)
def no_reader_is_left_behind() -> Iterator[None]:
    yield
    while _reading:
        with contextlib.suppress(Exception):  # those of tests of failing
            _reading.pop().stop()


P0, P1 = SystemStreamPartition("sys", "clicks", 0), SystemStreamPartition("sys", "clicks", 1)
WAIT_MS = 100


class Scripted(StreamConsumer):
    """Returns what it was given to say, raises the exceptions of it, calls the functions; then there is
    nothing."""

    def __init__(self, script: Iterator[Any]) -> None:
        self.script = script
        self.threads = [threading.current_thread()]
        self.closed = 0
        self.at_close: Exception | None = None

    def get_message(self) -> Any:
        self.threads.append(threading.current_thread())
        said = next(self.script, None)
        if isinstance(said, Exception):
            raise said
        return said() if callable(said) else said

    def close(self) -> None:
        self.threads.append(threading.current_thread())
        self.closed += 1
        if self.at_close is not None:
            raise self.at_close


class ScriptedFactory(PullSystemFactory):
    """Two partitions."""

    def __init__(self, *scripts: Any) -> None:
        self.scripts = [iter(script) if not isinstance(script, Exception) else script for script in scripts]
        self.made: dict[int, Scripted] = {}
        self.offsets: dict[int, str | None] = {}

    def partitions(self, system: str, stream: str, config: Config) -> int:
        return len(self.scripts) if stream == "clicks" else 0

    def consumer(
        self, system: str, stream: str, partition: int, offset: str | None, config: Config
    ) -> StreamConsumer:
        script = self.scripts[partition]
        if isinstance(script, Exception):
            raise script
        self.offsets[partition] = offset
        self.made[partition] = Scripted(script)
        return self.made[partition]

    def reading(self, **starts: str) -> PullConsumer:
        """A consumer of partitions: ``p0="3"`` reads the partition 0 from offset 3 on."""
        consumer = self.get_consumer("sys", Config(), MetricsRegistry())
        _reading.append(consumer)
        for name, offset in starts.items():
            consumer.register(SystemStreamPartition("sys", "clicks", int(name[1:])), offset)
        consumer.start()
        return consumer


class NumberedFactory(ScriptedFactory):
    numbered: ClassVar[bool] = True


def messages(*offsets: str) -> list[StreamMessage]:
    return [StreamMessage(b"m" + offset.encode(), offset) for offset in offsets]


def drained(consumer: PullConsumer, *ssps: SystemStreamPartition) -> list[IncomingMessageEnvelope]:
    found, wanted = [], dict.fromkeys(ssps or [P0], 1_000)
    while not all(map(consumer.at_head, wanted)):
        found += consumer.poll(wanted, WAIT_MS)
    return found


def failed(consumer: PullConsumer, *ssps: SystemStreamPartition) -> tuple[list[Any], StreambenchError]:
    """What a consumer returns before it fails, and how it fails."""
    found: list[Any] = []
    while True:
        try:
            found += [each.message for each in consumer.poll(dict.fromkeys(ssps or [P0], 1), WAIT_MS)]
        except StreambenchError as error:
            return found, error


def test_each_partition_is_read_on_its_own_thread_from_open_to_close() -> None:
    factory = ScriptedFactory(messages("a", "b"), messages("c"))
    consumer = factory.reading(p0="oldest", p1="oldest")
    assert sorted(each.offset for each in drained(consumer, P0, P1)) == ["a", "b", "c"]
    consumer.stop()
    threads = [set(made.threads) for made in factory.made.values()]
    assert [len(each) for each in threads] == [1, 1]
    assert threads[0].isdisjoint(threads[1])
    assert threading.current_thread() not in threads[0] | threads[1]
    assert [made.closed for made in factory.made.values()] == [1, 1]
    assert not any(thread.is_alive() for each in threads for thread in each)


def test_a_message_may_be_any_object_that_has_the_two_attributes() -> None:
    class Bare:
        message = b"m"
        offset_id = "7"

    assert drained(ScriptedFactory([Bare()]).reading(p0="oldest")) == [
        IncomingMessageEnvelope(P0, "7", None, b"m", None, None)
    ]


def test_key_and_timestamp_are_handed_on() -> None:
    consumer = ScriptedFactory([StreamMessage(b"m", "7", b"k", 5)]).reading(p0="oldest")
    assert drained(consumer) == [IncomingMessageEnvelope(P0, "7", b"k", b"m", 5, None)]


def test_no_more_than_a_hundred_messages_are_read_ahead() -> None:
    read, filled = 0, threading.Event()

    def endless() -> Iterator[StreamMessage]:
        nonlocal read
        while True:
            read += 1
            if read == 100:
                filled.set()
            yield StreamMessage(b"", str(read))

    consumer = ScriptedFactory(endless(), []).reading(p0="oldest", p1="oldest")
    filled.wait()
    taken = 0
    for _ in range(2_000):
        assert read <= taken + 100
        taken += len(consumer.poll({P0: 1, P1: 1}, WAIT_MS))
    assert taken == 2_000
    consumer.stop()


def test_nothing_read_ahead_is_lost_while_a_partition_is_not_wanted() -> None:
    consumer = ScriptedFactory(messages(*map(str, range(1_000))), messages("x")).reading(
        p0="oldest", p1="oldest"
    )
    assert [each.offset for each in drained(consumer, P1)] == ["x"]
    assert [each.offset for each in drained(consumer, P0)] == [str(number) for number in range(1_000)]


# Where reading begins


def test_the_consumer_is_made_for_the_offset_that_is_wanted() -> None:
    factory = ScriptedFactory(messages("b", "c"), messages("a"))
    consumer = factory.reading(p0="b", p1="oldest")
    assert [each.offset for each in drained(consumer)] == ["b", "c"]
    assert factory.offsets == {0: "b", 1: None}


def test_behind_an_offset_that_says_nothing_the_first_message_is_skipped() -> None:
    factory = ScriptedFactory(messages("b", "c", "b"))
    assert [
        each.offset for each in drained(factory.reading(p0=factory.get_admin("sys", Config()).after("b")))
    ] == ["c", "b"]
    assert factory.offsets == {0: "b"}


def test_behind_a_number_the_consumer_is_made_at_the_next_number() -> None:
    factory = NumberedFactory(messages("12", "13"))
    assert [
        each.offset for each in drained(factory.reading(p0=factory.get_admin("sys", Config()).after("9")))
    ] == ["12", "13"]
    assert factory.offsets == {0: "10"}


@pytest.mark.parametrize(
    ("kind", "start", "first"),
    [(ScriptedFactory, "b", "a"), (ScriptedFactory, "after:b", "c"), (NumberedFactory, "10", "9")],
)
def test_a_consumer_that_begins_elsewhere_is_an_error(
    kind: type[ScriptedFactory], start: str, first: str
) -> None:
    found, error = failed(kind(messages(first)).reading(p0=start))
    assert found == []
    assert isinstance(error, OffsetError)
    assert (
        f"sys.clicks.0: reading was to begin at {start.removeprefix('after:')}, but the first message read "
        f"is {first}" in str(error)
    )
    assert "checkpoints --rewind" in str(error)


@pytest.mark.parametrize(
    ("kind", "offset"),
    [
        *((ScriptedFactory, offset) for offset in (None, 7, "", "oldest", "after:7", b"7")),
        *((NumberedFactory, offset) for offset in ("x", "-1", "1.0", "²")),
    ],
)
def test_what_cannot_be_an_offset_is_an_error(kind: type[ScriptedFactory], offset: Any) -> None:
    _, error = failed(kind([StreamMessage(b"m", offset)]).reading(p0="oldest"))
    assert "sys.clicks.0: " in str(error)
    assert "cannot be the offset_id of a message" in str(error)


@pytest.mark.parametrize(
    ("kind", "start"), [(ScriptedFactory, ""), (ScriptedFactory, "after:"), (NumberedFactory, "x")]
)
def test_a_start_that_is_no_offset_is_an_error_that_names_the_partition(
    kind: type[ScriptedFactory], start: str
) -> None:
    with pytest.raises(OffsetError, match=r"sys\.clicks\.0: .* is no offset of this system"):
        kind([]).reading(p0=start)


# Failures


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("broken"), StreamSystemError),
        (CorruptDataError("broken"), CorruptDataError),
        (StreamSystemError("sys.clicks.0: broken"), StreamSystemError),
    ],
)
def test_an_error_comes_with_its_partition_after_all_that_was_read_before(
    raised: Exception, kind: type[Exception]
) -> None:
    consumer = ScriptedFactory([*messages("a", "b"), raised], []).reading(p0="oldest", p1="oldest")
    found, error = failed(consumer, P0, P1)
    assert found == [b"ma", b"mb"]
    assert type(error) is kind
    assert str(error).count("sys.clicks.0") == 1
    assert "broken" in str(error)
    assert raised in (error, error.__cause__)
    with pytest.raises(kind, match="broken"):
        consumer.poll({P0: 1}, 0)
    consumer.stop()


def test_what_is_no_message_and_no_consumer_is_told() -> None:
    _, error = failed(ScriptedFactory([{"a": 1}]).reading(p0="oldest"))
    assert str(error) == "sys.clicks.0: get_message returned {'a': 1}, which is no StreamMessage"

    class Nothing(ScriptedFactory):
        def consumer(
            self, system: str, stream: str, partition: int, offset: str | None, config: Config
        ) -> Any:
            return None

    with pytest.raises(
        StreamSystemError,
        match=r"sys\.clicks\.0 cannot be read: Nothing made a NoneType, not a StreamConsumer",
    ):
        Nothing([]).reading(p0="oldest")


def test_an_error_of_a_partition_waits_until_that_is_wanted() -> None:
    failing = threading.Event()

    def fail() -> None:
        failing.wait()
        raise ValueError("broken")

    consumer = ScriptedFactory([fail], messages("x")).reading(p0="oldest", p1="oldest")
    failing.set()
    assert [each.offset for each in drained(consumer, P1)] == ["x"]
    assert not consumer.at_head(P0)
    assert failed(consumer, P0, P1)[0] == []
    consumer.stop()


@pytest.mark.parametrize(
    ("raised", "kind"), [(OSError("no route"), StreamSystemError), (OffsetError("gone"), OffsetError)]
)
def test_a_consumer_that_cannot_be_made_is_an_error_of_the_start(
    raised: Exception, kind: type[Exception]
) -> None:
    factory = ScriptedFactory(messages("a"), raised)
    consumer = factory.get_consumer("sys", Config(), MetricsRegistry())
    for ssp in (P0, P1):
        consumer.register(ssp, "oldest")
    with pytest.raises(kind, match=r"sys\.clicks\.1 cannot be read: .*(no route|gone)"):
        consumer.start()
    consumer.stop()
    assert factory.made[0].closed == 1


def test_a_stream_and_a_partition_that_are_not_there_are_named() -> None:
    with pytest.raises(
        UnknownStreamError, match=r"sys\.clicks has no partition 5; it has 1, numbered from 0"
    ):
        ScriptedFactory([]).reading(p5="oldest")


# The head


def test_a_call_that_waits_longer_than_a_poll_still_reports_the_head() -> None:
    never = threading.Event()

    def waiting() -> Iterator[Callable[[], None]]:
        while True:
            yield lambda: None if never.wait(0.15) else None

    consumer = ScriptedFactory(waiting()).reading(p0="oldest")
    assert not consumer.at_head(P0)
    assert drained(consumer) == []
    assert consumer.at_head(P0)
    consumer.stop()


def test_a_partition_is_not_at_its_head_by_a_look_from_before_the_poll() -> None:
    looking, go_on = threading.Event(), threading.Event()

    def slow_look() -> None:
        looking.set()
        go_on.wait()

    consumer = ScriptedFactory([None, slow_look, *messages("a")]).reading(p0="oldest")
    looking.wait()
    consumer.poll({P0: 1}, 0)
    assert not consumer.at_head(P0)
    go_on.set()
    assert [each.offset for each in drained(consumer)] == ["a"]


# Stopping


def test_a_stop_ends_a_thread_that_waits_for_room() -> None:
    factory = ScriptedFactory(messages(*map(str, range(500))))
    consumer = factory.reading(p0="oldest")
    consumer.poll({P0: 1}, WAIT_MS)
    consumer.stop()
    assert factory.made[0].closed == 1
    assert not factory.made[0].threads[0].is_alive()


def test_a_stop_waits_for_a_call_that_is_under_way() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def long_call() -> StreamMessage:
        inside.set()
        go_on.wait()
        return StreamMessage(b"", "a")

    factory = ScriptedFactory([long_call])
    consumer = factory.reading(p0="oldest")
    inside.wait()
    stopping = threading.Thread(target=consumer.stop)
    stopping.start()
    assert factory.made[0].closed == 0
    go_on.set()
    stopping.join()
    assert factory.made[0].closed == 1


def test_what_closing_raises_is_told_once_and_the_others_are_closed() -> None:
    factory = ScriptedFactory([], [])
    consumer = factory.reading(p0="oldest", p1="oldest")
    factory.made[0].at_close = OSError("line is dead")
    with pytest.raises(
        StreamSystemError, match=r"sys\.clicks\.0 was not closed properly: OSError: line is dead"
    ):
        consumer.stop()
    assert factory.made[1].closed == 1
    consumer.stop()
