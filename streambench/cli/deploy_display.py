"""The display of a deployment in a terminal: the containers live, or plain lines where there is no screen.

The view itself is made in ``streambench.spark``, which is imported only with a first progress. The display
begins before, because that import takes seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import structs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from streambench.spark.progress_view import ProgressView
    from streambench.spark.result import DeployProgress

_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.25
_BAR_WIDTH = 40
_STYLES = {"failed": "red", "done": "green", "waiting": "dim"}
# Lines of a screen that a display needs beside its rows.
_OTHER_LINES = 10
_MOST_NOTES = 3


class Screen(Protocol):
    """A place to show a progress on. ``since_s``: how long ago it was so."""

    def start(self) -> None: ...

    def put(self, progress: DeployProgress | None, since_s: float) -> None: ...

    def stop(self, *, failed: bool) -> None: ...


class DeployDisplay:
    """The latest progress, shown again every few seconds with the time that has passed, also while none
    comes: Spark starts meanwhile.

    Between two rounds nothing is shown. The screen is used by one thread at a time."""

    def __init__(self, screen: Screen, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._every_s = every_s
        self._now = now
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._latest: DeployProgress | None = None
        self._came = self._shown = now()
        self._thread = threading.Thread(target=self._repeat, name="streambench-deploy-display", daemon=True)

    def __enter__(self) -> DeployDisplay:
        self._came = self._now()
        self._screen.start()
        self._put()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        if kind is not None and self._latest is not None and self._latest.stage == "running":
            seconds = self._latest.seconds + self._now() - self._came  # as it was shown last, and on
            self.show(structs.replace(self._latest, stage="stopped", seconds=seconds))
        self._screen.stop(failed=kind is not None)

    def show(self, progress: DeployProgress) -> None:
        """Take a newer progress. What is new in kind is shown at once."""
        with self._lock:
            before, self._latest, self._came = self._latest, progress, self._now()
        if _is_news(before, progress) or self._now() - self._shown >= self._every_s:
            self._put()

    def _repeat(self) -> None:
        while not self._ended.wait(max(0.05, self._shown + self._every_s - self._now())):
            if not _is_over(self._latest) and self._now() - self._shown >= self._every_s:
                self._put()

    def _put(self) -> None:
        with self._lock:
            self._shown = self._now()
            since_s = 0.0 if _is_over(self._latest) else self._shown - self._came
            self._screen.put(self._latest, since_s)


def _is_over(progress: DeployProgress | None) -> bool:
    return progress is not None and progress.stage in ("ended", "stopped")


def _is_news(before: DeployProgress | None, now: DeployProgress) -> bool:
    """True at another stage, and where a container has failed or was started again."""
    return before is None or any(
        getattr(before, name) != getattr(now, name) for name in ("job", "round", "stage", "failed", "retried")
    )


def deploy_display(console: Console) -> DeployDisplay:
    """The display for a console: a table that changes in a terminal, else a line every few seconds."""
    if console.is_terminal:
        return DeployDisplay(LiveScreen(console), _LIVE_EVERY_S)
    return DeployDisplay(PlainScreen(lambda line: print(line, flush=True)), _PLAIN_EVERY_S)


class PlainScreen:
    """Lines, one after the other; failures and new attempts have lines of their own."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._before: DeployProgress | None = None

    def start(self) -> None:
        """Do nothing: lines need no preparation."""

    def put(self, progress: DeployProgress | None, since_s: float) -> None:
        """Write a line."""
        if progress is None:
            self._write("planning")  # without a time: that of the round begins only now
            return
        from streambench.spark.progress_view import event_lines, line_of

        for line in event_lines(self._before, progress):
            self._write(line)
        self._before = progress
        self._write(line_of(progress, since_s))

    def stop(self, *, failed: bool) -> None:
        """Do nothing: the lines stay."""


class LiveScreen:
    """A part of the terminal that changes. It goes when the deployment has ended well, since the result
    follows; where it has not, the last frame stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(Text(""), console=console, auto_refresh=False, transient=True)

    def start(self) -> None:
        """Take the place from here on."""
        self._live.start()

    def put(self, progress: DeployProgress | None, since_s: float) -> None:
        """Show a frame in the place of the one before."""
        if progress is None:
            frame: RenderableType = Text("planning", style="dim")
        else:
            from streambench.spark.progress_view import view_of

            room = max(1, self._console.size.height - _OTHER_LINES)
            frame = frame_of(view_of(progress, since_s, room))
        self._live.update(frame, refresh=True)

    def stop(self, *, failed: bool) -> None:
        """Leave the place to what follows."""
        self._live.transient = not failed
        self._live.stop()


def _style(row: dict[str, str]) -> str:
    return _STYLES.get(row["state"].partition(",")[0], "")


def frame_of(view: ProgressView) -> RenderableType:
    """A view, for a terminal."""
    from streambench.spark.progress_view import COLUMNS, FIGURES, named

    parts: list[RenderableType] = [Text(named(view.job, view.title), style="bold")]
    if view.part is not None:
        bar = Table.grid(padding=(0, 1))
        percent = Text(f"{int(view.part * 100)} %")
        bar.add_row(ProgressBar(total=1.0, completed=view.part, width=_BAR_WIDTH), percent)
        parts.append(bar)
    parts += [Text(line) for line in view.lines]
    if view.rows:
        *columns, said = COLUMNS
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in columns:
            table.add_column(column, justify="right" if column in FIGURES else "left", no_wrap=True)
        for row in view.rows:
            table.add_row(*(Text(row[column]) for column in columns), style=_style(row))
        parts.append(table)
        # Below the table: beside the figures, a long error would leave them no room.
        notes = [row for row in view.rows if row[said]]
        for row in notes[:_MOST_NOTES]:
            parts.append(Text(f"container {row['container']}: {row[said]}", style=_style(row)))
        if len(notes) > _MOST_NOTES:
            parts.append(Text(f"and {len(notes) - _MOST_NOTES:,} more containers failed or are silent"))
    if view.more:
        parts.append(Text(view.more, style="dim"))
    return Group(*parts)
