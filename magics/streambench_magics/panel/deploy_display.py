"""The display of ``%stream deploy``: one output that changes, and shows the containers on Spark."""

from __future__ import annotations

from html import escape
from typing import Any

from streambench.cli.deploy_display import DeployDisplay
from streambench.spark.progress_view import COLUMNS, FIGURES, ProgressView, view_of
from streambench.spark.result import DeployProgress
from streambench_magics.panel.panel import show
from streambench_magics.tables import Records

_EVERY_S = 0.5
_BAR_CELLS = 30


def deploy_display(title: str) -> DeployDisplay:
    """The display of a deployment below the cell that runs now. At the end its last frame stays."""
    return DeployDisplay(NotebookScreen(title), _EVERY_S)


class NotebookScreen:
    """An output of a cell that changes in its place."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._handle: Any = None
        self._shown: dict[str, str] = {}

    def start(self) -> None:
        """Take the place from here on."""
        self._shown = {"text/plain": self._title, "text/html": f"<div><b>{escape(self._title)}</b></div>"}
        self._handle = show(self._shown, display_id=True)

    def put(self, progress: DeployProgress | None, since_s: float) -> None:
        """Show a frame in the place of the one before."""
        if progress is None:
            return
        view = view_of(progress, since_s)
        if progress.stage == "ended" and not progress.failed:
            view = ProgressView(view.title, view.part, view.lines, ())  # the result has the containers
        shown = {"text/plain": _text(self._title, view), "text/html": _html(self._title, view)}
        if shown != self._shown:
            self._shown = shown
            self._handle.update(shown, raw=True)

    def stop(self, *, failed: bool) -> None:
        """Leave the last frame in its place."""


def _records(view: ProgressView) -> Records:
    return Records(COLUMNS, view.rows, right=FIGURES, note=view.more)


def _text(title: str, view: ProgressView) -> str:
    bar = [] if view.part is None else [f"{_bar(view.part)} {int(view.part * 100)} %"]
    lines = [f"{title}, {view.title}", *bar, *view.lines]
    return "\n".join([*lines, repr(_records(view))] if view.rows else lines)


def _bar(part: float) -> str:
    full = int(part * _BAR_CELLS)
    return "█" * full + "░" * (_BAR_CELLS - full)


def _html(title: str, view: ProgressView) -> str:
    bar = ""
    if view.part is not None:
        bar = (
            f'<div><progress max="100" value="{view.part * 100:.1f}" '
            f'aria-label="messages processed"></progress> {int(view.part * 100)} %</div>'
        )
    lines = "".join(f"<div>{escape(line)}</div>" for line in view.lines)
    table = _records(view)._repr_html_() if view.rows else ""
    return f"<div><b>{escape(title)}</b>, {escape(view.title)}{bar}{lines}{table}</div>"
