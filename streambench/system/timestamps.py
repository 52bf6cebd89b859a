"""Timestamps of messages, as they are given by the column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from streambench.errors import SerdeError, class_name

if TYPE_CHECKING:
    import pyarrow as pa


def as_milliseconds(given: pa.Array | Sequence[Any]) -> pa.Array:
    """Timestamps as int64: milliseconds since 1970 (UTC), null where there is none.

    ``given``, an Arrow array or a list, holds such numbers, or times: Arrow timestamps of any unit,
    datetimes. The numbers may be floats without a fraction, which pandas makes of numbers with gaps. A time
    without a time zone is UTC; what is finer than a millisecond is cut off. Raises SerdeError for anything
    else, and for what does not fit into int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        times = given if isinstance(given, pa.Array) else _array(given)
        kind = times.type
        if pa.types.is_timestamp(kind):
            # Arrow casts a time to int64 as the number that it is in its own unit.
            times = times.cast(options=pc.CastOptions(pa.timestamp("ms", kind.tz), allow_time_truncate=True))
        elif pa.types.is_floating(kind):
            times = pc.if_else(pc.is_nan(times), None, times)
        elif not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise _wrong(str(kind))
        return times.cast(pa.int64())
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise SerdeError(f"timestamps cannot be made milliseconds since 1970: {error}") from error


def _array(given: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    # Arrow itself would take a number among times for a time, and True for 1.
    kinds = set(map(type, given)) - {type(None)}
    if all(issubclass(kind, datetime) for kind in kinds):
        return pa.array(given, pa.timestamp("us"))
    if all(issubclass(kind, Integral) and not issubclass(kind, bool) for kind in kinds):
        return pa.array(given, pa.int64())
    if all(issubclass(kind, Real) and not issubclass(kind, bool) for kind in kinds):
        return pa.array(given, pa.float64())
    raise _wrong(" and ".join(sorted(map(class_name, kinds))))


def _wrong(found: str) -> SerdeError:
    return SerdeError(
        "timestamps must be either whole numbers of milliseconds since 1970 (UTC) or times (datetimes, "
        f"Arrow timestamps), not {found}: cast them to one of these"
    )
