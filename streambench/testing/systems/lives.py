"""How consumers, producers, streams and jobs begin and end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streambench.container.container import Container
from streambench.errors import StreamExistsError, StreamSystemError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.task import MessageCollector, StreamTask, TaskCoordinator
from streambench.testing.systems.harness import SOURCE, SYSTEM, Harness, SystemUnderTest, needs, raised


class Lives(Harness):
    """Nothing is lost between one life and the next."""

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

    def test_consumers_and_producers_may_be_stopped_twice_and_before_they_start(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            idle = system.new_consumer()
            idle.register(system.ssp(), self._first(system))
            writer = system.systems.producer(SYSTEM, MetricsRegistry())
            for part in (idle, system.consumer({system.ssp(): self._first(system)}), writer, system.new_producer()):
                part.stop()
                part.stop()
            system.admin.close()
            system.admin.close()

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

    # Streams

    def test_a_stream_that_is_not_there_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        nothing = SystemStream(SYSTEM, "nothing")
        with self._opened(tmp_path) as system:
            ways: list[Callable[[], object]] = [
                lambda: system.admin.metadata([system.stream, nothing]),
                lambda: system.consumer({SystemStreamPartition(SYSTEM, "nothing", 0): self._first(system)}),
                lambda: system.new_producer().send(SOURCE, OutgoingMessageEnvelope(nothing, self.message(0), partition=0)),
            ]
            for way in ways:
                assert "nothing" in str(raised(UnknownStreamError, way))

    def test_a_partition_that_is_not_there_is_an_error_that_names_its_stream(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            error = raised(UnknownStreamError, lambda: system.consumer({system.ssp(7): self._first(system)}))
            assert str(system.stream) in str(error)

    @needs("creates")
    def test_a_stream_is_created_once(self, tmp_path: Path) -> None:
        new = SystemStream(SYSTEM, "new")
        with self._opened(tmp_path) as system:
            assert system.admin.create(new, 1) is True
            assert system.admin.create(new, 1) is False
            assert "new" in str(raised(StreamExistsError, lambda: system.admin.create(new, 2)))
            assert list(system.admin.metadata([new])[new]) == [0]

    @needs("lists", "creates")
    def test_the_admin_tells_which_streams_there_are(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            system.admin.create(SystemStream(SYSTEM, "another"), 1)
            assert system.admin.streams() == [SystemStream(SYSTEM, "another"), system.stream]

    @needs("deletes", "creates")
    def test_a_deleted_stream_is_gone_with_all_it_held(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(3))
            system.producer.stop()
            system.admin.delete(system.stream)
            raised(UnknownStreamError, lambda: system.admin.metadata([system.stream]))
            raised(UnknownStreamError, lambda: system.admin.delete(system.stream))
            system.admin.create(system.stream, 1)
            assert system.read(self._first(system)) == []

    @needs("grows")
    def test_a_stream_that_grows_keeps_what_it_has(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            sent = self._send(system, range(3))
            system.admin.grow(system.stream, 3)
            system.admin.grow(system.stream, 2)
            assert list(system.admin.metadata([system.stream])[system.stream]) == [0, 1, 2]
            assert [each.message for each in system.read(self._first(system))] == sent
            raised(UnknownStreamError, lambda: system.admin.grow(SystemStream(SYSTEM, "nothing"), 2))

    def test_what_an_admin_cannot_do_is_an_error_that_says_so(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            if not self.deletes:
                raised(StreamSystemError, lambda: system.admin.delete(system.stream))
            if not self.grows:
                raised(StreamSystemError, lambda: system.admin.grow(system.stream, 2))
            if not self.lists:
                assert system.admin.streams() == []

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
        class Noting(StreamTask):
            def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
                processed.append(envelope.message)

        job = {
            "job.name": "contract",
            "task.inputs": str(system.stream),
            "task.checkpoint.system": "kept",
            "task.commit.ms": -1,
            "systems.kept.samza.factory": "log",
            "systems.kept.path": system.directory / "kept",
            f"systems.{SYSTEM}.samza.offset.default": "oldest",
        }
        container = Container.from_config(system.config.with_values(job), Noting)
        container.start()
        return container

    def _run(self, system: SystemUnderTest, processed: list[Any], until: Any) -> None:
        container = self._started(system, processed)
        container.run(until)
        container.stop()
