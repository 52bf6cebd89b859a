"""The live panel of a job: two threads between the job and a widget.

The *painter* takes a snapshot a few times a second, and passes it to the widget where it differs from the
last one. Only the painter writes to the widget, and it always ends with a snapshot of the final state. The
*worker* executes what the buttons ask for, one after the other. A button's callback only puts a word on a
queue, since it may run on any thread.

A cell with a panel has two outputs: the widget, and below it a table that is hidden while the widget lives.
The painter keeps the table fresh too, since a kernel that dies cannot leave one. When a panel is closed, the
table stays.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Literal, cast

from IPython import display as ipython
from msgspec.structs import replace

from streambench.debug.control.session import Session
from streambench.debug.stopping.breakpoints import Kind
from streambench.debug.stopping.conditions import named_expression
from streambench.debug.view.panel_state import Notice, PanelState, PanelStateReader, static_view
from streambench.errors import TaskError, described
from streambench.model import SystemStream
from streambench.wording import speaking
from streambench_magics.jobs.jobs import Job
from streambench_magics.jobs.rewinding import rewind_and_start
from streambench_magics.panel.frozen import hidden_table_html, table_html, text
from streambench_magics.panel.render import ABORT, panel_html

log = logging.getLogger(__name__)

STOPPED = "as it was when the job was stopped"
"""The note below the panel of a job that was stopped."""

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_STARTING = frozenset(["step", "run", "until"])
"""Commands that start a job that has ended."""

_SCROLLED = re.compile(r"row (\d{1,9}) (\w{1,20})")
_VIEWS = 8
_FRAME_S = 0.25
_IDLE_S = 1.0
"""Seconds between two looks at a job that stands still: others may write to its inputs."""
_SOONEST_S = 0.1
_JOIN_S = 5.0
_TABLE_S = 5.0
"""Seconds between two drawings of the table while a job runs."""


class Panel:
    """A panel on the screen, from ``open`` to ``close``."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.widget: Any = None
        self.frames = 0
        self._viewer = PanelStateReader(job)
        self._commands: SimpleQueue[str | None] = SimpleQueue()
        self._wake = threading.Event()
        self._done = threading.Event()
        self._pause_asked = threading.Event()
        self._hidden = self._is_rewinding = self._is_working = False
        self._shows_metrics = False
        self._first_rows: dict[str, int] = {}
        """By view, the last one that was scrolled at the end."""
        self._closing = threading.Lock()
        self._notice = Notice()
        self._notice_at: object = None
        """The position of the job when the notice was shown first; None before that."""
        self._frame: PanelState
        """The last one that could be drawn."""
        self._view: Any = None
        self._handle: Any = None
        self._table_s = 0.0
        self._pages: set[str] = set()
        self._threads = [
            threading.Thread(target=self._paint_on, name=f"streambench painter {job.name}", daemon=True),
            threading.Thread(target=self._work, name=f"streambench buttons {job.name}", daemon=True),
        ]

    @property
    def is_open(self) -> bool:
        return self.widget is not None

    @property
    def reloaded(self) -> bool:
        """True once its page was loaded again: JupyterLab then cannot put the table in its place."""
        return len(self._pages) > 1

    def open(self) -> None:
        """Show it below the cell that runs now. Raises ImportError where anywidget is not installed."""
        from streambench_magics.panel.widget import PanelWidget

        frame = self._frame = self._viewer.take()
        self.widget = PanelWidget(html=panel_html(frame))
        self.widget.on_msg(self._on_message)
        self.widget.observe(self._on_views, "_view_count")
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        self._view = show({WIDGET_VIEW: view, "text/plain": ""}, display_id=True)
        self._handle = show(
            stand_in(frame, self.widget.model_id, "as it was when it was shown"), display_id=True
        )
        self.job.on_change.append(self._wake.set)
        for thread in self._threads:
            thread.start()

    def close(self, note: str = "") -> None:
        """Leave a table in its place, with ``note`` below, and close the widget. May be called again, and
        from any thread."""
        with self._closing:
            if self.widget is None:
                return
            self._done.set()
            self._wake.set()
            self._commands.put(None)
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(_JOIN_S)
            self.job.on_change.remove(self._wake.set)
            self._paint()
            if self._handle is not None:
                with contextlib.suppress(Exception):
                    self._handle.update(static(static_view(self.job), note), raw=True)
            if self._view is not None:
                # A view of a widget that is gone would be an error in the saved notebook.
                self._view.update({"text/html": "", "text/plain": ""}, raw=True)
            self.widget.close_tree()
            self.widget = None

    def _on_message(self, widget: Any, content: Any, buffers: Any) -> None:
        command = content.get("do") if isinstance(content, dict) else None
        if isinstance(command, str) and command.startswith("page "):
            self._pages.add(command)
        elif isinstance(command, str) and (scrolled := _SCROLLED.fullmatch(command)):
            first_row, view = scrolled.groups()
            self._first_rows.pop(view, None)
            # A new dict: another thread draws what the old one holds. Views that are gone leave it in time.
            kept = list(self._first_rows.items())[1 - _VIEWS :]
            self._first_rows = {**dict(kept), view: int(first_row)}
            self._wake.set()
        elif command == ABORT.command:
            # Not by the worker: it may be the one that waits for the message.
            threading.Thread(target=self._give_up, name="streambench gives up", daemon=True).start()
        elif isinstance(command, str) and command.split(" ")[0] in _COMMANDS:
            if command == "pause":
                self._pause_asked.set()
            self._commands.put(command)

    def _on_views(self, change: Any) -> None:
        # Zero before the first view: only a count that falls to zero means that no view is left.
        self._hidden = change["new"] == 0
        self._wake.set()

    def _paint_on(self) -> None:
        while not self._done.is_set():
            pause = _FRAME_S if self.job.state == "running" else _IDLE_S
            poked = self._wake.wait(pause)
            self._wake.clear()
            if self._done.is_set():
                return
            if not self._hidden:
                self._paint()
            if self.job.state == "stopped" and not self._is_rewinding:
                threading.Thread(
                    target=self.close, args=(STOPPED,), name="streambench panel closes", daemon=True
                ).start()
                return
            if poked:
                self._done.wait(_SOONEST_S)

    def _paint(self) -> None:
        started = time.monotonic()
        try:
            self._draw(started)
        except Exception as error:
            log.debug("%s: a frame of the panel could not be drawn", self.job.name, exc_info=True)
            # The thread must not end by it: the panel would stay as it is, for good.
            with contextlib.suppress(Exception):
                self._draw_problem(f"the panel could not be drawn: {described(error)}")
        # A frame that is dear (many partitions, a slow disk) must not take more than a fifth of the time. But
        # a change of the job's state, after a click say, is shown at once.
        if not self._done.is_set():
            self._wake.wait(min(_IDLE_S, 4 * (time.monotonic() - started)))

    def _draw(self, started: float) -> None:
        self._drop_old_notice()
        frame = self._viewer.take(self._notice)
        html = panel_html(frame, self._first_rows.values())
        self._frame = frame
        if html == self.widget.html:
            return
        self.widget.html = html
        self.frames += 1
        if frame.state != "running" or started - self._table_s >= _TABLE_S:
            self._table_s = started
            note = f"as it was when last drawn, at {time.strftime('%Y-%m-%d %H:%M:%S')}"
            self._handle.update(stand_in(frame, self.widget.model_id, note), raw=True)

    def _draw_problem(self, problem: str) -> None:
        """Draw the last frame again, with the problem at its foot until a frame can be drawn."""
        frame = replace(self._frame, notice=Notice(problem, "failure"))
        html = panel_html(frame, self._first_rows.values())
        if html != self.widget.html:
            self.widget.html = html

    def _work(self) -> None:
        while (command := self._commands.get()) is not None:
            before, self._is_working = self.job.state, True
            try:
                with speaking("magics"):
                    self._do(command)
            except (Exception, KeyboardInterrupt) as error:  # the latter where its message was given up
                # What the task raised stands in the state of the job; anything else stands at the foot of
                # the panel.
                is_shown = self.job.state == "failed" and (
                    before != "failed" or isinstance(error, (TaskError, KeyboardInterrupt))
                )
                self._tell("" if is_shown else f"{command}: {error}", "failure")
            self._is_working = False
            self._wake.set()

    def _give_up(self) -> None:
        ended = self.job.give_up()
        self._tell(
            "aborted: nothing since the last checkpoint is committed; mend the task, and step "
            "goes on from there"
            if ended
            else "aborted: what the task still does has no effect on streams, state and checkpoints",
            "warning",
        )
        self._wake.set()

    def _do(self, command: str) -> None:
        self._tell("")
        name, _, value = command.partition(" ")
        if name in _STARTING and (over := self.job.takeover_notice()):
            self._say(over)
        _COMMANDS[name](self, value)
        self._run_again_for_metrics()

    def _run_again_for_metrics(self) -> None:
        """Run tasks again at each position in the past, from a click on their metrics until it is live, or
        one of them fails there."""
        session, wanted = self.job.session, self._shows_metrics
        self._shows_metrics = False
        if wanted and session is not None and not session.live:
            session.bring_memory()
            self._shows_metrics = True

    def _say(self, notice: str) -> None:
        """Show a line at the foot at once, behind what the same button has said."""
        said = self._notice.text
        self._tell(f"{said} · {notice}" if said else notice)
        self._wake.set()

    def _tell(self, text: str, kind: Literal["", "warning", "failure"] = "") -> None:
        """Show a line at the foot, instead of the one before, with the next frame."""
        self._notice, self._notice_at = Notice(text, kind), None

    def _drop_old_notice(self) -> None:
        """Drop the notice about a button once the job has moved on, by a command that was typed since."""
        if not self._notice.text or self._is_working:
            return
        session = self.job.session
        at = None if session is None else (session, session.position, self.job.state)
        if self._notice_at is None:
            if self.job.state != "running":
                self._notice_at = at
        elif at != self._notice_at:
            self._tell("")

    def _pause(self) -> None:
        self._pause_asked.clear()
        self.job.pause()

    def _search(self, text: str) -> None:
        self._viewer.standing.search = text

    def _open(self, stream: str) -> None:
        """Show the partitions of a folded stream, or fold it again."""
        self._viewer.opened = self._viewer.opened ^ {SystemStream.parse(stream)}

    def _show_metrics(self) -> None:
        self._shows_metrics = True

    def _marked(self) -> Session:
        """The session whose breakpoints and watches are shown; started if need be."""
        self.job.start()
        return self.job.marked()

    def _break(self, value: str) -> None:
        """Add a breakpoint. ``value``: what it stops on, and the condition."""
        kind, _, condition = value.partition(" ")
        self._marked().break_on(condition or "True", on=cast("Kind", kind))

    def _rewind(self, commit: str) -> None:
        self._is_rewinding = True
        try:
            rewind_and_start(self.job, commit, self._say)
        finally:
            self._is_rewinding = False
        self._say(f"rewound to commit {commit}: the next step processes the message after it")

    def _step(self, number: int) -> None:
        was, session, where = self.job.state, self.job.session, self.job.goes_on
        resumes = session is not None and session.can_resume
        if self.job.start() and was in ("stopped", "failed") and not resumes:
            self._say(f"it had {was}, and went on {where}")
        done = 0
        while done < number and not self._pause_asked.is_set() and self.job.step():
            done += 1
        if not done and not self._pause_asked.is_set() and self.job.alive:
            self._tell("nothing to read: it has caught up with its inputs")


