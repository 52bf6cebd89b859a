"""The pages of a panel about breakpoints and watches, with the boxes that add them."""

from __future__ import annotations

from html import escape

from streambench.debug.stopping.breakpoints import KINDS, Breakpoint
from streambench.debug.view.panel_state import PanelState
from streambench.debug.view.standing import Standing, Watched
from streambench_magics.panel.elements import ask_box, small_button, table

EXAMPLE = "message['delay'] > 180"


def breakpoints_page(frame: PanelState) -> tuple[str, str]:
    """The mark of its tab, and the page."""
    rows = "".join(map(_breakpoint, frame.breakpoints))
    listed = table(("id", "on", "condition", "hits", "", ""), rows, figures=("id", "hits"))
    listed = listed if rows else '<div class="sb-dim">no breakpoints</div>'
    said = f'<div class="sb-stopped">stopped: {escape(frame.stopped_at)}</div>' if frame.stopped_at else ""
    kinds = "".join(f"<option>{kind}</option>" for kind in KINDS)
    box = ask_box("break", "break where…", f"a condition, such as {EXAMPLE}; Enter adds the breakpoint")
    add = f'<div class="sb-add"><select class="sb-kind" aria-label="stop on">{kinds}</select>{box}</div>'
    return str(len(frame.breakpoints) or ""), said + add + listed


def watches_page(standing: Standing) -> tuple[str, str]:
    """The mark of its tab, and the page, of a job that stands still."""
    add = ask_box("watch", "NAME=EXPRESSION", f"such as delay={EXAMPLE.split(' >')[0]}; Enter adds the watch")
    rows = "".join(map(_watch, standing.watches))
    listed = table(("watch", "expression", "value", "", ""), rows)
    listed = listed if rows else '<div class="sb-dim">nothing is watched</div>'
    return standing.watches_mark, f'<div class="sb-add">{add}</div>{listed}'


def _breakpoint(each: Breakpoint) -> str:
    switch = "disable" if each.enabled else "enable"
    kind = "" if each.enabled else ' class="sb-held"'
    notes = " (once)" if each.once else f" (from hit {each.at_hit} on)" if each.at_hit > 1 else ""
    return (
        f'<tr{kind}><td class="r sb-num">{each.id}</td><td>{each.on}{notes}</td>'
        f'<td class="sb-num sb-value">{escape(str(each))}</td><td class="r sb-num">{each.hits:,}</td>'
        f"<td>{small_button(f'{switch} {each.id}', switch, f'{switch} breakpoint {each.id}')}</td>"
        f"<td>{small_button(f'remove {each.id}', 'remove', f'%stream break --remove {each.id}')}</td></tr>"
    )


def _watch(each: Watched) -> str:
    kind = ' class="sb-won"' if each.changed else ""
    changed = '<span class="sb-tag sb-chosen">changed</span>' if each.changed else ""
    name = escape(each.name)
    remove = small_button(f"unwatch {each.name}", "remove", f"%stream watch --remove {each.name}")
    return (
        f'<tr{kind}><td>{name}</td><td class="sb-num sb-value">{escape(each.expression)}</td>'
        f'<td class="sb-num sb-value">{escape(each.value)}</td><td>{changed}</td>'
        f"<td>{remove}</td></tr>"
    )
