"""Tests of the life cycle of consumers, producers, streams and jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streambench.container.container import Container
from streambench.testing.systems.harness import SYSTEM, Harness, SystemUnderTest, needs
from streambench.testing.systems.noting import started_job


class Lives(Harness):
    """Nothing is lost between one life and the next."""

    requires = ("replayable",)

    # Life and death

    def test_a_new_consumer_goes_on_where_one_was_stopped_in_the_middle(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            sent = self._send(system, range(500))
            found: list[Any] = []
            start = self._first(system)
            while len(found) < len(sent):
                consumer = system.consumer({system.ssp(): start})
                polled = consumer.poll({system.ssp(): 130}, system.wait_ms(consumer))
                consumer.stop()
                found += [each.message for each in polled]
                start = system.admin.after(polled[-1].offset) if polled else start
            assert found == sent

    def test_what_was_flushed_is_there_whatever_becomes_of_its_producer(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            sent = self._send(system, range(10))
            lost = [self.message(number) for number in range(10, 20)]
            for message in lost:
                system.send(message)
            system.producer.stop()
            read = [each.message for each in system.read(self._first(system))]
            assert read == (sent + lost)[: len(read)]
            assert len(read) >= len(sent)

    def test_a_flush_with_nothing_to_write_does_nothing(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            system.flush()
            sent = self._send(system, range(2))
            system.flush()
            assert [each.message for each in system.read(self._first(system))] == sent

    @needs("survives")
    def test_the_next_process_finds_what_was_flushed_and_goes_on_from_an_offset(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            sent = self._send(system, range(10))
            offsets = [each.offset for each in system.read(self._first(system))]
        with self._opened(tmp_path, create=False) as system:
            sent += self._send(system, range(10, 12))
            assert [each.message for each in system.read(offsets[0])] == sent
            assert [each.message for each in system.read(system.admin.after(offsets[6]))] == sent[7:]

    # In a job

    def test_a_job_that_is_stopped_and_goes_on_processes_every_message_once(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            processed: list[Any] = []
            sent = self._send(system, range(30))
            for so_many in (7, 15):
                self._run(system, processed, so_many)
            assert processed == sent[:22]
            sent += self._send(system, range(30, 40))
            for _ in range(2):
                self._run(system, processed, "caught-up")
            assert processed == sent

    def test_a_job_that_crashes_begins_again_at_its_last_commit(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            processed: list[Any] = []
            sent = self._send(system, range(30))
            crashing = self._started(system, processed)
            crashing.run(10)
            crashing.commit()
            crashing.run(10)
            crashing.abandon()
            assert processed == sent[:20]
            self._run(system, processed, "caught-up")
            assert processed == sent[:20] + sent[10:]

    def _started(self, system: SystemUnderTest, processed: list[Any]) -> Container:
        settings = {"task.commit.ms": -1, f"systems.{SYSTEM}.samza.offset.default": "oldest"}
        return started_job(system, processed, settings)

    def _run(self, system: SystemUnderTest, processed: list[Any], until: Any) -> None:
        container = self._started(system, processed)
        container.run(until)
        container.stop()