_COMMANDS: Mapping[str, Callable[[Panel, str], object]] = {
    "step": lambda panel, value: panel._step(int(value or 1)),
    "run": lambda panel, value: panel.job.run(),
    "until": lambda panel, value: panel.job.run(value or None),
    "pause": lambda panel, value: panel._pause(),
    "commit": lambda panel, value: panel.job.commit(),
    "back": lambda panel, value: panel.job.moved().back(),
    "forward": lambda panel, value: panel.job.moved().forward(),
    "goto": lambda panel, value: panel.job.moved().goto(int(value)),
    "live": lambda panel, value: panel.job.moved().go_live(),
    "rewind": Panel._rewind,
    "open": Panel._open,
    "metrics": lambda panel, value: panel._show_metrics(),
    "search": Panel._search,
    "key": lambda panel, value: panel._viewer.standing.pick(*json.loads(value)),
    "break": Panel._break,
    "enable": lambda panel, value: panel._marked().enable(int(value)),
    "disable": lambda panel, value: panel._marked().enable(int(value), False),
    "remove": lambda panel, value: panel._marked().remove(int(value)),
    "watch": lambda panel, value: panel._marked().watch(*named_expression(value)),
    "unwatch": lambda panel, value: panel._marked().unwatch(value),
}
"""Per command of the page, what it does with the value behind it. Aborting a message is not among them."""


def show(bundle: dict[str, Any], **kwargs: Any) -> Any:
    """Show something that is there in several forms, below the cell that runs now."""
    display: Any = ipython.display
    return display(bundle, raw=True, **kwargs)


def static(frame: PanelState, note: str = "") -> dict[str, str]:
    """The frozen form of a panel: HTML without anything alive in it, and text."""
    return {"text/html": table_html(frame, note), "text/plain": text(frame)}


def stand_in(frame: PanelState, model_id: str, note: str) -> dict[str, str]:
    """The frozen form of a live panel, hidden for as long as the widget with that id is there."""
    return static(frame, note) | {"text/html": hidden_table_html(frame, model_id, note)}
