"""Timestamps by the column become milliseconds, whatever they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import SerdeError
from streambench.system.timestamps import as_milliseconds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.none() | st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours)))
TIMES = st.datetimes(datetime(1970, 1, 3), datetime(2200, 1, 1), timezones=ZONES)


def milliseconds(time: datetime) -> int:
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


@given(st.lists(st.none() | TIMES, max_size=5))
def test_datetimes_become_milliseconds_and_those_without_a_zone_are_utc(times: list[datetime | None]) -> None:
    assert as_milliseconds(times).equals(
        pa.array([None if time is None else milliseconds(time) for time in times], pa.int64())
    )


@pytest.mark.parametrize(
    "unit, count",
    [("s", 1704067200), ("ms", 1704067200000), ("us", 1704067200000999), ("ns", 1704067200000999999)],
)
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_arrow_times_of_every_unit_become_milliseconds(unit: str, count: int, zone: str | None) -> None:
    assert as_milliseconds(pa.array([count, None], pa.timestamp(unit, zone))).equals(
        pa.array([1704067200000, None], pa.int64())
    )


@pytest.mark.parametrize(
    "numbers", [[5, None], [], [None], pa.array([5], pa.uint8()), pa.array([-5, None]), pa.nulls(2)]
)
def test_numbers_stay_as_they_are(numbers: Any) -> None:
    made = as_milliseconds(numbers)
    assert made.type == pa.int64()
    assert made.to_pylist() == (numbers if isinstance(numbers, list) else numbers.to_pylist())


@pytest.mark.parametrize(
    "given_", [[2**63], pa.array([2**63], pa.uint64()), pa.array([2**62], pa.timestamp("s"))]
)
def test_what_does_not_fit_is_an_error_and_not_another_time(given_: Any) -> None:
    with pytest.raises(SerdeError, match="cannot be made milliseconds"):
        as_milliseconds(given_)


@pytest.mark.parametrize(
    "given_", [[True], ["5"], [5, True], pa.array([5], pa.duration("ms")), pa.array([5], pa.time64("us"))]
)
def test_what_is_neither_a_number_nor_a_time_is_refused(given_: Any) -> None:
    with pytest.raises(SerdeError, match="must be either whole numbers of milliseconds since 1970"):
        as_milliseconds(given_)


@pytest.mark.parametrize("given_", [[5.0, None], pa.array([5.0, None]), pa.array([5.0, float("nan")])])
def test_numbers_with_gaps_may_be_floats_without_a_fraction(given_: Any) -> None:
    assert as_milliseconds(given_).to_pylist() == [5, None]


@pytest.mark.parametrize("given_", [[5.5], pa.array([1e300])])
def test_floats_that_are_no_whole_milliseconds_are_refused(given_: Any) -> None:
    with pytest.raises(SerdeError, match="cannot be made milliseconds since 1970"):
        as_milliseconds(given_)
