"""A picture as HTML for the live panel (its style sheet is panel.css), as a table that needs neither kernel nor style sheet, as text."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from msgspec.structs import replace

from streambench.chooser.explanation import Candidate, closed
from streambench.container.snapshot import Choice, ContainerSnapshot, PartitionSnapshot
from streambench.debug.view import Row, counted, snapshot_table
from streambench.model import SystemStream
from streambench_magics.picture import Picture, to_do_again
from streambench_magics.tables import as_text, message_text

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#d4a017", "#9c755f", "#e377a2")
_STATE_COLOURS = {"running": "#2e7d32", "paused": "#b26a00", "failed": "#c62828"}
_PLAIN = ("waiting", "empty", "chosen")
_MOST_TASKS = 6
_MOST_COUNTS = 8


class Button(NamedTuple):
    """``command``: what it puts on the queue. ``magic`` does the same. It can be pressed in these ``states``."""

    command: str
    label: str
    magic: str
    states: frozenset[str]


_STILL = frozenset({"new", "paused", "stopped", "failed"})

BUTTONS = (
    Button("step", "step ▶", "%stream step", _STILL),
    Button("step 10", "step 10", "%stream step 10", _STILL),
    Button("run", "run ▶▶", "%stream run", _STILL),
    Button("pause", "pause", "%stream pause", frozenset({"running"})),
    Button("commit", "commit", "%stream commit", frozenset({"paused", "running"})),
)
"""The buttons of a panel."""


def panel_html(picture: Picture) -> str:
    """The live panel."""
    colours = _colour_numbers(picture)
    state, why = picture.state, escape(picture.why)
    buttons = "".join(_button(each, state) for each in BUTTONS)
    behind = "yes" if picture.behind else ""
    return (
        f'<div class="sb-panel" data-state="{state}">'
        f'<div class="sb-bar"><b>{escape(picture.name)}</b><span class="sb-pill sb-{state}">{state}</span>'
        f'<span class="sb-why-still" title="{why}">{why}</span>{buttons}</div>'
        f'<div class="sb-time"><span class="sb-dim">choices</span><div class="sb-strip">{_strip(picture, colours)}</div>'
        f'<span class="sb-num">{_message_number(picture)}</span></div>'
        f'<div class="sb-grid"><div><h4>Inputs</h4><div class="sb-rows">{_inputs(picture, colours)}</div></div>'
        f"<div><h4>Why this one</h4>{_why_this_one(picture)}</div></div>"
        f'<div class="sb-grid sb-below"><div><h4>Checkpoints</h4>{_checkpoints(picture.snapshot)}</div>'
        f"<div><h4>Counts</h4>{_counts(picture.snapshot)}</div></div>"
        f'<div class="sb-foot"><span>{_covers(picture)}</span><span class="sb-grow"></span>'
        f'<span class="sb-notice">{escape(picture.notice)}</span><span class="sb-age" data-behind="{behind}"></span></div></div>'
    )


def table_html(picture: Picture, note: str = "") -> str:
    """A table for where nothing is live: tables and inline styles are all that untrusted notebooks and most viewers let through."""
    colours = {stream: _COLOURS[number % len(_COLOURS)] for stream, number in _colour_numbers(picture).items()}
    cell = "padding:1px 8px 1px 0;white-space:nowrap"
    columns = (("partition", "left"), ("oldest · position · newest", "left"), ("position", "right"), ("lag", "right"), ("status", "left"))
    head = "".join(f'<th style="{cell};text-align:{side}">{name}</th>' for name, side in columns)
    body = []
    for row in picture.rows:
        colour = colours[row.stream]
        position, _ = _places(picture.snapshot, row)
        filled = "" if position is None else f'<div style="width:{position:.0f}%;height:8px;background-color:{colour}"></div>'
        values = (
            (f'<span style="color:{colour}">&#9632;</span> {escape(_label(picture, row))}', "left"),
            (f'<div style="width:160px;height:8px;background-color:#dfe3e8">{filled}</div>', "left"),
            (_offset(row.position), "right"),
            (_figure(row.lag), "right"),
            (escape(_status(picture, row)), "left"),
        )
        body.append("<tr>" + "".join(f'<td style="{cell};text-align:{side}">{value}</td>' for value, side in values) + "</tr>")
    state = f'<span style="color:{_STATE_COLOURS.get(picture.state, "#6a737d")};font-weight:bold">{picture.state}</span>'
    last = ""
    if picture.snapshot.choices:
        choice = picture.snapshot.choices[-1]
        last = f"<div>message {choice.number:,}: {escape(_place(choice))}{escape(': ' + choice.rule if choice.rule else '')}</div>"
    last += "".join(f'<div style="color:#6a737d">{escape(line)}</div>' for line in _others(picture))
    return (
        f"<div><div><b>{escape(picture.name)}</b> {state} {escape(picture.why)}</div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{last}"
        + (f'<div style="color:#6a737d">{escape(note)}</div>' if note else "")
        + "</div>"
    )


def text(picture: Picture) -> str:
    """The text of a terminal, and of a notebook where nothing else can be shown."""
    return as_text(snapshot_table(replace(picture.snapshot, job=picture.name, reason=picture.why)))


def _button(button: Button, state: str) -> str:
    main = ' class="sb-main"' if button.command == "step" else ""
    off = "" if state in button.states else " disabled"
    return f'<button type="button"{main} data-do="{button.command}" title="{button.magic}"{off}>{button.label}</button>'


def _strip(picture: Picture, colours: dict[SystemStream, int]) -> str:
    ticks = []
    for choice in picture.snapshot.choices:
        colour = colours.get(choice.ssp.system_stream, 0) % len(_COLOURS)
        foot = " sb-commit" if (choice.ssp, choice.offset) in picture.commits else ""
        told = f"{choice.number:,}: {_place(choice)}" + (f", {choice.rule}" if choice.rule else "") + (", committed" if foot else "")
        ticks.append(f'<i class="sb-c{colour}{foot}" title="{escape(told)}"></i>')
    return "".join(ticks)


def _message_number(picture: Picture) -> str:
    number = picture.snapshot.processed
    rate = "" if picture.rate is None else f' <span class="sb-dim">· {_short(picture.rate)}/s</span>'
    return (f"message {number:,}" if number else '<span class="sb-dim">no message yet</span>') + rate


def _inputs(picture: Picture, colours: dict[SystemStream, int]) -> str:
    if not picture.rows:
        return '<span class="sb-dim">no inputs are open</span>'
    figures = "".join(f'<th class="r">{name}</th>' for name in ("position", "lag", "rate/s"))
    head = f"<tr><th>partition</th><th>oldest · position · newest</th>{figures}<th></th></tr>"
    return f"<table>{head}{''.join(_input(picture, row, colours[row.stream] % len(_COLOURS)) for row in picture.rows)}</table>"


def _input(picture: Picture, row: Row, colour: int) -> str:
    status = _status(picture, row)
    held = not row.folded and row.turn is None and status not in _PLAIN
    kind = "sb-won" if status == "chosen" else "sb-held" if held or status == "empty" else ""
    position, checkpoint = _places(picture.snapshot, row)
    bar = ""
    if position is not None:
        bar = f'<s class="sb-c{colour}" style="width:{position:.1f}%"></s>'
        if checkpoint is not None:
            bar += f'<em style="left:{checkpoint:.1f}%" title="checkpoint: {_offset(row.checkpointed)}"></em>'
        if 0 < position < 100:
            bar += f'<q style="left:{position:.1f}%"></q>'
    name = escape(_label(picture, row))
    if row.folded:
        mark = "▾" if row.stream in picture.opened else "▸"
        name = f'<a role="button" tabindex="0" data-do="open {escape(str(row.stream))}">{mark} {name}</a>'
    tag = "sb-tag sb-gate" if held else "sb-tag"
    title = (
        f"oldest {_offset(row.oldest)} · position {_offset(row.position)} · upcoming {_offset(row.upcoming)} · {row.waiting:,} in memory"
    )
    return (
        f'<tr class="{kind}" title="{escape(title)}"><td><span class="sb-t{colour}">■</span> {name}</td>'
        f'<td><div class="sb-lane">{bar}</div></td>'
        f'<td class="r sb-num">{_offset(row.position)}</td><td class="r sb-num">{_figure(row.lag)}</td>'
        f'<td class="r sb-num sb-dim">{_short(row.rate)}</td>'
        f'<td><span class="{tag}" title="{escape(status)}">{escape(status)}</span></td></tr>'
    )


def _why_this_one(picture: Picture) -> str:
    others = "".join(f"<div>{escape(line)}</div>" for line in _others(picture))
    if not picture.snapshot.choices:
        says = "Nothing was chosen yet: step chooses one message, and says here which rule decided."
        return f'<div class="sb-why sb-dim">{says}{others}</div>'
    choice = picture.snapshot.choices[-1]
    key = ""
    if choice.key is not None:
        key = f' <span class="sb-dim">key</span> <span class="sb-num">{escape(message_text(choice.key, 60))}</span>'
    rule = escape(choice.rule) or '<span class="sb-dim">at full speed nobody asks the chooser for its reasons: step to see them</span>'
    message = f'<div class="sb-msg">{escape(picture.message)}</div>' if picture.message is not None else ""
    return (
        f'<div class="sb-why"><b>{escape(_short_place(picture, choice))}</b>{key}<div>{rule}</div>'
        f'<div class="sb-dim">{others}</div></div>{message}'
    )


def _others(picture: Picture) -> list[str]:
    """Who else there was when the last message was chosen, who was held back and by what; and that the gate is closed."""
    snapshot = picture.snapshot
    why = snapshot.choices[-1].explanation if snapshot.choices else None
    others = why.others(lambda candidate: _short_name(picture, candidate)) if why is not None else []
    return [*others, *closed(snapshot.gate)]


def _short_name(picture: Picture, candidate: Candidate) -> str:
    """As it prints, without the system where there is only one."""
    one_system = len({each.system for each in picture.streams}) == 1
    return str(candidate).removeprefix(f"{candidate.ssp.system}.") if one_system else str(candidate)


def _checkpoints(snapshot: ContainerSnapshot) -> str:
    by_task: dict[str, list[PartitionSnapshot]] = {}
    for each in snapshot.partitions:
        for task in each.tasks:
            by_task.setdefault(task, []).append(each)
    if not by_task:
        return '<span class="sb-dim">none yet</span>'
    lines = [(task, to_do_again(parts)) for task, parts in by_task.items()]
    if len(lines) > _MOST_TASKS:
        lines = [(f"{len(lines)} tasks", to_do_again(snapshot.partitions))]
    body = "".join(f'<tr><td>{escape(task)}</td><td class="r sb-num">{_figure(again)}</td></tr>' for task, again in lines)
    return f'<table><tr><th>task</th><th class="r">messages to do again after a crash now</th></tr>{body}</table>'


def _counts(snapshot: ContainerSnapshot) -> str:
    told = [(name, value) for name, value in snapshot.counts.items() if value and name != "processed"][:_MOST_COUNTS]
    if not told:
        return '<span class="sb-dim">nothing was sent or dropped, no timer has fired</span>'
    body = "".join(f'<tr><td>{escape(name)}</td><td class="r sb-num">{value:,.0f}</td></tr>' for name, value in told)
    return f"<table>{body}</table>"


def _covers(picture: Picture) -> str:
    shown, number = len(picture.snapshot.choices), picture.snapshot.processed
    partitions = counted(len(picture.snapshot.partitions), "partition")
    strip = f"the last {shown} of {number:,} choices" if number > shown else "all choices"
    return f"{strip} · {partitions}"


def _colour_numbers(picture: Picture) -> dict[SystemStream, int]:
    return {stream: number for number, stream in enumerate(picture.streams)}


def _status(picture: Picture, row: Row) -> str:
    choices = picture.snapshot.choices
    if choices and not row.folded and choices[-1].ssp.system_stream == row.stream and choices[-1].ssp.partition == row.partition:
        return "chosen"
    return row.standing


def _places(snapshot: ContainerSnapshot, row: Row) -> tuple[float | None, float | None]:
    """Where, in percent of a partition (or of all of a stream), the position and the checkpoint are; None where offsets are no numbers."""
    if row.folded:
        parts = [each for each in snapshot.partitions if each.ssp.system_stream == row.stream and each.lag is not None]
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


def _label(picture: Picture, row: Row) -> str:
    stream = row.stream.stream if len({each.system for each in picture.streams}) == 1 else str(row.stream)
    return f"{stream} · {row.folded} partitions" if row.folded else f"{stream}.{row.partition}"


def _place(choice: Choice) -> str:
    return f"{choice.ssp}@{choice.offset}" + ("" if choice.key is None else f" key {message_text(choice.key, 60)}")


def _short_place(picture: Picture, choice: Choice) -> str:
    one_system = len({each.system for each in picture.streams}) == 1
    return f"{choice.ssp.stream if one_system else choice.ssp.system_stream}.{choice.ssp.partition} @ {choice.offset}"


def _offset(value: str | None) -> str:
    return "–" if value is None else f"{int(value):,}" if value.isdecimal() else escape(value)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _short(value: float | None) -> str:
    """A rate in three or four characters."""
    if value is None:
        return "–"
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{unit}"
    return f"{value:.0f}"
