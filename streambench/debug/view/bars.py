"""Figures as characters: bars, lines over time, and the last choices as letters. They need no colour."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from streambench.container.observe.snapshot import Choice, ContainerSnapshot
from streambench.debug.view.rows import Row
from streambench.model import SystemStream, SystemStreamPartition

_HEIGHTS = "▁▂▃▄▅▆▇█"
_LETTERS = 26

Lettered = SystemStream | SystemStreamPartition


class ChoiceLetter(NamedTuple):
    """A choice as a letter. ``number``: that of its stream or partition, from 0. ``committed``: a commit
    followed it."""

    letter: str
    number: int
    committed: bool


def choice_letters(
    choices: Sequence[Choice],
    commits: Collection[int],
    inputs: Iterable[SystemStreamPartition] = (),
    *,
    by_partition: bool,
) -> tuple[list[ChoiceLetter], dict[str, str]]:
    """A letter for each choice, by stream or by partition; and the name that each letter stands for.

    The order of ``inputs`` decides the letters, so that they are the same from one snapshot to the next.
    Those that are not among them follow in order of appearance."""
    known: dict[Lettered, int] = {}
    for ssp in sorted(inputs):
        known.setdefault(ssp if by_partition else ssp.system_stream, len(known))
    letters = []
    chosen: set[Lettered] = set()
    for choice in choices:
        of: Lettered = choice.ssp if by_partition else choice.ssp.system_stream
        number = known.setdefault(of, len(known))
        chosen.add(of)
        letters.append(ChoiceLetter(_letter(number), number, choice.number in commits))
    legend: dict[str, str] = {}
    for of in sorted(chosen, key=known.__getitem__):
        legend.setdefault(_letter(known[of]), str(of))
    return letters, legend


def bar(percent: float, width: int) -> str:
    """A part of a whole."""
    full = round(percent * width / 100)
    return "━" * full + "┄" * (width - full)


def line_over_time(values: Sequence[float], width: int) -> str:
    """Figures over time, the newest at the right."""
    shown = values[-width:]
    most = max(shown, default=0) or 1
    return "".join(_HEIGHTS[min(7, int(8 * value / most))] for value in shown)


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


def _letter(number: int) -> str:
    return chr(ord("A") + number % _LETTERS)


def _percent(part: int, whole: int) -> float:
    return max(0.0, min(100.0, 100 * part / whole)) if whole else 0.0


def _span(begin: str | None, end: str | None) -> int | None:
    if begin is None or end is None or not (begin.isdecimal() and end.isdecimal()):
        return None
    return int(end) - int(begin)
