"""The page of a panel about state.

It shows the entries of the stores. Above them is what the last message changed, or the history of one key,
each change with its message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from streambench.counts import counted
from streambench.debug.effects.events import Change
from streambench.debug.message_text import message_text
from streambench.debug.names import middle_cut
from streambench.debug.view.entries import Entry
from streambench.debug.view.standing import KeyHistory, Standing
from streambench_magics.panel.elements import link, small_button, table
from streambench_magics.panel.figures import NAME
from streambench_magics.panel.strip import sparkline
from streambench_magics.panel.values import VALUE, before_and_after, record_html, value_html

_MOST_CHANGES = 20


def state_page(standing: Standing) -> tuple[str, str]:
    """The mark of its tab, and the page: the changes of the last message or of one key, and the entries."""
    changed = _changed(standing)
    if not (standing.entries.shown or standing.search):
        return "", (changed or '<div class="sb-dim">the stores are empty</div>')
    touched = {(each.task, each.store, message_text(each.key, VALUE)) for each in standing.changes}
    entries = "".join(
        f"<tr{' class=sb-won' if (each.task, each.store, message_text(each.key, VALUE)) in touched else ''}>"
        f'<td class="sb-dim sb-task">{escape(each.task)}</td><td>{escape(each.store)}</td>'
        f'<td class="sb-num sb-entry">{_key(standing, each)}</td>'
        f'<td class="sb-num sb-value">{record_html(each.value)}</td></tr>'
        for each in standing.entries.shown
    )
    search = (
        '<input class="sb-search" type="search" placeholder="search stores and keys" aria-label="search">'
    )
    more = "" if standing.entries.is_all else '<div class="sb-dim">there are more: search for a key</div>'
    head = '<tr><th class="sb-task">task</th><th>store</th><th>key</th><th>value</th></tr>'
    nothing = '<div class="sb-dim">no store or key has this in its name</div>'
    return (
        standing.state_mark,
        f'<div class="sb-two">{f"<div>{changed}</div>" if changed else ""}<div>{search}'
        f"{f'<table>{head}{entries}</table>' if entries else nothing}{more}</div></div>",
    )


def _changed(standing: Standing) -> str:
    if standing.key_history is not None:
        return key_history_html(standing, standing.key_history)
    rows = "".join(
        f"<tr><td>{escape(each.store)}</td>"
        f'<td class="sb-num sb-entry">{_key(standing, each)}</td>{before_and_after(each)}</tr>'
        for each in standing.changes[:_MOST_CHANGES]
    )
    if rows:
        left = len(standing.changes) - _MOST_CHANGES
        more = f'<div class="sb-dim">and {counted(left, "more change")}</div>' if left > 0 else ""
        changes = table(("store", "key", "before", "after"), rows)
        return f"<h4>Changed by message {standing.position:,}</h4>{changes}{more}"
    if standing.oldest is None or not standing.position:
        return ""
    return f'<div class="sb-dim">message {standing.position:,} changed no store</div>'


def _key(standing: Standing, of: Change | Entry) -> str:
    """A key; a click shows its history, where there is one."""
    shown = value_html(of.key)
    if standing.oldest is None:
        return shown
    return link(_pick(of), "its changes, and the messages that made them", shown)


def _pick(of: Change | Entry | KeyHistory) -> str:
    """The command that shows the history of a key, and that closes it again."""
    return f"key {json.dumps([of.task, of.store, message_text(of.key, VALUE)])}"


def key_history_html(standing: Standing, history: KeyHistory) -> str:
    """The changes of the key up to where the job stands, the newest first."""
    name = f"{history.store}[{message_text(history.key, VALUE)}]"
    rows = "".join(
        f"<tr{' class=sb-won' if each.position == standing.position else ''}>"
        f'<td class="r sb-num">'
        f"{link(f'goto {each.position}', f'%stream goto {each.position}', f'{each.position:,}')}</td>"
        f'<td class="sb-num sb-dim">{_message(each)}</td>'
        f"{before_and_after(each)}</tr>"
        for each in history.changes
    )
    left = history.count - len(history.changes)
    more = (
        f'<div class="sb-dim">and {left:,} older ones: %stream changed {escape(name)}</div>' if left else ""
    )
    changes = table(("message", "from", "before", "after"), rows, figures=("message",))
    nothing = '<div class="sb-dim">not changed up to here</div>'
    close = small_button(_pick(history), "close", "back to what this message changed")
    return (
        f'<div class="sb-key"><b class="sb-num">{escape(middle_cut(name, NAME))}</b>'
        f'<span class="sb-dim">{escape(history.task)} · {counted(history.count, "change")}</span>'
        f'{_line(history.changes)}<span class="sb-grow"></span>{close}</div>'
        f"{changes if rows else nothing}{more}"
    )


def _message(change: Change) -> str:
    return "" if change.ssp is None else escape(middle_cut(f"{change.ssp}@{change.offset}", NAME))


def _line(changes: Sequence[Change]) -> str:
    """The value over time, of records that of the first field that is a changing number."""
    values = [each.after for each in reversed(changes) if each.after is not None]
    names: list[Any] = [None]
    if values and all(isinstance(each, dict) for each in values):
        names = list(values[-1])
    for name in names:
        series = [each if name is None else each.get(name) for each in values]
        if len(series) > 1 and all(map(_is_number, series)) and len(set(series)) > 1:
            return sparkline(series, 0, "over its changes" if name is None else f"{name} over its changes")
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
