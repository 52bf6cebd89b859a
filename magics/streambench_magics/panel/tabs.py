"""The lower half of a panel: pages of which the reader picks one, without asking the kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from streambench.container.observe.snapshot import PartitionSnapshot
from streambench.counts import counted
from streambench.debug.effects.events import Output
from streambench.debug.message_text import figure_text
from streambench.debug.names import middle_cut
from streambench.debug.view.kept_commits import KeptCommit
from streambench.debug.view.panel_state import PanelState, to_do_again
from streambench.debug.view.standing import Standing
from streambench_magics.panel.elements import link, small_button, table
from streambench_magics.panel.figures import LONG, count_text, short
from streambench_magics.panel.state_tab import state_page
from streambench_magics.panel.stop_tabs import breakpoints_page, watches_page
from streambench_magics.panel.strip import sparkline
from streambench_magics.panel.values import value_html

_MOST_TASKS = 40
_MOST_KINDS = 3
_MOST_COUNTS = 40
_CLOSED = {
    "new": "the job has not started: step starts it",
    "failed": "the job has failed: back shows how it was before; correct the task, then step",
    "stopped": "the job is stopped and its stores are closed: step starts it again",
}
"""Per state, why there is nothing to see of the stores."""

_WHEN_BUSY = "the task is busy with one message; pause waits for its end, abort gives it up"


class Tab(NamedTuple):
    """A page: ``mark`` stands behind its name: a count, and for screen readers what is counted. ``kept``: the
    page has nothing to show while the job moves, but may stay as it was, with this line above it."""

    name: str
    mark: str
    html: str
    kept: str = ""


def tabs_html(frame: PanelState) -> str:
    """The tabs and their pages; the first one is shown until another is picked."""
    pages = [
        *_standing(frame),
        _checkpoints(frame),
        _metrics(frame),
        _watches(frame),
        Tab("Breakpoints", *breakpoints_page(frame)),
    ]
    heads = "".join(
        f'<button type="button" role="tab" data-tab="{each.name.lower()}">'
        f"{each.name}{_mark(each.mark)}</button>"
        for each in pages
    )
    bodies = "".join(
        f'<div class="sb-page" role="tabpanel" aria-label="{each.name}" data-page="{each.name.lower()}"'
        f"{_kept_as(each.kept)}>{each.html}</div>"
        for each in pages
    )
    return f'<div class="sb-tabs" role="tablist">{heads}</div><div class="sb-pages">{bodies}</div>'


def _kept_as(note: str) -> str:
    return f' data-still="{escape(note)}"' if note else ""


def _kept_note(frame: PanelState) -> str:
    """The line above a page that stays as it was."""
    why = _WHEN_BUSY if frame.busy else "pause it to see it now"
    return f"as it was when the job last stood still: {why}"


def _not_seen(frame: PanelState) -> str:
    """Why a page of a job that moves has nothing to show, where there is nothing from before."""
    return f"not read yet: {_WHEN_BUSY}" if frame.busy else "pause it to see this"


def _watches(frame: PanelState) -> Tab:
    if frame.standing is None:
        still = f'<div class="sb-dim">{_CLOSED.get(frame.state) or _not_seen(frame)}</div>'
        return Tab("Watches", "", still, "" if frame.state in _CLOSED else _kept_note(frame))
    return Tab("Watches", *watches_page(frame.standing))


def _mark(mark: str) -> str:
    """A mark in a place of its own, so that a tab is as wide without one."""
    count, _, what = mark.partition(" ")
    said = f'<span class="sb-said"> {what}</span>' if what else ""
    shown = f"<span>{count}</span>{said}" if count else ""
    return f'<span class="sb-mark" title="{escape(mark)}">{shown}</span>'


def _standing(frame: PanelState) -> list[Tab]:
    """The pages that only a job that stands still has."""
    said = _CLOSED.get(frame.state) or _not_seen(frame)
    if frame.state == "failed" and not frame.snapshot.processed:
        said = "the job has failed at its first message: correct the task, then step"
    if frame.standing is None:
        kept = "" if frame.state in _CLOSED else _kept_note(frame)
        still = f'<div class="sb-dim">{said}</div>'
        return [Tab("State", "", still, kept), Tab("Outputs", "", still, kept)]
    mark, page = state_page(frame.standing)
    if frame.state == "failed":
        page = f'<div class="sb-kept">{said}</div>{page}'
    return [Tab("State", mark, page), _outputs(frame.standing)]


def _outputs(standing: Standing) -> Tab:
    # The newest first; those of the message that it stands at are marked.
    rows = "".join(
        f"<tr{' class=sb-won' if each.position == standing.position else ''}>"
        f'<td class="r sb-num">{each.position:,}</td><td class="sb-num" title="{escape(each.stream)}">'
        f"{escape(middle_cut(each.destination, LONG))}</td>"
        f'<td class="sb-num">{"" if each.key is None else value_html(each.key)}</td>'
        f'<td class="sb-num sb-value">{value_html(each.message)}</td>'
        f"<td>{f'<span class=sb-tag>{each.held_text}</span>' if each.held else ''}</td>"
        f'<td class="sb-num">{_cause(standing, each)}</td></tr>'
        for each in reversed(standing.outputs)
    )
    if not rows:
        return Tab("Outputs", "", '<span class="sb-dim">the last messages sent nothing</span>')
    columns = ("message", "to", "key", "output", "", "made from")
    return Tab("Outputs", standing.outputs_mark, table(columns, rows, figures=("message",)))


def _cause(standing: Standing, output: Output) -> str:
    """The message that an output was made from, or the callback that sent it. A click goes there."""
    position, cause = output.position, standing.cause(output)
    if not cause:
        return ""
    shown = escape(middle_cut(cause, LONG))
    return link(f"goto {position}", f"{cause}\n%stream goto {position}", shown)


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
        lines = [(counted(len(lines), "task"), to_do_again(snapshot.partitions))]
    body = "".join(
        f'<tr><td>{escape(task)}</td><td class="r sb-num">{count_text(again)}</td></tr>'
        for task, again in lines
    )
    again = to_do_again(snapshot.partitions)
    what = "to do again after a crash now"
    tasks = table(("task", what), body, figures=(what,))
    mark = "" if not again else f"{short(again)} to do again"
    return Tab("Checkpoints", mark, f'<div class="sb-two">{tasks}{_commits(frame)}</div>')


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
    figures = ("behind message", "processed since")
    return table(("commit", "", *figures), body, figures=figures)


def _kept(commits: Sequence[KeptCommit]) -> str:
    """The commits that are kept. A rewind needs a second click."""
    body = "".join(
        f'<tr><td class="sb-num">{each.name}</td>'
        f'<td class="sb-num">{time.strftime("%H:%M:%S", time.localtime(each.time_ms / 1000))}</td>'
        f'<td class="sb-dim"><time data-at="{each.time_ms}"></time></td>'
        f'<td class="r sb-num">{count_text(each.again)}</td>'
        f"<td>{small_button(f'rewind {each.name}', 'rewind', f'%stream rewind {each.name}', 'really?')}</td>"
        "</tr>"
        for each in commits
    )
    return table(("commit", "at", "", "to do again", ""), body, figures=("to do again",))


def _line(name: str, value: str, most: str, line: str) -> str:
    figures = f'<b class="sb-num">{value}</b> <span class="sb-dim">{most}</span>'
    return f"<div><h4>{name}</h4>{figures}<br>{line}</div>"


def _figures(figures: Sequence[tuple[str, float]], nothing: str = "") -> str:
    """Figures by their groups; ``nothing``: what there is without any."""
    groups: dict[str, list[str]] = {}
    for name, value in figures[:_MOST_COUNTS]:
        group, _, metric = name.rpartition(".")
        groups.setdefault(group, []).append(
            f'<tr title="{escape(name)}"><td>{escape(metric)}</td>'
            f'<td class="r sb-num">{escape(figure_text(value))}</td></tr>'
        )
    counts = "".join(
        f"<div><h4>{escape(group)}</h4><table>{''.join(rows)}</table></div>" for group, rows in groups.items()
    )
    counts = counts or (f'<span class="sb-dim">{nothing}</span>' if nothing else "")
    return f'<div class="sb-groups">{counts}</div>' if counts else ""


def _metrics(frame: PanelState) -> Tab:
    snapshot = frame.snapshot
    lines = ""
    if len(frame.rates) > 1:
        most = f"{short(max(frame.rates))}/s at most"
        name, rate = ("rate", f"{short(frame.rate)}/s")
        if frame.rate is None:
            name, rate = "rate while it ran", f"{short(frame.rates[-1])}/s"
        lines = _line(name, rate, most, sparkline(frame.rates, 0, "messages per second"))
        most = f"{count_text(max(frame.lags))} at most"
        lines += _line("lag", count_text(snapshot.lag), most, sparkline(frame.lags, 1, "messages left"))
        lines = f'<div class="sb-lines">{lines}</div>'
    figures = frame.figures
    nothing = "nothing was sent or dropped, no timer has fired" if figures.counts is None else ""
    counts = _figures(figures.shown(snapshot.counts), nothing)
    if figures.to_run:
        button = small_button("metrics", "show them", "%stream metrics")
        counts += f'<p class="sb-dim">{figures.run_note} {button}</p>'
    if unknown := figures.unknown(snapshot.counts):
        counts += f'<div class="sb-dim"><p>{figures.newest_note}</p>{_figures(unknown)}</div>'
    kinds = snapshot.error_counts.details()
    ignored = "".join(f"<div>{escape(line)}</div>" for line in kinds[:_MOST_KINDS])
    return Tab(
        "Metrics", counted(len(kinds), "kind") + " of errors" if kinds else "", lines + counts + ignored
    )
