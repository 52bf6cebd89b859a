"""A panel where nothing is live: a table of HTML, and text.

It is read in JupyterLab, VS Code, exported pages and on GitHub, where no style is left. Letters and block
characters say what the colours say.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from operator import attrgetter

from msgspec.structs import replace

from streambench.debug.message_text import message_text
from streambench.debug.names import middle_cut
from streambench.debug.view.bars import choice_letters, filled
from streambench.debug.view.panel_state import PanelState
from streambench.debug.view.rows import Row, rows
from streambench.debug.view.view import snapshot_table
from streambench_magics.panel.figures import count_text, label, offset, place_of, with_short_names
from streambench_magics.panel.strip import COLOURS, colour_number
from streambench_magics.tables import as_text

# Of a sign beside the text: no colour can be read as text both on white and on the black of dark themes.
_STATE_COLOURS = {"running": "#2e7d32", "paused": "#b26a00", "failed": "#c62828"}
_CELL = "padding:1px 8px 1px 0;white-space:nowrap"
_NAME = 34
_BAR = 20
_CHOICES = 60
_COLUMNS = (
    ("partition", "left"),
    ("oldest · position · newest", "left"),
    ("position", "right"),
    ("lag", "right"),
    ("checkpoint", "right"),
    ("status", "left"),
)

_OUTPUT = ".jp-OutputArea-child"
_HIDING = (
    # Without its model JupyterLab puts an error in the widget's place.
    f"{_OUTPUT}:has(+ {_OUTPUT} .sb-stand-in):not(:has(.sb-root)),"
    f"{_OUTPUT}:has(.sb-root) + {_OUTPUT}:has(.sb-stand-in){{display:none}}"
)


def table_html(frame: PanelState, note: str = "") -> str:
    """The table: elements and inline styles are all that untrusted notebooks and most viewers let through."""
    head = "".join(
        f'<th align="{side}" style="{_CELL};text-align:{side}">{name}</th>' for name, side in _COLUMNS
    )
    colour = _STATE_COLOURS.get(frame.state)
    sign = f'<span style="color:{colour}">&#9679;</span> ' if colour else ""
    body = "".join(_row(frame, number) for number in range(len(rows(frame.snapshot))))
    others = [escape(with_short_names(frame, line)) for line in frame.others()]
    return (
        f"<div><div><b>{escape(frame.name)}</b> · {sign}<b>{frame.state}</b>"
        f"{f' · {escape(frame.why)}' if frame.why else ''}</div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + _choices(frame)
        + "".join(f"<div><small>{line}</small></div>" for line in others)
        + (f"<pre>{escape(frame.message.text)}</pre>" if frame.message is not None else "")
        + (f"<div><small>{escape(note)}</small></div>" if note else "")
        + "</div>"
    )


def hidden_table_html(frame: PanelState, model_id: str, note: str) -> str:
    """The table of a live panel: in JupyterLab only one of the two is to be seen, the widget if it is there.
    Elsewhere the widget itself hides the table that has its id."""
    table = table_html(frame, note)
    return f'<div class="sb-stand-in" data-panel="{model_id}"><style>{_HIDING}</style>{table}</div>'


def text(frame: PanelState) -> str:
    """The text of a terminal, and of a notebook where nothing else can be shown."""
    # In the past, the last of the snapshot's choices is another one than that of the message.
    choices = () if frame.choice is None else (frame.choice,)
    shown = replace(frame.snapshot, job=frame.name, reason=frame.why, choices=choices)
    table = as_text(snapshot_table(shown))
    return table if frame.message is None else f"{table}\nmessage: {frame.message.line}"


def _row(frame: PanelState, number: int) -> str:
    row = rows(frame.snapshot)[number]
    colour = COLOURS[colour_number(frame, row.stream, row.partition)]
    status = escape(with_short_names(frame, frame.status(row)))
    name = label(frame, row)
    values = (
        f'<span style="color:{colour}">&#9632;</span> {escape(middle_cut(name, _NAME))}',
        f'<span style="color:{colour}">{_bar(frame, row)}</span>',
        escape(offset(row.position)),
        count_text(row.lag),
        escape(offset(row.checkpointed)),
        f"<b>{status}</b>" if status == "chosen" else status,
    )
    cells = "".join(
        f'<td align="{side}" style="text-align:{side};'
        f'{_CELL if side == "right" or at < 2 else _CELL.replace("nowrap", "normal")}">{value}</td>'
        for at, ((_, side), value) in enumerate(zip(_COLUMNS, values, strict=True))
    )
    return f"<tr>{cells}</tr>"


def _bar(frame: PanelState, row: Row) -> str:
    """The part of a partition that is read, paler from its last checkpoint on, and what is left. Blank where
    there is nothing to read: it would look like a partition of which nothing is read."""
    position, checkpoint = filled(frame.snapshot, row)
    if position is None or (not position and row.lag == 0):
        return ""
    committed = position if row.folded else min(position, checkpoint or 0.0)
    solid, read = (round(percent * _BAR / 100) for percent in (committed, position))
    return "█" * solid + "▒" * (read - solid) + "░" * (_BAR - read)


def _choices(frame: PanelState) -> str:
    """The last choices, a letter for each stream (or partition), with a bar after each commit; and the last
    one in words."""
    choices = frame.snapshot.choices
    if not choices:
        return ""
    inputs = (each.ssp for each in frame.snapshot.partitions)
    shown = choices[-_CHOICES:]
    letters, legend = choice_letters(shown, frame.commits, inputs, by_partition=frame.one_stream)
    line = "".join(
        f'<span style="background:{COLOURS[number % len(COLOURS)]};color:#000">'
        f"{''.join(each.letter + '|' * each.committed for each in run)}</span>"
        for number, run in groupby(letters, attrgetter("number"))
    )
    meant = ", ".join(f"{letter} {middle_cut(name, _NAME)}" for letter, name in list(legend.items())[:8])
    said, last = "", frame.choice
    if last is not None:
        key = "" if last.key is None else f" key {message_text(last.key, 60)}"
        rule = f": {with_short_names(frame, last.rule)}" if last.rule else ""
        what = "busy with" if frame.busy else f"message {last.number:,}:"
        said = f"{what} {place_of(last)}{key}{rule}"
    return (
        f"<div>the last choices: <code>{line}</code> <small>{escape(meant)}"
        f"{', | a commit' if frame.commits else ''}</small></div><div>{escape(said)}</div>"
    )
