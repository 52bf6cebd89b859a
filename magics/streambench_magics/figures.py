"""Names and figures of a panel, as the text that a person reads."""

from __future__ import annotations

from streambench.container.observe.snapshot import Choice, ContainerSnapshot
from streambench.debug.names import middle_cut
from streambench.debug.panel_state import PanelState
from streambench.debug.rows import Row
from streambench.model import SystemStream

NAME = 46
"""Characters of a name where it stands in a sentence."""


def label(frame: PanelState, row: Row) -> str:
    """The name of a row; without the system where there is only one."""
    stream = stream_name(frame, row.stream)
    return f"{stream} · {row.folded:,} partitions" if row.folded else f"{stream}.{row.partition}"


def stream_name(frame: PanelState, stream: SystemStream) -> str:
    return stream.stream if frame.one_system else str(stream)


def place_of(choice: Choice) -> str:
    """The message of a choice, in full."""
    return f"{choice.ssp}@{choice.offset}"


def short_place(frame: PanelState, choice: Choice) -> str:
    """The message of a choice, without the system where there is only one."""
    name = f"{stream_name(frame, choice.ssp.system_stream)}.{choice.ssp.partition}"
    return f"{middle_cut(name, NAME)} @ {choice.offset}"


def offset(value: str | None) -> str:
    """An offset, with separators where it is a number; a dash for None."""
    return "–" if value is None else f"{int(value):,}" if value.isdecimal() else value


def figure(value: float | None) -> str:
    """A whole number with separators; a dash for None."""
    return "–" if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """A rate in three or four characters."""
    if value is None:
        return "–"
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{unit}"
    return f"{value:.0f}"


def bytes_text(size: int) -> str:
    """A size: "212 B", "1.4 kB"."""
    return f"{size} B" if size < 1000 else f"{size / 1e3:,.1f} kB" if size < 1e6 else f"{size / 1e6:,.1f} MB"


def filled(snapshot: ContainerSnapshot, row: Row) -> tuple[float | None, float | None]:
    """Percent of a partition (or of all of a stream) before the position, and before the checkpoint; None
    where offsets are no numbers."""
    if row.folded:
        parts = [
            each
            for each in snapshot.partitions
            if each.ssp.system_stream == row.stream and each.lag is not None
        ]
        lengths = sum(_span(each.oldest, each.upcoming) or 0 for each in parts)
        done = sum(_span(each.oldest, each.position) or 0 for each in parts)
        return (100 * done / lengths if lengths else 0.0), None
    length, done_here = _span(row.oldest, row.upcoming), _span(row.oldest, row.position)
    if row.oldest is None:
        return 0.0, None
    if length is None or done_here is None:
        return None, None
    committed = _span(row.oldest, row.checkpointed)
    return _percent(done_here, length), None if committed is None else _percent(committed + 1, length)


def _percent(part: int, whole: int) -> float:
    return max(0.0, min(100.0, 100 * part / whole)) if whole else 0.0


def _span(begin: str | None, end: str | None) -> int | None:
    if begin is None or end is None or not (begin.isdecimal() and end.isdecimal()):
        return None
    return int(end) - int(begin)
