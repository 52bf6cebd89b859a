"""Tests of start positions, and of the order of offsets."""

from __future__ import annotations

import itertools
from pathlib import Path

from streambench.errors import OffsetError
from streambench.testing.systems.harness import Harness, needs, raised


class Offsets(Harness):
    """Offsets lead to their messages."""

    requires = ("replayable",)

    def test_reading_begins_at_any_offset_and_behind_any(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(10))
            read = system.read(self._first(system))
            for at, each in enumerate(read):
                assert system.read(each.offset) == read[at:]
                assert system.read(system.admin.after(each.offset)) == read[at + 1 :]

    def test_what_comes_after_the_last_message_is_read_from_behind_it(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(3))
            behind = system.admin.after(system.read(self._first(system))[-1].offset)
            assert system.read(behind) == []
            sent = self._send(system, range(3, 6))
            assert [each.message for each in system.read(behind)] == sent

    def test_an_offset_is_equal_to_itself_and_before_what_follows_it(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(12))
            compare, after = system.admin.compare, system.admin.after
            offsets = [each.offset for each in system.read(self._first(system))]
            for each in offsets:
                assert compare(each, each) == compare(after(each), after(each)) == 0
                assert (compare(each, after(each)) or 0) < 0 < (compare(after(each), each) or 0)
            for one, other in itertools.combinations(offsets, 2):
                # A system need not know the order, but must not be wrong.
                assert (compare(one, other) or -1) < 0 < (compare(other, one) or 1)

    @needs("ordered")
    def test_offsets_are_in_the_order_of_their_messages(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(12))
            compare, after = system.admin.compare, system.admin.after
            offsets = [each.offset for each in system.read(self._first(system))]
            for one, other in itertools.combinations(offsets, 2):
                assert (compare(one, other) or 0) < 0 < (compare(other, one) or 0)
            for one, other in itertools.pairwise(offsets):
                order = compare(after(one), other)
                assert order is not None and order <= 0

    @needs("bounds")
    def test_the_admin_knows_what_a_partition_holds(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            here = system.metadata()
            assert (here.oldest, here.newest) == (None, None)
            assert here.upcoming is not None
            self._send(system, range(5))
            here, read = system.metadata(), system.read(self._first(system))
            assert (here.oldest, here.newest) == (read[0].offset, read[-1].offset)
            assert here.upcoming == system.admin.after(read[-1].offset)
            self._send(system, [5])
            assert system.metadata().oldest == here.oldest
            assert system.metadata().newest == system.read(here.upcoming)[-1].offset

    @needs("bounds")
    def test_reading_begins_at_the_oldest_the_newest_and_the_upcoming_offset(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            empty = system.metadata().upcoming
            assert empty is not None
            at_empty = system.consumer({system.ssp(): empty})
            sent = self._send(system, range(3))
            here = system.metadata()
            assert here.oldest and here.newest and here.upcoming
            at_upcoming = system.consumer({system.ssp(): here.upcoming})
            sent += self._send(system, range(3, 5))
            assert [each.message for each in system.drain(at_empty)] == sent
            assert [each.message for each in system.read(empty)] == sent
            assert [each.message for each in system.read(here.oldest)] == sent
            assert [each.message for each in system.read(here.newest)] == sent[2:]
            assert [each.message for each in system.drain(at_upcoming)] == sent[3:]

    @needs("ordered", "bounds")
    def test_what_is_no_offset_is_an_error(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            self._send(system, range(3))
            for wrong in ("", "x", "-1", "1.5", " "):
                starts = {system.ssp(): wrong}
                error = raised(OffsetError, lambda starts=starts: system.drain(system.consumer(starts)))  # type: ignore[misc]
                assert str(system.ssp()) in str(error) or repr(wrong) in str(error)
