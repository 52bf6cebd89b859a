"""The lower half of a panel: pages of which the reader picks one, without asking the kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from streambench.container.observe.snapshot import PartitionSnapshot
from streambench.counts import counted
from streambench.debug.events import Change
from streambench.debug.kept_commits import KeptCommit
from streambench.debug.message_text import message_text
from streambench.debug.names import middle_cut
from streambench.debug.panel_state import PanelState, to_do_again
from streambench.debug.standing import Standing
from streambench_magics.figures import NAME, figure, short
from streambench_magics.stop_tabs import breakpoints_page, small_button, watches_page
from streambench_magics.strip import sparkline

_MOST_TASKS = 40
_MOST_KINDS = 3
_MOST_COUNTS = 40
_MOST_CHANGES = 20
_VALUE = 120
_NONE = object()
_CLOSED = {
    "new": "the job has not started: step starts it",
    "failed": "the job has failed: back shows how it was before; correct the task, then step",
    "stopped": "the job is stopped and its stores are closed: step starts it again",
}
"""Per state, why there is nothing to see of the stores."""


class Tab(NamedTuple):
    """A page: ``mark`` stands behind its name (a count)."""

    name: str
    mark: str
    html: str


def tabs_html(frame: PanelState) -> str:
    """The tabs and their pages; the first one is shown until another is picked."""
    pages = [
        *_standing(frame),
        _checkpoints(frame),
        _metrics(frame),
        Tab("Watches", *watches_page(frame)),
        Tab("Breakpoints", *breakpoints_page(frame)),
    ]
    heads = "".join(
        f'<button type="button" role="tab" data-tab="{each.name.lower()}">{each.name}'
        f"{f' · {each.mark}' if each.mark else ''}</button>"
        for each in pages
    )
    bodies = "".join(
        f'<div class="sb-page" role="tabpanel" aria-label="{each.name}" data-page="{each.name.lower()}">'
        f"{each.html}</div>"
        for each in pages
    )
    return f'<div class="sb-tabs" role="tablist">{heads}</div><div class="sb-pages">{bodies}</div>'


def _standing(frame: PanelState) -> list[Tab]:
    """The pages that only a job that stands still has."""
    if frame.standing is None:
        said = _CLOSED.get(frame.state, "pause it to see this")
        if frame.state == "failed" and not frame.snapshot.processed:
            said = "the job has failed at its first message: correct the task, then step"
        still = f'<span class="sb-dim">{said}</span>'
        return [Tab("State", "", still), Tab("Outputs", "", still)]
    return [_state(frame.standing), _outputs(frame.standing)]


def _state(standing: Standing) -> Tab:
    changed = "".join(
        f'<tr><td>{escape(each.store)}</td><td class="sb-num">{_value(each.key)}</td>'
        f'<td class="sb-num sb-before">{before}</td><td class="sb-num sb-after">{after}</td></tr>'
        for each in standing.changes[:_MOST_CHANGES]
        for before, after in [_before_and_after(each)]
    )
    if changed:
        changed = (
            "<table><tr><th>store</th><th>key</th><th>before</th><th>after</th></tr>"
            f"{changed}</table>{_left_out(len(standing.changes), _MOST_CHANGES, 'changes')}"
        )
    elif standing.oldest is not None and standing.position:
        changed = '<div class="sb-dim">this message changed no store</div>'
    if not (standing.entries.shown or standing.search):
        return Tab("State", "", changed or '<div class="sb-dim">the stores are empty</div>')
    touched = {(each.task, each.store, message_text(each.key, _VALUE)) for each in standing.changes}
    entries = "".join(
        f"<tr{' class=sb-won' if (each.task, each.store, message_text(each.key, _VALUE)) in touched else ''}>"
        f'<td class="sb-dim">{escape(each.task)}</td><td>{escape(each.store)}</td>'
        f'<td class="sb-num">{_value(each.key)}</td>'
        f'<td class="sb-num sb-value">{_record(each.value)}</td></tr>'
        for each in standing.entries.shown
    )
    search = (
        '<input class="sb-search" type="search" placeholder="search stores and keys" aria-label="search">'
    )
    more = "" if standing.entries.is_all else '<div class="sb-dim">there are more: search for a key</div>'
    head = "<tr><th>task</th><th>store</th><th>key</th><th>value</th></tr>"
    nothing = '<div class="sb-dim">no store or key has this in its name</div>'
    return Tab(
        "State",
        f"{len(standing.changes)} changed" if standing.changes else "",
        f'<div class="sb-two">{f"<div>{changed}</div>" if changed else ""}<div>{search}'
        f"{f'<table>{head}{entries}</table>' if entries else nothing}{more}</div></div>",
    )


def _outputs(standing: Standing) -> Tab:
    rows = "".join(
        f"<tr{' class=sb-won' if each.position == standing.position else ''}>"
        f'<td class="r sb-num">{each.position:,}</td><td title="{escape(each.stream)}">'
        f"{escape(middle_cut(each.stream, NAME))}"
        f"{'' if each.partition is None else f'.{each.partition}'}</td>"
        f'<td class="sb-num">{"" if each.key is None else _value(each.key)}</td>'
        f'<td class="sb-num sb-value">{_value(each.message)}</td>'
        f"<td>{'<span class=sb-tag>held until the commit</span>' if each.held else ''}</td>"
        f"<td>{_cause(standing, each.position)}</td></tr>"
        for each in reversed(standing.outputs)
    )
    if not rows:
        return Tab("Outputs", "", '<span class="sb-dim">the last messages sent nothing</span>')
    head = (
        '<tr><th class="r">message</th><th>to</th><th>key</th><th>output</th>'
        "<th></th><th>made from</th></tr>"
    )
    new = f"{standing.new_outputs} new" if standing.new_outputs else ""
    return Tab("Outputs", new, f"<table>{head}{rows}</table>")


def _cause(standing: Standing, position: int) -> str:
    """The message that an output was made from: a click goes there."""
    cause = standing.causes.get(position)
    if cause is None:
        return ""
    return (
        f'<a role="button" tabindex="0" class="sb-num" data-do="goto {position}" '
        f'title="%stream goto {position}">{escape(middle_cut(cause, NAME))}</a>'
    )


def _before_and_after(change: Change) -> tuple[str, str]:
    """The two values; of two records, the fields that differ."""
    before, after = change.before, change.after
    if isinstance(before, dict) and isinstance(after, dict):
        names = [*before, *(name for name in after if name not in before)]
        differing = [name for name in names if before.get(name, _NONE) != after.get(name, _NONE)]
        if differing:
            return _fields(before, differing), _fields(after, differing)
    return ("–" if before is None else _record(before)), ("–" if after is None else _record(after))


def _record(value: Any) -> str:
    """A value; a record without records in it as its fields."""
    is_flat = isinstance(value, dict) and not any(isinstance(each, dict | list) for each in value.values())
    return _fields(value, list(value)) if is_flat and value else _value(value)


def _fields(record: Mapping[Any, Any], names: Sequence[Any]) -> str:
    """Some fields of a record, as ``late 171 · n 688``; they are not cut where the line may break."""
    shown = [f"{name} {message_text(record[name], _VALUE)}" for name in names if name in record]
    return " · ".join(escape(each) for each in shown) or "–"


def _value(value: Any) -> str:
    return escape(message_text(value, _VALUE))


def _left_out(number: int, most: int, what: str) -> str:
    return f'<div class="sb-dim">and {number - most:,} more {what}</div>' if number > most else ""


def _checkpoints(frame: PanelState) -> Tab:
    snapshot = frame.live or frame.snapshot
    by_task: dict[str, list[PartitionSnapshot]] = {}
    for each in snapshot.partitions:
        for task in each.tasks:
            by_task.setdefault(task, []).append(each)
    if not by_task:
        return Tab("Checkpoints", "", '<span class="sb-dim">none yet</span>')
    lines = [(task, to_do_again(parts)) for task, parts in by_task.items()]
    if len(lines) > _MOST_TASKS:
        lines = [(f"{len(lines)} tasks", to_do_again(snapshot.partitions))]
    body = "".join(
        f'<tr><td>{escape(task)}</td><td class="r sb-num">{figure(again)}</td></tr>' for task, again in lines
    )
    again = to_do_again(snapshot.partitions)
    head = '<tr><th>task</th><th class="r">to do again after a crash now</th></tr>'
    return Tab(
        "Checkpoints",
        "" if not again else f"{again:,} to do again",
        f'<div class="sb-two"><table>{head}{body}</table>{_commits(frame)}</div>',
    )


def _commits(frame: PanelState) -> str:
    """The commits that are kept, the newest first, each with a button; while it runs, those that were seen.
    Their ages are worked out in the page."""
    if frame.standing is not None and frame.standing.commits:
        return _kept(frame.standing.commits)
    if not frame.last_commits:
        return '<span class="sb-dim">no commit since the job started</span>'
    processed = (frame.live or frame.snapshot).processed
    body = "".join(
        f'<tr><td class="sb-num">{time.strftime("%H:%M:%S", time.localtime(each.time_ms / 1000))}</td>'
        f'<td class="sb-dim"><time data-at="{each.time_ms}"></time></td>'
        f'<td class="r sb-num">{each.number:,}</td>'
        f'<td class="r sb-num">{processed - each.number:,}</td></tr>'
        for each in reversed(frame.last_commits)
    )
    head = (
        '<tr><th>commit</th><th></th><th class="r">behind message</th><th class="r">processed since</th></tr>'
    )
    return f"<table>{head}{body}</table>"


def _kept(commits: Sequence[KeptCommit]) -> str:
    """The commits that are kept. A rewind needs a second click."""
    def rewind(name: str) -> str:
        return small_button(f"rewind {name}", "rewind", f"%stream rewind {name}", "really?")

    body = "".join(
        f'<tr><td class="sb-num">{each.name}</td>'
        f'<td class="sb-num">{time.strftime("%H:%M:%S", time.localtime(each.time_ms / 1000))}</td>'
        f'<td class="sb-dim"><time data-at="{each.time_ms}"></time></td>'
        f'<td class="r sb-num">{figure(each.again)}</td>'
        f"<td>{rewind(each.name)}</td></tr>"
        for each in commits
    )
    head = '<tr><th>commit</th><th>at</th><th></th><th class="r">to do again</th><th></th></tr>'
    return f"<table>{head}{body}</table>"


def _metrics(frame: PanelState) -> Tab:
    snapshot = frame.snapshot
    lines = ""
    if len(frame.rates) > 1:
        rate = f"rate {short(frame.rate)}/s" if frame.rate is not None else "rate while it ran"
        lines = (
            '<div class="sb-lines">'
            f"<div>{rate}{sparkline(frame.rates, 0, 'messages per second')}"
            f'<span class="sb-dim">{short(max(frame.rates))}/s at most</span></div>'
            f"<div>lag {figure(snapshot.lag)}{sparkline(frame.lags, 1, 'messages left')}"
            f'<span class="sb-dim">{figure(max(frame.lags))} at most</span></div></div>'
        )
    figures = [(name, value) for name, value in snapshot.counts.items() if value and name != "processed"][
        :_MOST_COUNTS
    ]
    body = "".join(
        f'<tr><td>{escape(name)}</td><td class="r sb-num">{value:,.0f}</td></tr>' for name, value in figures
    )
    counts = (
        f"<table>{body}</table>"
        if body
        else '<span class="sb-dim">nothing was sent or dropped, no timer has fired</span>'
    )
    kinds = snapshot.error_counts.details()
    ignored = "".join(f"<div>{escape(line)}</div>" for line in kinds[:_MOST_KINDS])
    return Tab(
        "Metrics", counted(len(kinds), "kind") + " of errors" if kinds else "", lines + counts + ignored
    )
