"""The effects of messages as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from streambench.counts import counted
from streambench.debug.effects.effects import Effects
from streambench.debug.effects.events import Change, Output
from streambench.debug.message_text import changed_text, short_text

_MOST_CHANGES = 8
_MOST_OUTPUTS = 5
_INDENT = " " * 8


def effect_lines(effects: Effects) -> list[str]:
    """The changes, outputs, windows and commits of a message, each in a line. Changes of more than one task
    name their task."""
    changes, outputs = effects.changes, effects.outputs
    several = len({each.task for each in changes}) > 1
    lines = [change_line(each, with_task=several) for each in changes[:_MOST_CHANGES]]
    lines += more_lines(len(changes) - _MOST_CHANGES, "change of state")
    lines += [output_line(each) for each in outputs[:_MOST_OUTPUTS]]
    lines += more_lines(len(outputs) - _MOST_OUTPUTS, "output")
    if effects.windows:
        lines.append(f"window() of {_listed(effects.windows)}")
    if effects.ends:
        lines.append(f"end_of_stream() of {_listed(effects.ends)}")
    if effects.committed:
        lines.append(f"committed: {_listed(effects.committed)}")
    return [f"{_INDENT}{line}" for line in lines]


def change_line(change: Change, *, with_task: bool = False) -> str:
    """A change as ``airports[ORD]  n 688 -> 689``."""
    place = f"{f'{change.task} ' if with_task else ''}{change.store}[{short_text(change.key)}]"
    return f"{place}  {changed_text(change.before, change.after)}"


def difference_lines(stores: Mapping[str, Mapping[str, Mapping[Any, tuple[Any, Any]]]]) -> list[str]:
    """The keys whose values differ, by task and store, each in a line. Several tasks are named."""
    several = len(stores) > 1
    # Of a difference only the values matter: the other fields of a change stay empty.
    return [
        change_line(Change(0, None, None, before, after, task, store, key), with_task=several)
        for task, of_task in stores.items()
        for store, keys in of_task.items()
        for key, (before, after) in keys.items()
    ]


def output_line(output: Output) -> str:
    """An output as ``-> log.late  {...}``."""
    notes = "".join(f"  {note}" for note in (output.source, output.held_text) if note)
    return f"-> {output.stream}  {short_text(output.message)}{notes}"


def summary_lines(effects: Sequence[Effects]) -> list[str]:
    """The effects of several messages together: keys changed per store, outputs per stream, commits."""
    keys: dict[str, dict[tuple[str, str], str]] = {}
    streams: dict[str, list[Output]] = {}
    for each in effects:
        for change in each.changes:
            # By the whole key: long ones may be alike where they are cut.
            keys.setdefault(change.store, {})[change.task, repr(change.key)] = short_text(change.key)
        for output in each.outputs:
            streams.setdefault(output.stream, []).append(output)
    lines = []
    for store, changed in keys.items():
        texts = {key: text for (_, key), text in changed.items()}
        tasks = Counter(key for _, key in changed)
        names = [
            texts[key] if count == 1 else f"{texts[key]} ({count:,} tasks)" for key, count in tasks.items()
        ]
        named = ", ".join(names[:_MOST_OUTPUTS]) + (", ..." if len(names) > _MOST_OUTPUTS else "")
        lines.append(f"{store}: {counted(len(changed), 'key')} changed: {named}")
    for stream, outputs in streams.items():
        held = sum(output.held for output in outputs)
        is_alike = len({output.held_text for output in outputs}) == 1
        note = "" if not held else f", {outputs[0].held_text}" if is_alike else f", {held:,} held"
        lines.append(f"-> {stream}: {counted(len(outputs), 'message')}{note}")
    windows = sum(len(each.windows) for each in effects)
    commits = sum(bool(each.committed) for each in effects)
    counts = ((windows, "call of window()"), (commits, "commit"))
    rest = [counted(count, what) for count, what in counts if count]
    return [f"{_INDENT}{line}" for line in [*lines, *([", ".join(rest)] if rest else [])]]


def more_lines(count: int, what: str = "") -> list[str]:
    """The line below the first ones of a list: how many more there are. None where there are no more."""
    more = counted(count, f"more {what}") if what else f"{count:,} more"
    return [f"... and {more}"] if count > 0 else []


def _listed(tasks: Sequence[str]) -> str:
    names = list(dict.fromkeys(tasks))
    return ", ".join(names) if len(names) <= 3 else f"{len(names):,} tasks"
