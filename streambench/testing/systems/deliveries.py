"""Tests of systems that keep nothing once it was read: sockets, queues, requests."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streambench.container.container import Container
from streambench.errors import ConfigError
from streambench.model import (
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStreamPartition,
)
from streambench.system.api import SystemConsumer
from streambench.system.capabilities import Acknowledging
from streambench.testing.systems.harness import (
    SOURCE,
    SYSTEM,
    Envelopes,
    Harness,
    SystemUnderTest,
    needs,
    raised,
)
from streambench.testing.systems.noting import started_job


class Deliveries(Harness):
    """Messages reach a consumer that is there, in order and as they are, and what is not acknowledged is not
    forgotten.

    A sender may have to wait until what was sent is acknowledged. So it is always sent on a thread of its own
    here, while the consumer is at work.
    """

    requires = ("transient",)

    def test_the_metadata_says_that_nothing_is_kept(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            assert system.admin.replayable is False
            assert system.metadata() == PartitionMetadata(None, None, "0")
            with self._reading(system) as consumer, self._sending(system, range(3)):
                self._receive(system, consumer, 3)
                assert system.metadata() == PartitionMetadata(None, None, "0")

    def test_messages_arrive_in_their_order_and_are_counted_from_nought(self, tmp_path: Path) -> None:
        with (
            self._opened(tmp_path) as system,
            self._reading(system) as consumer,
            self._sending(system, range(100)) as sent,
        ):
            received = self._receive(system, consumer, 100)
            assert [each.message for each in received] == sent
            assert [each.offset for each in received] == [str(number) for number in range(100)]
            assert {each.ssp for each in received} == {system.ssp()}

    def test_offsets_are_numbers(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            assert (system.admin.compare("9", "10") or 0) < 0 < (system.admin.compare("10", "9") or 0)
            assert system.admin.compare("9", "9") == 0
            assert system.admin.after("9") == "10"

    def test_a_poll_returns_no_more_than_is_wanted_and_nothing_is_lost_by_it(self, tmp_path: Path) -> None:
        chance = random.Random(3)
        with (
            self._opened(tmp_path) as system,
            self._reading(system) as consumer,
            self._sending(system, range(100)) as sent,
        ):
            found: list[Any] = []
            while len(found) < 100:
                at_most = chance.randint(1, 9)
                polled = consumer.poll({system.ssp(): at_most} if chance.random() < 0.7 else {}, 0)
                assert len(polled) <= at_most
                found += self._acknowledged(consumer, polled)
            assert found == sent

    def test_a_poll_of_nothing_returns_nothing_and_is_at_its_head(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system, self._reading(system) as consumer:
            assert consumer.poll({system.ssp(): 5}, 0) == []
            assert consumer.poll({}, 0) == []
            while not consumer.at_head(system.ssp()):
                assert consumer.poll({system.ssp(): 5}, 20) == []

    def test_a_poll_that_waits_returns_with_the_first_message(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system, self._reading(system) as consumer:
            if consumer.polled_by_loop:
                return
            polled: Envelopes = []
            waiting = threading.Thread(
                target=lambda: polled.extend(consumer.poll({system.ssp(): 5}, 3_600_000)), daemon=True
            )
            waiting.start()
            with self._sending(system, [0]):
                waiting.join()
                assert self._acknowledged(consumer, polled) == [self.message(0)]

    @needs("several_partitions")
    def test_a_partition_that_is_not_wanted_stops_no_other(self, tmp_path: Path) -> None:
        with self._opened(tmp_path, partitions=2) as system:
            held, other = system.ssp(0), system.ssp(1)
            with (
                self._reading(system, held, other) as consumer,
                self._sending(system, range(50), partition=0) as kept,
            ):
                with self._sending(system, range(20), partition=1) as sent:
                    assert [each.message for each in self._receive(system, consumer, 20, other)] == sent
                assert [each.message for each in self._receive(system, consumer, 50, held)] == kept

    @needs("keys")
    def test_keys_arrive_as_they_were(self, tmp_path: Path) -> None:
        keys = [b"k", None, b"\0\xff\n"]
        envelopes = [self._envelope(number, key=key) for number, key in enumerate(keys)]
        with self._opened(tmp_path) as system:
            assert [each.key for each in self._passed(system, envelopes)] == keys

    @needs("empty_messages")
    def test_a_message_may_be_empty_on_its_way(self, tmp_path: Path) -> None:
        envelopes = [
            self._envelope(0),
            OutgoingMessageEnvelope(self._envelope(0).system_stream, b"", partition=0),
            self._envelope(1),
        ]
        with self._opened(tmp_path) as system:
            assert [each.message for each in self._passed(system, envelopes)] == [
                self.message(0),
                b"",
                self.message(1),
            ]

    @needs("any_bytes")
    def test_a_message_may_be_any_bytes_on_its_way(self, tmp_path: Path) -> None:
        messages = [bytes(range(256)), b"\n", b"\r\n\0", b"\xff\xfe"]
        stream = self._envelope(0).system_stream
        with self._opened(tmp_path) as system:
            passed = self._passed(
                system, [OutgoingMessageEnvelope(stream, message, partition=0) for message in messages]
            )
            assert [each.message for each in passed] == messages

    @needs("headers")
    def test_headers_arrive_as_they_were(self, tmp_path: Path) -> None:
        envelopes = [self._envelope(0, headers={"a": b"1", "b": b"2"}), self._envelope(1)]
        with self._opened(tmp_path) as system:
            first, second = (dict(each.headers or {}) for each in self._passed(system, envelopes))
            assert (first["a"], first["b"]) == (b"1", b"2")
            assert "a" not in second

    @needs("timestamps")
    def test_timestamps_arrive_as_they_were(self, tmp_path: Path) -> None:
        envelopes = [self._envelope(number, timestamp=1_700_000_000_000 + number) for number in range(3)]
        with self._opened(tmp_path) as system:
            assert [each.timestamp for each in self._passed(system, envelopes)] == [
                each.timestamp for each in envelopes
            ]

    def test_what_was_received_may_be_acknowledged_on_another_thread_and_twice(self, tmp_path: Path) -> None:
        with (
            self._opened(tmp_path) as system,
            self._reading(system) as consumer,
            self._sending(system, range(500)) as sent,
        ):
            found: list[Any] = []
            while len(found) < 500:
                polled = consumer.poll({system.ssp(): 50}, min(20, system.wait_ms(consumer)))
                found += [each.message for each in polled]
                if polled:
                    safe = {system.ssp(): polled[-1].offset}
                    for _ in range(2):
                        caller = threading.Thread(target=_acknowledging(consumer).acknowledge, args=(safe,))
                        caller.start()
                        consumer.poll({}, 0)
                        caller.join()
            assert found == sent

    @needs("redelivers")
    def test_what_was_not_acknowledged_is_delivered_again(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            with self._reading(system) as consumer, self._sending(system, range(20)) as sent:
                received = self._receive(system, consumer, 20, acknowledging=False)
                _acknowledging(consumer).acknowledge({system.ssp(): received[11].offset})
            with self._reading(system) as consumer:
                again = self._receive(system, consumer, 8)
                assert [each.message for each in again] == sent[12:]
                assert again[0].offset == "0"

    # In a job

    def test_a_job_that_commits_has_acknowledged_what_it_processed(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            processed: list[Any] = []
            container = self._job(system, processed)
            with self._sending(system, range(30)) as sent:
                container.run(30)
                container.commit()
                assert processed == sent
            snapshot = container.snapshot()
            assert snapshot.lag is None
            container.stop()
            again = self._job(system, processed)
            with self._sending(system, range(30, 35)) as more:
                again.run(5)
                again.stop()
            assert processed == sent + more

    @needs("redelivers")
    def test_a_job_that_crashes_gets_again_what_it_had_not_committed(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            processed: list[Any] = []
            # On a machine that is slow it would have committed by itself before it crashes.
            crashing = self._job(system, processed, {"task.commit.ms": -1})
            with self._sending(system, range(20)) as sent:
                crashing.run(10)
                crashing.commit()
                crashing.run(5)
                crashing.abandon()
            again = self._job(system, processed)
            again.run(10)
            again.stop()
            assert sorted(processed) == sorted(sent + sent[10:15])

    def test_a_job_cannot_be_exactly_once(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            settings = {"task.processing.guarantee": "exactly-once"}
            error = raised(ConfigError, lambda: self._job(system, [], settings))
            assert error.key == "task.processing.guarantee"
            assert f"systems.{SYSTEM}.samza.landing" in str(error)

    def _envelope(self, number: int, **what: Any) -> OutgoingMessageEnvelope:
        ssp = SystemStreamPartition(SYSTEM, "stream", 0)
        return OutgoingMessageEnvelope(
            ssp.system_stream, self.message(number), what.pop("key", None), None, 0, **what
        )

    @contextmanager
    def _reading(self, system: SystemUnderTest, *ssps: SystemStreamPartition) -> Iterator[SystemConsumer]:
        """A consumer at work, which is stopped in the end."""
        consumer = system.consumer(dict.fromkeys(ssps or [system.ssp()], "0"))
        try:
            yield consumer
        finally:
            consumer.stop()

    @contextmanager
    def _sending(
        self, system: SystemUnderTest, numbers: range | list[int], *, partition: int = 0
    ) -> Iterator[list[Any]]:
        """Numbered messages on their way; all of them are sent, durably, when it is left."""
        messages = list(map(self.message, numbers))
        with self._on_their_way(
            system, [OutgoingMessageEnvelope(system.stream, each, None, None, partition) for each in messages]
        ):
            yield messages

    @contextmanager
    def _on_their_way(
        self, system: SystemUnderTest, envelopes: list[OutgoingMessageEnvelope]
    ) -> Iterator[None]:
        problems: list[BaseException] = []
        producer = system.new_producer()

        def send() -> None:
            try:
                for each in envelopes:
                    producer.send(SOURCE, each)
                producer.flush(SOURCE)
            except BaseException as error:
                problems.append(error)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        try:
            yield
            sending.join()
            if problems:
                raise problems[0]
        finally:
            producer.stop()

    def _passed(self, system: SystemUnderTest, envelopes: list[OutgoingMessageEnvelope]) -> Envelopes:
        """Those of the messages that arrive."""
        with self._reading(system) as consumer, self._on_their_way(system, envelopes):
            return self._receive(system, consumer, len(envelopes))

    def _receive(
        self,
        system: SystemUnderTest,
        consumer: SystemConsumer,
        count: int,
        ssp: SystemStreamPartition | None = None,
        *,
        acknowledging: bool = True,
    ) -> Envelopes:
        """The next ``count`` messages of a partition, the first one if none is named."""
        found: Envelopes = []
        while len(found) < count:
            polled = consumer.poll(
                {ssp or system.ssp(): count - len(found)}, min(50, system.wait_ms(consumer))
            )
            if acknowledging:
                self._acknowledged(consumer, polled)
            found += polled
        return found

    @staticmethod
    def _acknowledged(consumer: SystemConsumer, polled: Envelopes) -> list[Any]:
        """The messages, acknowledged."""
        safe = {each.ssp: each.offset for each in polled}
        if safe:
            _acknowledging(consumer).acknowledge(safe)
        return [each.message for each in polled]

    def _job(
        self, system: SystemUnderTest, processed: list[Any], settings: Mapping[str, Any] | None = None
    ) -> Container:
        return started_job(system, processed, settings or {})


def _acknowledging(consumer: SystemConsumer) -> Acknowledging:
    assert isinstance(consumer, Acknowledging), (
        f"{type(consumer).__name__} has no method acknowledge(offsets)"
    )
    return consumer
