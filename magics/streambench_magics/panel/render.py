"""A frame as HTML for the live panel; its style sheet is panel.css, and panel.js draws its canvases."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from html import escape
from typing import NamedTuple

from streambench.counts import counted
from streambench.debug.message_text import message_text
from streambench.debug.names import head_and_tail
from streambench.debug.view.bars import filled
from streambench.debug.view.panel_state import PanelState
from streambench.debug.view.rows import Row
from streambench.debug.view.step_lines import UNKNOWN_RULE
from streambench_magics.panel.elements import ask_box
from streambench_magics.panel.figures import (
    bytes_text,
    count_text,
    label,
    offset,
    place_of,
    short,
    short_place,
    with_short_names,
)
from streambench_magics.panel.stop_tabs import EXAMPLE
from streambench_magics.panel.strip import colour_number, partitions_in, sparkline, strip
from streambench_magics.panel.tabs import tabs_html

_FIELD = re.compile(r"(&quot;[^&\n]*&quot;:)")
_BLOCKED = ("held back", "gate closed")
_PLAIN = ("waiting", "caught up", "not fetched", "chosen", "busy")
_AT_ONCE = 120
"""More rows of inputs than this are not drawn at once: those are that are in sight, and some around them."""
_ABOVE = 40
_ROW_PX = 24
_FEW_ROWS = 4
_NO_RULE = {
    "busy": "the rule that chose it is known when the task has returned",
    "past": UNKNOWN_RULE,
    "": "at full speed no reasons are recorded: step to see them",
}
"""Per state, why there is no rule."""

_IN_BAR = 70
"""Characters for which the bar has room in most pages."""

_SIZED = 100
"""Bytes of a message from which on its size is named."""

_LEAST_WIDTH = {"position": 6, "lag": 3, "rate": 5}
"""Characters that the heads of the columns take, which are set smaller."""


class Button(NamedTuple):
    """``command``: what it puts on the queue. ``magic`` does the same. It can be pressed in these
    ``states``. ``keys``: those that press it while the panel has the focus. ``does``: the same in words."""

    command: str
    label: str
    magic: str
    states: frozenset[str]
    does: str
    before: str = ""
    after: str = ""
    keys: str = ""


_STILL = frozenset({"new", "paused", "stopped", "failed"})
_MOVING = frozenset({"running", "busy"})

BUTTONS = (
    Button(
        "back",
        "back",
        "%stream back",
        frozenset({"paused", "past", "failed"}),
        "one message back, with its state and outputs (key ←)",
        before="◀",
        keys="ArrowLeft",
    ),
    Button("forward", "forward", "%stream forward", frozenset({"past"}), "one message on, in the past"),
    Button(
        "step",
        "step",
        "%stream step",
        _STILL | {"past"},
        "process one message (keys → and space)",
        after="▶",
        keys="ArrowRight Space",
    ),
    Button("step 10", "step 10", "%stream step 10", _STILL | {"past"}, "process ten messages"),
)
"""The buttons of a panel that are always in their place."""

RUN = Button("run", "run", "%stream run", _STILL, "process until paused", after="▶▶")
PAUSE = Button(
    "pause",
    "pause",
    "%stream pause",
    _MOVING,
    "stand still after this message (space)",
    after="❚❚",
    keys="Space",
)
"""In one place: a job that moves can be paused, another one run."""

COMMIT = Button(
    "commit", "commit", "%stream commit", frozenset({"paused", "running"}), "commit all tasks now"
)
ABORT = Button("give up", "abort", "%stream stop --now", frozenset({"busy"}), "give this message up")
LIVE = Button(
    "live", "live", "%stream live", frozenset({"past"}), "return to the newest position", after="▶|"
)
"""In one place: abort while a task is busy with one message for long, live in the past, else commit."""


def panel_html(frame: PanelState, first_rows: Collection[int] = ()) -> str:
    """The live panel. ``first_rows``: for each of its views the number of the first row of the inputs that
    is in sight."""
    state, why = frame.state, escape(_why(frame))
    at_breakpoint = state == "paused" and frame.stopped_at.startswith("breakpoint")
    pill, cause = ("at a breakpoint", " sb-cause") if at_breakpoint else (state, "")
    last = {"busy": ABORT, "past": LIVE}.get(state, COMMIT)
    shown = (*BUTTONS, PAUSE if state in _MOVING else RUN, last)
    buttons = "".join(_button(each, frame) for each in shown)
    behind = "yes" if frame.behind else ""
    # Below few inputs there is room.
    below, beside = "", _message(frame)
    if len(frame.rows) <= _FEW_ROWS:
        below, beside = f'<div class="sb-under">{beside and f"<h4>Message</h4>{beside}"}</div>', ""
    return (
        f'<div class="sb-panel" data-state="{state}" role="group" aria-label="job {escape(frame.name)}">'
        f'<div class="sb-bar"><b title="{escape(frame.name)}">{escape(frame.name)}</b>'
        f'<span class="sb-pill sb-{state}" role="status">{pill}</span>'
        f'<span class="sb-why-still{cause}" title="{why}">{why}</span>'
        f'<span class="sb-buttons" role="group" aria-label="controls">{buttons}{_until_box(frame)}</span>'
        "</div>"
        f'<div class="sb-time"><span class="sb-dim">choices</span>{strip(frame)}'
        f'<span class="sb-num">{_message_number(frame)}{_rate(frame)}</span></div>'
        f'<div class="sb-grid"><div><h4>Inputs</h4><div class="sb-rows">{_inputs(frame, first_rows)}</div>'
        f"{below}</div><div>{_trouble(frame)}<h4>{_heading(frame)}</h4>{_why_this_one(frame)}{beside}</div>"
        "</div>"
        f"{tabs_html(frame)}"
        f'<div class="sb-foot"><span>{_covers(frame)}</span><span class="sb-grow"></span>'
        f"{_notice(frame)}"
        '<span class="sb-keys"><kbd>space</kbd> step <kbd>←</kbd> back</span><span class="sb-age" '
        f'data-behind="{behind}"></span></div></div>'
    )


def _notice(frame: PanelState) -> str:
    text, kind = frame.notice
    role = "alert" if kind == "failure" else "status"
    return f'<span class="sb-notice" data-kind="{kind}" role="{role}">{escape(text)}</span>'


def _button(button: Button, frame: PanelState) -> str:
    main = ' class="sb-main"' if button.command == "step" else ""
    keys = f' aria-keyshortcuts="{button.keys}"' if button.keys else ""
    # A screen reader would spell the signs out.
    before, after = (
        f'<span aria-hidden="true">{sign}</span>' if sign else "" for sign in (button.before, button.after)
    )
    standing = frame.standing
    # Of a job that has failed it is not known how far its history reaches.
    can_go_back = (
        frame.snapshot.processed > 0
        if standing is None
        else standing.oldest is not None and standing.position > standing.oldest
    )
    is_off = frame.state not in button.states or (button.command == "back" and not can_go_back)
    title = f"{button.does}{_not_now(button, frame) if is_off else ''}\n{button.magic}"
    return (
        f'<button type="button"{main} data-do="{button.command}" title="{title}"{keys}'
        f"{' disabled' if is_off else ''}>{before}{button.label}{after}</button>"
    )


def _not_now(button: Button, frame: PanelState) -> str:
    """The reason why a button cannot be pressed."""
    if frame.state == "past":
        return "; not in the past, live returns from it"
    if frame.state == "busy":
        return "; it is busy with a message, which abort gives up"
    if frame.state in _MOVING:
        return "; pause it first"
    if button.command == "forward":
        return "; this is the newest"
    return "; there is nothing before" if button.command == "back" else "; step starts it"


def _why(frame: PanelState) -> str:
    """Why it stands still; the number of the message has a place of its own."""
    return frame.stopped_at or frame.why.removeprefix(f"after message {frame.snapshot.processed:,}, ")


def _trouble(frame: PanelState) -> str:
    """Why it has failed, where it is stuck, or a long reason of a stop, in full: the bar cuts it, so that
    nothing moves."""
    why = _why(frame)
    if frame.state not in ("failed", "busy") and len(why) <= _IN_BAR:
        return ""
    return f'<div class="sb-trouble">{escape(why)}</div>'


def _rate(frame: PanelState) -> str:
    """Messages per second, now or while it ran last."""
    if len(frame.rates) < 4 and frame.rate is None:
        return ""
    line = sparkline(frame.rates, 0, "messages per second") if len(frame.rates) > 3 else ""
    said = "" if frame.rate is None else f"{short(frame.rate)}/s"
    return f'<span class="sb-rate-now">{said}{line}</span>'


def _heading(frame: PanelState) -> str:
    if not frame.is_pending:
        return "Why this one"
    return {"failed": "Failed at this one", "busy": "Busy with this one"}.get(
        frame.state, "Stopped before this one"
    )


def _until_box(frame: PanelState) -> str:
    title = f"a condition, such as {EXAMPLE}; Enter runs until it is true (%stream run --until)"
    box = ask_box("until", "run until…", title)
    return box if frame.state in _STILL else box.replace("<input", "<input disabled")


def _message_number(frame: PanelState) -> str:
    number = frame.snapshot.processed
    return f"message {number:,}" if number else '<span class="sb-dim">no message yet</span>'


def _inputs(frame: PanelState, first_rows: Collection[int]) -> str:
    if not frame.rows:
        return '<span class="sb-dim">no inputs are open</span>'
    columns = {
        "name": [f"■ {label(frame, row)}" for row in frame.rows],
        "position": [offset(row.position) for row in frame.rows],
        "lag": [count_text(row.lag) for row in frame.rows],
        "rate": [short(row.rate) for row in frame.rows],
        # The columns stay where they are when a place in the queue has a digit more.
        "tag": [
            f"next in {len(frame.snapshot.partitions)}",
            *(frame.status(row) for row in frame.rows if not row.folded),
        ],
    }
    widths = ";".join(
        f"--{name}:{max([_LEAST_WIDTH.get(name, 0), *map(len, texts)])}ch" for name, texts in columns.items()
    )
    cols = "".join(
        f'<col class="sb-col-{name}">' for name in ("name", "bar", "position", "lag", "rate", "tag")
    )
    figures = "".join(f'<th class="r sb-{name}">{name}</th>' for name in ("position", "lag"))
    head = (
        "<tr><th>partition</th>"
        '<th title="oldest message to newest; pale: processed since the last commit">oldest → newest</th>'
        f'{figures}<th class="r sb-rate">rate/s</th><th></th></tr>'
    )
    body = "".join(_rows_in_sight(frame, first_rows or (0,)))
    of_one_height = " data-height" if len(frame.rows) > _AT_ONCE else ""
    return f'<table style="{widths}"{of_one_height}><colgroup>{cols}</colgroup>{head}{body}</table>'


def _rows_in_sight(frame: PanelState, first_rows: Collection[int]) -> Iterator[str]:
    """The rows; of many, those around the first ones that are in sight, with blank space for the others."""
    begins = {max(0, min(each - _ABOVE, len(frame.rows) - _AT_ONCE)) for each in first_rows}
    left_out = 0
    for number, row in enumerate(frame.rows):
        if row.folded or any(begin <= number < begin + _AT_ONCE for begin in begins):
            yield _blank_rows(number - left_out, left_out)
            yield _input(frame, row, number)
            left_out = 0
        else:
            left_out += 1
    yield _blank_rows(len(frame.rows) - left_out, left_out)


def _blank_rows(first: int, number: int) -> str:
    if not number:
        return ""
    return (
        f'<tr class="sb-skip" data-row="{first}" data-rows="{number}" style="height:{number * _ROW_PX}px">'
        "<td></td></tr>"
    )


def _input(frame: PanelState, row: Row, number: int) -> str:
    status, colour = frame.status(row), colour_number(frame, row.stream, row.partition)
    held = bool(status) and not row.folded and row.turn is None and status not in _PLAIN
    is_chosen = status.startswith(("chose", "busy"))
    kind = "sb-won" if is_chosen else "sb-held" if held or status == "caught up" else ""
    tag = "sb-tag sb-gate" if held else "sb-tag sb-chosen" if status in ("chosen", "busy") else "sb-tag"
    status = with_short_names(frame, status)
    # Where it is narrow, "in 9" has to do.
    text = escape(status)
    if text.startswith("next in "):
        text = f'<span class="sb-next">next </span>{text.removeprefix("next ")}'
    said = f'<span class="{tag}" title="{escape(status)}">{text}</span>' if status else ""
    places = (
        f"oldest {offset(row.oldest)} · checkpoint {offset(row.checkpointed)} · "
        f"position {offset(row.position)} · upcoming {offset(row.upcoming)}"
    )
    title = f"{label(frame, row)}: {places} · {row.waiting:,} in memory"
    name = _name(frame, row, colour)
    # The partitions of a folded stream, and what is to be said of them, take the whole width below its name.
    first, parts = f"<td>{name}</td><td>{_bar(frame, row, colour)}</td>", ""
    if row.folded:
        kind = f"{kind} sb-fold"
        first = f'<td colspan="2">{name}</td>'
        cells = partitions_in(frame, row.stream, colour)
        parts = f'<tr class="sb-parts"><td><div>{cells}{escape(status)}</div></td></tr>'
    return (
        f'<tr class="{kind}" data-row="{number}" title="{escape(title)}">{first}'
        f'<td class="r sb-num sb-position">{escape(offset(row.position))}</td>'
        f'<td class="r sb-num sb-lag">{count_text(row.lag)}</td>'
        f'<td class="r sb-num sb-rate sb-dim">{short(row.rate)}</td>'
        f"<td>{'' if row.folded else said}</td></tr>{parts}"
    )


def _name(frame: PanelState, row: Row, colour: int) -> str:
    head, tail = head_and_tail(label(frame, row))
    # Where it is narrow the first part is cut, then the second one at its left, and the partition never.
    last, separator, partition = tail.rpartition(" · " if row.folded else ".")
    # Of a long first part room for the ellipsis stays.
    long = " sb-long" if len(head) > 2 else ""
    name = (
        f'<span class="sb-head{long}">{escape(head)}</span><span class="sb-tail">{escape(last)}</span>'
        f'<span class="sb-part">{escape(partition if row.folded else separator + partition)}</span>'
    )
    if row.folded:
        is_open = row.stream in frame.opened
        mark, expanded = ("▾", "true") if is_open else ("▸", "false")
        return (
            f'<a role="button" tabindex="0" aria-expanded="{expanded}" class="sb-name" '
            f'data-do="open {escape(str(row.stream))}">'
            f'<span class="sb-square sb-t{colour}">{mark}</span>{name}</a>'
        )
    return f'<span class="sb-name"><span class="sb-square sb-t{colour}">■</span>{name}</span>'


def _bar(frame: PanelState, row: Row, colour: int) -> str:
    """The part of a partition that is read; pale from its last checkpoint on."""
    position, checkpoint = filled(frame.snapshot, row)
    if position is None:
        return '<div class="sb-lane"></div>'
    committed = position if row.folded else min(position, checkpoint or 0.0)
    bar = f'<s class="sb-c{colour}" style="width:{committed:.1f}%"></s>'
    if committed < position:
        place = f"left:{committed:.1f}%;width:{position - committed:.1f}%"
        bar += f'<u class="sb-c{colour}" style="{place}"></u>'
    if 0 < position < 100:
        bar += f'<q style="left:{position:.1f}%"></q>'
    return f'<div class="sb-lane" role="img" aria-label="{position:.0f} % is read">{bar}</div>'


def _why_this_one(frame: PanelState) -> str:
    # A candidate that is blocked is shown as such.
    others = "".join(
        f"<div{' class=sb-late' if line.startswith(_BLOCKED) else ''}>{escape(line)}</div>"
        for line in (with_short_names(frame, each) for each in frame.others())
    )
    choice = frame.choice
    if choice is None:
        says = "Nothing was chosen yet: step chooses one message, and says here which rule decided."
        if frame.state == "busy":
            says = "It is not at a message, but at a window, a timer or a commit."
        return f'<div class="sb-why sb-dim">{says}{others}</div>'
    key = ""
    if choice.key is not None:
        said = escape(message_text(choice.key, 60))
        key = f' <span class="sb-dim">key</span> <span class="sb-num">{said}</span>'
    rule = (
        escape(with_short_names(frame, choice.rule))
        or f'<span class="sb-dim">{_NO_RULE.get(frame.state, _NO_RULE[""])}</span>'
    )
    return (
        f'<div class="sb-why"><b title="{escape(place_of(choice))}">'
        f"{escape(short_place(frame, choice))}</b>{key}<div>{rule}</div>"
        f'<div class="sb-dim">{others}</div></div>'
    )


def _message(frame: PanelState) -> str:
    """The message of the choice; nothing without one."""
    if frame.message is None or frame.choice is None:
        return ""
    # Above the message: behind a long one it would be out of sight.
    size = f'<div class="sb-dim sb-size">{bytes_text(frame.message.size)} as text</div>'
    shown = f'<div class="sb-msg">{_message_html(frame.message.text)}</div>'
    return (size if frame.message.size > _SIZED else "") + shown


def _message_html(text: str) -> str:
    """A message with the names of its fields paler than its values."""
    return _FIELD.sub(r'<span class="sb-dim">\1</span>', escape(text))


def _covers(frame: PanelState) -> str:
    shown, number = len(frame.snapshot.choices), (frame.live or frame.snapshot).processed
    partitions = counted(len(frame.snapshot.partitions), "partition")
    covered = f"strip: the last {shown} of {number:,} choices" if number > shown else "strip: all choices"
    standing = frame.standing
    if standing is None or standing.oldest is None or not standing.latest:
        return f"{covered} · {partitions}"
    reach = (
        f"{standing.oldest:,} to {standing.latest:,}"
        if standing.oldest
        else f"all {standing.latest:,} messages"
    )
    return f"history: {reach}, {bytes_text(standing.history_bytes)} · {covered} · {partitions}"
