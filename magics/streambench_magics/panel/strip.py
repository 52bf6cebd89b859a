"""Colours, and what the page draws on canvases: the strip of choices, the partitions of a folded stream,
figures over time. It is plain data here; ``panel.js`` draws it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from streambench.container.observe.snapshot import PartitionSnapshot
from streambench.debug.message_text import message_text
from streambench.debug.view.panel_state import PanelState
from streambench.model import SystemStream
from streambench_magics.panel.figures import place_of

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#d4a017", "#9c755f", "#e377a2")
"""The colours of the streams, and of the partitions where there is one stream."""

_MANY = 60
"""More partitions of a folded stream than this are drawn in several rows, a pixel each."""

_SPOKEN = 6
"""Streams whose choices are counted for a screen reader."""

ROOM = 160
"""The number of choices that the strip has room for."""

_LEAST_ROOM = 40
"""The first choices are drawn as wide as if there were so many."""

_MOST_LANES = 12
_LANES = "0123456789ab"


def colour_number(frame: PanelState, stream: SystemStream, partition: int | None) -> int:
    """The colour of a stream; of a partition where there is one stream."""
    if frame.one_stream:
        return (partition or 0) % len(COLOURS)
    return frame.streams.index(stream) % len(COLOURS) if stream in frame.streams else 0


def strip(frame: PanelState) -> str:
    """The last choices: one mark each, coloured, with a foot where a commit followed."""
    choices = frame.snapshot.choices[-ROOM:]
    numbers = {stream: number for number, stream in enumerate(frame.streams)}
    lanes = len(frame.snapshot.partitions) if frame.one_stream else len(frame.streams)
    if lanes > _MOST_LANES:
        lanes = 1
    ticks, titles = [], []
    for choice in choices:
        of_stream = numbers.get(choice.ssp.system_stream, 0)
        lane = choice.ssp.partition if frame.one_stream else of_stream
        ticks.append(_LANES[lane % (len(COLOURS) if lanes == 1 else lanes)])
        key = "" if choice.key is None else f" key {message_text(choice.key, 60)}"
        rule = f", {choice.rule}" if choice.rule else ""
        mark = ", then a commit" if choice.number in frame.commits else ""
        titles.append(f"{choice.number:,}: {place_of(choice)}{key}{rule}{mark}".replace("\n", " "))
    first = choices[0].number if choices else 0
    counts = Counter(choice.ssp if frame.one_stream else choice.ssp.system_stream for choice in choices)
    spoken = ", ".join(f"{count} of {name}" for name, count in counts.most_common(_SPOKEN))
    commits = ",".join(str(number - first) for number in sorted(frame.commits) if number >= first)
    said, room = escape("\n".join(titles)), max(_LEAST_ROOM, len(choices))
    standing = frame.standing
    at = "" if standing is None or standing.is_live else f' data-at="{standing.position - first}"'
    goes = ' role="img"'
    if standing is not None and standing.oldest is not None:
        goes = (
            f' data-goes="{standing.oldest}" data-latest="{standing.latest}" data-now="{standing.position}" '
            f'role="slider" tabindex="0" aria-valuemin="{standing.oldest}" aria-valuemax="{standing.latest}" '
            f'aria-valuenow="{standing.position}" '
            f'aria-valuetext="message {standing.position:,} of {standing.latest:,}"'
        )
    held = " data-held" if frame.last_is_pending else ""
    return (
        f'<canvas class="sb-strip" data-draw="strip" data-room="{room}" data-first="{first}" '
        f'aria-label="the last {len(choices)} choices: {escape(spoken or "none")}" '
        f'data-lanes="{lanes}" data-ticks="{"".join(ticks)}" '
        f'data-commits="{commits}" data-titles="{said}"{at}{goes}{held}></canvas>'
    )


def partitions_in(frame: PanelState, stream: SystemStream, colour: int) -> str:
    """All partitions of a stream side by side: each filled to its position."""
    parts = sorted(
        (each for each in frame.snapshot.partitions if each.ssp.system_stream == stream),
        key=lambda each: each.ssp.partition,
    )
    levels = "".join(map(_level, parts))
    many = " sb-many" if len(parts) > _MANY else ""
    said = f"{sum(each.lag == 0 for each in parts):,} of {len(parts):,} partitions are read to their end"
    return (
        f'<canvas class="sb-cells{many}" role="img" aria-label="{said}" title="{said}" data-draw="cells" '
        f'data-colour="{colour}" '
        f'data-levels="{levels}"></canvas>'
    )


def sparkline(values: Sequence[float], colour: int, title: str) -> str:
    """Figures over time, the newest at the right."""
    joined = ",".join(f"{value:.0f}" for value in values)
    return (
        f'<canvas class="sb-spark" data-draw="spark" data-colour="{colour}" data-values="{joined}" '
        f'role="img" aria-label="{escape(title)}" title="{escape(title)}"></canvas>'
    )


def _level(each: PartitionSnapshot) -> str:
    """The part of a partition that is read, 0 to 9; "e" where it is empty, "u" where that is unknown."""
    if each.oldest is None or each.oldest == each.upcoming:
        return "e"
    if (
        each.lag is None
        or each.upcoming is None
        or not (each.oldest.isdecimal() and each.upcoming.isdecimal())
    ):
        return "u"
    length = int(each.upcoming) - int(each.oldest)
    return str(int(9 * max(0, length - each.lag) / length)) if each.lag else "9"
