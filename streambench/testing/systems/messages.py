"""Tests of sending and reading."""

from __future__ import annotations

from pathlib import Path

from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.testing.systems.harness import SOURCE, SYSTEM, Envelopes, Harness, needs


class Messages(Harness):
    """Messages go through a system in order and as they are."""

    requires = ("replayable",)

    # Writing and reading

    def test_what_was_sent_is_read_in_its_order(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            sent = self._send(system, range(100))
            read = system.read(self._first(system))
            assert [each.message for each in read] == sent
            assert len({each.offset for each in read}) == 100
            assert {each.ssp for each in read} == {system.ssp()}

    @needs("several_partitions")
    def test_every_partition_has_its_own_order(self, tmp_path: Path) -> None:
        with self._opened(tmp_path, partitions=3) as system:
            for number in range(90):
                system.send(self.message(number), partition=number % 3)
            system.flush()
            found = system.read_all(3)
            assert {ssp.partition: [each.message for each in read] for ssp, read in found.items()} == {
                partition: [self.message(number) for number in range(partition, 90, 3)]
                for partition in range(3)
            }

    @needs("several_partitions")
    def test_there_may_be_many_partitions(self, tmp_path: Path) -> None:
        count = self.most_partitions
        with self._opened(tmp_path, partitions=count) as system:
            for number in range(count):
                system.send(self.message(number), partition=number)
            system.flush()
            found = system.read_all(count)
            assert [[each.message for each in found[system.ssp(number)]] for number in range(count)] == [
                [self.message(number)] for number in range(count)
            ]

    def test_a_sender_for_one_stream_does_what_send_does(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            send = system.producer.sender(system.stream)
            for number in range(0, 20, 2):
                send(SOURCE, OutgoingMessageEnvelope(system.stream, "as sent"), None, self.message(number), 0)
                system.send(self.message(number + 1))
            system.flush()
            assert [each.message for each in system.read(self._first(system))] == [
                self.message(number) for number in range(20)
            ]

    def test_what_is_appended_by_partition_stands_among_what_was_sent(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            appends = system.producer.appends(system.stream)
            if appends is None:
                return
            for number in range(0, 20, 2):
                appends.partitions[0]((None, self.message(number), None))
                system.send(self.message(number + 1))
            appends.apply_limits()
            system.flush()
            assert [each.message for each in system.read(self._first(system))] == [
                self.message(number) for number in range(20)
            ]

    def test_streams_are_apart(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self.create(system, "other", 1)
            other = SystemStream(SYSTEM, "other")
            system.producer.send(SOURCE, OutgoingMessageEnvelope(other, self.message(7), partition=0))
            self._send(system, [8])
            beginning = system.start(system.admin.metadata([other])[other][0])
            assert [
                each.message for each in system.read(beginning, SystemStreamPartition(SYSTEM, "other", 0))
            ] == [self.message(7)]
            assert [each.message for each in system.read(self._first(system))] == [self.message(8)]

    def test_two_producers_keep_their_own_order(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            other = system.new_producer()
            for number in range(0, 20, 2):
                self._send(system, [number])
                other.send(
                    "Partition 1",
                    OutgoingMessageEnvelope(system.stream, self.message(number + 1), partition=0),
                )
                other.flush("Partition 1")
            other.stop()
            read = [each.message for each in system.read(self._first(system))]
            assert sorted(read) == sorted(map(self.message, range(20)))
            for first in (0, 1):
                own = list(map(self.message, range(first, 20, 2)))
                assert [message for message in read if message in own] == own

    def test_every_consumer_gets_every_message(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            start = self._first(system)
            one, other = system.consumer({system.ssp(): start}), system.consumer({system.ssp(): start})
            sent = self._send(system, range(10))
            assert [each.message for each in system.drain(one)] == sent
            assert [each.message for each in system.drain(other)] == sent

    def test_columns_hold_what_a_poll_returns(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(10))
            polled = system.read(self._first(system))
            for poll in ("poll_chunks", "poll_batches"):
                found: Envelopes = []
                consumer = system.consumer({system.ssp(): self._first(system)})
                while len(found) < 10:
                    for run in getattr(consumer, poll)({system.ssp(): 4}, system.wait_ms(consumer)):
                        assert run.ssp == system.ssp()
                        assert len(run) <= 4
                        assert run.offset(0) == polled[len(found)].offset
                        found += run.envelopes()
                assert found == polled

    # What a message is

    @needs("keys")
    def test_keys_come_back_as_they_were(self, tmp_path: Path) -> None:
        keys = [b"k", None, b"\0\xff\n", b"k"]
        with self._opened(tmp_path) as system:
            for number, key in enumerate(keys):
                system.send(self.message(number), key=key)
            system.flush()
            assert [each.key for each in system.read(self._first(system))] == keys

    @needs("tombstones")
    def test_a_message_may_be_none(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            for message in (self.message(0), None, self.message(1)):
                system.send(message, key=b"k" if self.keys else None)
            system.flush()
            assert [each.message for each in system.read(self._first(system))] == [
                self.message(0),
                None,
                self.message(1),
            ]

    @needs("empty_messages")
    def test_a_message_may_be_empty(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            for message in (b"", self.message(0), b""):
                system.send(message)
            system.flush()
            assert [each.message for each in system.read(self._first(system))] == [b"", self.message(0), b""]

    @needs("any_bytes")
    def test_a_message_may_be_any_bytes(self, tmp_path: Path) -> None:
        messages = [bytes(range(256)), b"\n", b"\r\n\0", b"\xff\xfe"]
        with self._opened(tmp_path) as system:
            for message in messages:
                system.send(message)
            system.flush()
            assert [each.message for each in system.read(self._first(system))] == messages

    def test_messages_may_be_large(self, tmp_path: Path) -> None:
        messages = [b'"%s"' % (letter * (self.large - 2)) for letter in (b"a", b"b")]
        with self._opened(tmp_path) as system:
            for message in (messages[0], self.message(0), messages[1]):
                system.send(message)
            system.flush()
            read = [each.message for each in system.read(self._first(system))]
            assert read == [messages[0], self.message(0), messages[1]]

    @needs("timestamps")
    def test_timestamps_come_back_as_they_were(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            for number, timestamp in enumerate([5, 1_700_000_000_000, 5]):
                system.send(self.message(number), timestamp=timestamp)
            system.flush()
            assert [each.timestamp for each in system.read(self._first(system))] == [5, 1_700_000_000_000, 5]

    @needs("headers")
    def test_headers_come_back_as_they_were(self, tmp_path: Path) -> None:
        headers = [{"a": b"1", "b": b"\0\xff"}, None, {"a": b""}]
        with self._opened(tmp_path) as system:
            for number, each in enumerate(headers):
                system.send(self.message(number), headers=each)
            system.flush()
            assert [
                dict(each.headers) if each.headers else None for each in system.read(self._first(system))
            ] == headers
