"""Tests of the begin and end of streams, and of errors about missing ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streambench.errors import StreamExistsError, StreamSystemError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.testing.systems.harness import SOURCE, SYSTEM, Harness, needs, raised


class Streams(Harness):
    """Streams are there, or it is said that they are not."""

    def test_a_stream_that_is_not_there_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        nothing = SystemStream(SYSTEM, "nothing")
        with self._opened(tmp_path) as system:
            ways: list[Callable[[], object]] = [
                lambda: system.admin.metadata([system.stream, nothing]),
                lambda: system.consumer({SystemStreamPartition(SYSTEM, "nothing", 0): self._first(system)}),
                lambda: system.new_producer().send(
                    SOURCE, OutgoingMessageEnvelope(nothing, self.message(0), partition=0)
                ),
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
    def test_the_admin_knows_which_streams_there_are(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            system.admin.create(SystemStream(SYSTEM, "another"), 1)
            assert system.admin.streams() == [SystemStream(SYSTEM, "another"), system.stream]

    @needs("deletes", "creates", "replayable")
    def test_a_deleted_stream_is_gone_with_all_it_held(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(3))
            system.producer.stop()
            system.admin.delete(system.stream)
            raised(UnknownStreamError, lambda: system.admin.metadata([system.stream]))
            raised(UnknownStreamError, lambda: system.admin.delete(system.stream))
            system.admin.create(system.stream, 1)
            assert system.read(self._first(system)) == []

    @needs("deletes", "creates", "replayable")
    def test_a_partition_is_known_apart_from_one_of_a_stream_created_again(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:

            def identity() -> str | None:
                system.admin.metadata([system.stream])
                return system.admin.identity(system.ssp(), position)

            self._send(system, range(3))
            position = system.admin.after(system.read(self._first(system))[-1].offset)
            former = identity()
            self._send(system, range(3, 6))
            assert identity() == former
            system.producer.stop()
            system.admin.delete(system.stream)
            system.admin.create(system.stream, 1)
            assert former is None or identity() != former

    @needs("grows", "replayable")
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
                # A system without a list of its streams shows those that are configured.
                configured = {
                    name.split(".")[1] for name in self.settings(tmp_path) if name.startswith("streams.")
                }
                assert {each.stream for each in system.admin.streams()} <= configured

    def test_consumers_and_producers_may_be_stopped_twice_and_before_they_start(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            idle = system.new_consumer()
            idle.register(system.ssp(), self._first(system))
            writer = system.systems.producer(SYSTEM, MetricsRegistry())
            for part in (
                idle,
                system.consumer({system.ssp(): self._first(system)}),
                writer,
                system.new_producer(),
            ):
                part.stop()
                part.stop()
            system.admin.close()
            system.admin.close()
