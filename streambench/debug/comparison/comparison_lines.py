"""A comparison of two versions as lines of text."""

from __future__ import annotations

from streambench.counts import counted
from streambench.debug.comparison.comparison import Comparison
from streambench.debug.effects.effect_lines import difference_lines, more_lines
from streambench.debug.message_text import short_text

_MOST_LINES = 5
_LONGEST = 200
_INDENT = " " * 8


def comparison_lines(comparison: Comparison, names: tuple[str, str]) -> list[str]:
    """The verdict, the first message at which the two differ, and counts, outputs and state side by side."""
    lines = [_verdict(comparison, names)]
    first, message = comparison.first, comparison.message
    if first is not None and message is not None:
        key = "" if message.key is None else f"  key {short_text(message.key)}"
        place = f"{first.position:>6,}  {message.ssp}@{message.offset}{key}"
        lines.append(f"{place}  {short_text(message.message)}")
    others = [_cut(str(each)) for each in comparison.differing[1:_MOST_LINES]]
    others += more_lines(len(comparison.differing) - _MOST_LINES)
    lines += [f"{_INDENT}{line}" for line in others]
    one, other = comparison.errors
    if one is not None and one == other:
        lines.append(f"{_INDENT}both fail: {_cut(one)}")
    lines += _side_by_side(comparison, names)
    changes = difference_lines(comparison.stores)
    if changes:
        lines.append(f"state at the end, {names[0]} -> {names[1]}: {differ(len(changes), 'key')}")
        shown = changes[:_MOST_LINES] + more_lines(len(changes) - _MOST_LINES)
        lines += [f"{_INDENT}{line}" for line in shown]
    return lines


def _verdict(comparison: Comparison, names: tuple[str, str]) -> str:
    if comparison.interrupted and not max(comparison.processed):
        return f"interrupted before the first message: nothing of {names[0]} and {names[1]} was compared"
    messages = counted(max(comparison.processed), "message")
    begin = "interrupted after " if comparison.interrupted else ""
    ran = f"{begin}{messages} through {names[0]} and {names[1]}"
    if comparison.order is not None:
        ran += f", chosen in another order from {comparison.order.position:,} on"
    if comparison.equal:
        return f"{ran}: equal" if comparison.errors == (None, None) else f"{ran}: equal, and both fail"
    differing = len(comparison.differing)
    if not differing:
        return f"{ran}: each message alike, but not the end"
    alike = min(comparison.processed) - sum(each.what != "error" for each in comparison.differing)
    return f"{ran}: {alike:,} alike, {differ(differing)}; first at {_cut(str(comparison.differing[0]))}"


def _side_by_side(comparison: Comparison, names: tuple[str, str]) -> list[str]:
    """The counts of messages and of outputs of the two, in columns."""
    rows = [("", *names)]
    processed = comparison.processed
    if processed[0] != processed[1]:
        rows.append(("processed", f"{processed[0]:,}", f"{processed[1]:,}"))
    rows += [(f"-> {stream}", f"{a:,}", f"{b:,}") for stream, (a, b) in comparison.counts.items()]
    if len(rows) == 1:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [f"{_INDENT}{row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}" for row in rows]


def differ(count: int, noun: str = "") -> str:
    """A number of things that differ: "1 differs", "3 keys differ"."""
    return f"{counted(count, noun) if noun else f'{count:,}'} {'differs' if count == 1 else 'differ'}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
