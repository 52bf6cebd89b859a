"""Names and figures of a panel, as the text that a person reads."""

from __future__ import annotations

from streambench.container.observe.snapshot import Choice
from streambench.debug.names import middle_cut
from streambench.debug.view.panel_state import PanelState
from streambench.debug.view.rows import Row
from streambench.model import SystemStream

NAME = 46
"""Characters of a name where it stands in a sentence."""

_NAME_ALONE = 34

LONG = 24
"""Characters of a name where several stand in a sentence."""


def label(frame: PanelState, row: Row) -> str:
    """The name of a row; without the system where there is only one."""
    stream = stream_name(frame, row.stream)
    return f"{stream} · {row.folded:,} partitions" if row.folded else f"{stream}.{row.partition}"


def stream_name(frame: PanelState, stream: SystemStream) -> str:
    return stream.stream if frame.one_system else str(stream)


def with_short_names(frame: PanelState, text: str) -> str:
    """A text about inputs, with their long names cut."""
    for stream in frame.streams:
        if len(stream.stream) > LONG:
            text = text.replace(str(stream), middle_cut(stream_name(frame, stream), LONG))
    return text


def place_of(choice: Choice) -> str:
    """The message of a choice, in full."""
    return f"{choice.ssp}@{choice.offset}"


def short_place(frame: PanelState, choice: Choice) -> str:
    """The message of a choice, without the system where there is only one."""
    name = f"{stream_name(frame, choice.ssp.system_stream)}.{choice.ssp.partition}"
    return f"{middle_cut(name, _NAME_ALONE)} @ {choice.offset}"


def offset(value: str | None) -> str:
    """An offset, with separators where it is a number; a dash for None."""
    return "–" if value is None else f"{int(value):,}" if value.isdecimal() else value


def count_text(value: float | None) -> str:
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
