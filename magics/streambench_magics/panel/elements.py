"""Parts of the pages of a panel: tables, and what is pressed or typed, which ``panel.js`` sends."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def table(columns: Sequence[str], rows: str, *, figures: Sequence[str] = ()) -> str:
    """A table of these rows. ``figures``: the columns that stand at the right."""
    right = {name: ' class="r"' for name in figures}
    heads = "".join(f"<th{right.get(name, '')}>{name}</th>" for name in columns)
    return f"<table><tr>{heads}</tr>{rows}</table>"


def link(command: str, title: str, shown: str) -> str:
    """A text that sends a command when it is pressed. ``shown``: as HTML."""
    return (
        f'<a role="button" tabindex="0" data-do="{escape(command)}" title="{escape(title)}">{shown}</a>'
    )


def ask_box(command: str, hint: str, title: str) -> str:
    """A box: Enter sends what is typed as the value of a command."""
    return (
        f'<input class="sb-ask" data-ask="{command}" placeholder="{escape(hint)}" title="{escape(title)}" '
        f'aria-label="{escape(hint)}" spellcheck="false" autocomplete="off">'
    )


def small_button(command: str, label: str, title: str, confirm: str = "") -> str:
    """A button in a table. ``confirm``: its label after the first click, where a second one is needed."""
    second = f' data-confirm="{escape(confirm)}" data-label="{escape(label)}"' if confirm else ""
    return (
        f'<button type="button" class="sb-small" data-do="{escape(command)}" title="{escape(title)}"{second}>'
        f"{escape(label)}</button>"
    )
