"""Tests of polls, and of partitions at their head."""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path
from typing import Any

from streambench.model import SystemStreamPartition
from streambench.testing.systems.harness import Envelopes, Harness, needs


class Polling(Harness):
    """Polls return what is wanted, and the head is known."""

    requires = ("replayable",)

    # Polling

    def test_a_poll_returns_no_more_than_is_wanted(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            sent = self._send(system, range(20))
            consumer, found = system.consumer({system.ssp(): self._first(system)}), []
            for at_most in itertools.cycle([1, 3, 7]):
                polled = consumer.poll({system.ssp(): at_most}, system.wait_ms(consumer))
                assert len(polled) <= at_most
                found += [each.message for each in polled]
                if len(found) == len(sent):
                    break
            assert found == sent

    def test_a_poll_of_nothing_returns_nothing(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            consumer = system.consumer({system.ssp(): self._first(system)})
            assert consumer.poll({system.ssp(): 5}, 0) == []
            assert consumer.poll({system.ssp(): 5}, 20) == []
            assert consumer.poll({}, 0) == []
            sent = self._send(system, range(3))
            assert [each.message for each in system.drain(consumer)] == sent

    def test_a_poll_that_waits_returns_with_the_first_message(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            consumer = system.consumer({system.ssp(): self._first(system)})
            if consumer.polled_by_loop:
                return
            polled: Envelopes = []
            # So long that this test never ends where a poll waits for its time and not for messages.
            waiting = threading.Thread(
                target=lambda: polled.extend(consumer.poll({system.ssp(): 5}, 3_600_000)), daemon=True
            )
            waiting.start()
            self._send(system, [0])
            waiting.join()
            assert [each.message for each in polled] == [self.message(0)]

    @needs("several_partitions")
    def test_a_partition_that_is_not_wanted_returns_nothing_loses_nothing_and_stops_no_other(
        self, tmp_path: Path
    ) -> None:
        with self._opened(tmp_path, partitions=2) as system:
            held, other = system.ssp(0), system.ssp(1)
            consumer = system.consumer(
                {ssp: system.start(system.metadata(ssp.partition)) for ssp in (held, other)}
            )
            for number in range(1_000):
                system.send(self.message(number), partition=0)
            system.flush()
            for number in range(20):
                system.send(self.message(number), partition=1)
                system.flush()
                assert [(each.ssp, each.message) for each in system.drain(consumer, other)] == [
                    (other, self.message(number))
                ]
            assert [each.message for each in system.drain(consumer, held)] == [
                self.message(number) for number in range(1_000)
            ]

    @needs("several_partitions")
    def test_however_writes_and_polls_are_mixed_everything_is_read_once_in_order(
        self, tmp_path: Path
    ) -> None:
        chance = random.Random(7)
        with self._opened(tmp_path, partitions=3) as system:
            starts = {system.ssp(number): system.start(system.metadata(number)) for number in range(3)}
            consumer = system.consumer(starts)
            sent: dict[SystemStreamPartition, list[Any]] = {ssp: [] for ssp in starts}
            found: dict[SystemStreamPartition, list[Any]] = {ssp: [] for ssp in starts}
            for number in range(300):
                ssp = chance.choice(list(starts))
                system.send(self.message(number), partition=ssp.partition)
                sent[ssp].append(self.message(number))
                if chance.random() < 0.3:
                    system.flush()
                if chance.random() < 0.3:
                    wanted = {ssp: chance.randint(1, 20) for ssp in starts if chance.random() < 0.6}
                    for each in consumer.poll(wanted, 0):
                        assert each.ssp in wanted
                        found[each.ssp].append(each.message)
            system.flush()
            for each in system.drain(consumer, *starts):
                found[each.ssp].append(each.message)
            assert found == sent

    # The head

    def test_a_partition_is_at_its_head_when_all_was_returned_that_was_there(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            consumer = system.consumer({system.ssp(): self._first(system)})
            for number in range(50):
                # Sent and durable before the poll: once that says that it is at the head, the message must
                # have been returned.
                self._send(system, [number])
                assert [each.message for each in system.drain(consumer)] == [self.message(number)]

    def test_a_partition_is_not_at_its_head_while_something_is_left(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(10))
            consumer, left = system.consumer({system.ssp(): self._first(system)}), 10
            while left:
                left -= len(consumer.poll({system.ssp(): min(3, left - 1) or 1}, system.wait_ms(consumer)))
                assert left == 0 or not consumer.at_head(system.ssp())
            assert system.drain(consumer) == []
