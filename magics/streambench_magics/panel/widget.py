"""The widget of the live panel: one trait, the HTML of a frame. Imported only when a panel is shown, since it
needs anywidget."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets
from ipywidgets import Widget

_HERE = Path(__file__).parent


class PanelWidget(anywidget.AnyWidget):
    """Shows what Python drew, and sends what was pressed as ``{"do": ...}``."""

    # Not as paths: anywidget would watch the files, and keep each widget for that for good.
    _esm = (_HERE / "panel.js").read_text("utf-8")
    _css = (_HERE / "panel.css").read_text("utf-8")
    html = traitlets.Unicode("").tag(sync=True)
    panel = traitlets.Unicode("").tag(sync=True)
    """Its own id: a view in the page does not know it otherwise."""

    def __init__(self, html: str) -> None:
        # Zero instead of None has the page count the views.
        super().__init__(html=html, _view_count=0)
        self.panel = self.model_id

    def __repr__(self) -> str:
        return "PanelWidget()"

    def close_tree(self) -> None:
        """Close it together with the widgets that it is made of; ``close`` alone would leave its layout
        behind for good."""
        parts = [value for value in (getattr(self, name) for name in self.keys) if isinstance(value, Widget)]
        # Else the page, when it takes the last view away, would want to report the count to a widget that is
        # gone.
        self._view_count = None
        self.close()
        for part in parts:
            part.close()
