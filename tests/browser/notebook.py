"""A notebook in JupyterLab, driven as its user would and waited for by conditions, never by time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from playwright.sync_api import Error as BrowserError
from playwright.sync_api import Locator, Page, expect

#: How long a condition may take, unless the caller says otherwise. Generous: a kernel that imports Spark's
#: packages on a busy machine.
TIMEOUT_SECONDS = 60.0

#: How often a condition is looked at. By default the browser draws a frame for each look.
LOOK_MS = 50

# The notebook of a name, or null while it is loading. The widget in front may be another one: JupyterLab
# opens a launcher where the last notebook was closed, and gives it the focus some time later.
_PANEL = """
const app = window.jupyterapp;
const widgets = app && app.shell ? [...app.shell.widgets('main')] : [];
const panel = widgets.find((each) => each.context && each.context.path === NAME);
const ready = panel && panel.context.isReady && panel.content.widgets ? panel : null;
"""

_IS_IDLE = """() => {
    const kernel = ready && ready.sessionContext.session && ready.sessionContext.session.kernel;
    return Boolean(kernel) && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""

_BRING_TO_FRONT = "() => { app.shell.activateById(ready.id); }"

_IS_IN_FRONT = "() => Boolean(ready) && app.shell.currentWidget === ready"

# The promise of the command resolves when the cell has run, so it is not waited for here: a cell may run for
# long, and a test may want to press a button meanwhile. It leaves its mark when it is done.
_START = """([index, run]) => {
    if (app.shell.currentWidget !== ready) return false;
    const content = ready.content;
    content.deselectAll();
    content.activeCellIndex = index;
    content.mode = 'command';
    window.streambenchRuns = window.streambenchRuns || {};
    window.streambenchRuns[run] = 'running';
    const done = () => { window.streambenchRuns[run] = 'done'; };
    app.commands.execute('notebook:run-cell').then(done, done);
    return true;
}"""

_OUTPUTS = "(index) => ready.content.widgets[index].model.toJSON().outputs || []"

# As its user closes it, but for the question whether to save.
_CLOSE = """async () => {
    if (!ready) return false;
    await ready.sessionContext.shutdown();
    ready.context.model.dirty = false;
    ready.dispose();
    return !document.querySelector('.jp-NotebookPanel, .jp-Dialog');
}"""

_OPEN = """async (path) => {
    await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'});
}"""

_SAVE = "async () => { await ready.context.save(); }"

_RESTART = "async () => { await ready.sessionContext.session.kernel.restart(); }"

_CELL_TYPES = "() => ready.content.widgets.map((cell) => cell.model.type)"

_ANSI = re.compile(r"\x1b\[[0-9;]*m")

# Notebooks that follow one another have one page, which keeps the marks of their runs.
_runs = count(1)


class CellFailed(AssertionError):
    """A cell ended with an exception; the text is the kernel's traceback."""


class Notebook:
    """One open notebook. Cells are counted from 0, markdown cells included.

    Made by ``lab.new(...)`` and ``lab.open(...)``; closed, together with its kernel, by ``close()`` or at the
    end of the test. ``page`` is playwright's page, for what is not here.
    """

    def __init__(self, page: Page, name: str, closed: Callable[[Notebook, bool], None]) -> None:
        """``closed`` is called at the end, with True where the page is as it was before."""
        self.page = page
        self.name = name
        #: Set by a test that leaves something in the page: the next notebook then has a page of its own.
        self.spoils_page = False
        #: What JavaScript threw, uncaught, since the page was loaded, with its stack: a panel's test wants
        #: it empty.
        self.page_errors: list[str] = []
        #: What JupyterLab's core threw with nothing else on the stack: its own affair, but worth a look when
        #: a test fails.
        self.lab_errors: list[str] = []
        self._closed = closed
        self._is_open = True
        page.set_default_timeout(TIMEOUT_SECONDS * 1000)
        page.on("pageerror", self._keep_error)

    def _keep_error(self, error: BrowserError) -> None:
        frames = [line for line in (error.stack or "").splitlines() if line.lstrip().startswith("at ")]
        core = ["/static/lab/" in frame for frame in frames]
        only_core = any(core) and all(
            here or "<anonymous>" in frame for here, frame in zip(core, frames, strict=True)
        )
        (self.lab_errors if only_core else self.page_errors).append(f"{error}\n{error.stack}")

    def _script(self, function: str) -> str:
        """A function of JavaScript, with this notebook as ``ready``."""
        panel = _PANEL.replace("NAME", json.dumps(self.name))
        return f"(argument) => {{ {panel} return ({function})(argument); }}"

    def load(self, url: str) -> None:
        """Loads the page and waits until the kernel is ready. Called by the lab."""
        self.page.goto(url)
        self._wait_for_kernel()

    def open_in_page(self) -> None:
        """Opens the notebook in a page of JupyterLab that has none, and waits until the kernel is ready.
        Called by the lab."""
        self.page.evaluate(_OPEN, self.name)
        self._wait_for_kernel()

    def _wait_for_kernel(self) -> None:
        try:
            self.wait_idle()
        except BrowserError as error:
            # Mostly a dialog that waits for somebody to answer it.
            error.add_note(
                f"{self.name} did not get a kernel; the page shows:\n{self.page.inner_text('body')[:2000]}"
            )
            raise

    def reload(self) -> None:
        """Reloads the page in the browser. The kernel goes on."""
        # JupyterLab then also restores what was open when it last saved its layout, however late.
        self.spoils_page = True
        self.page.reload()
        self.wait_idle()

    def wait_idle(self, timeout: float = TIMEOUT_SECONDS) -> None:
        """Waits until the kernel has nothing to do."""
        self.page.wait_for_function(self._script(_IS_IDLE), timeout=timeout * 1000, polling=LOOK_MS)

    def cell(self, index: int) -> Locator:
        """The cell in the page: what it shows, and what can be clicked in it."""
        return self.page.locator(
            ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-viewport > .jp-Cell"
        ).nth(index)

    def output(self, index: int) -> Locator:
        """What a cell shows as its output."""
        return self.cell(index).locator(".jp-Cell-outputWrapper")

    def start_cell(self, index: int) -> int:
        """Starts a cell and returns at once, with a number to ``wait_run`` for."""
        run = next(_runs)
        while not self.page.evaluate(self._script(_START), [index, run]):
            self.page.evaluate(self._script(_BRING_TO_FRONT))
            self.page.wait_for_function(self._script(_IS_IN_FRONT), polling=LOOK_MS)
        return run

    def wait_run(self, run: int, timeout: float = TIMEOUT_SECONDS) -> None:
        """Waits until what ``start_cell`` started is over."""
        self.page.wait_for_function(
            "(run) => window.streambenchRuns[run] === 'done'",
            arg=run,
            timeout=timeout * 1000,
            polling=LOOK_MS,
        )

    def run_cell(self, index: int, *, timeout: float = TIMEOUT_SECONDS, may_fail: bool = False) -> None:
        """Runs one cell to its end. An exception in it is a ``CellFailed``, unless it ``may_fail``."""
        self.wait_run(self.start_cell(index), timeout)
        for output in self.outputs(index):
            if output["output_type"] == "error" and not may_fail:
                raise CellFailed(
                    f"cell {index} of {self.name}:\n" + _ANSI.sub("", "\n".join(output["traceback"]))
                )

    def run_all(self, *, timeout: float = TIMEOUT_SECONDS) -> None:
        """Runs the code cells one after the other, up to the first that fails; ``timeout`` is for each."""
        for index, kind in enumerate(self.page.evaluate(self._script(_CELL_TYPES))):
            if kind == "code":
                self.run_cell(index, timeout=timeout)

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """The outputs of a cell as the notebook file would hold them."""
        return self.page.evaluate(self._script(_OUTPUTS), index)

    def wait_text(
        self, text: str | re.Pattern[str], *, cell: int | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        """Waits until a text is to be seen: in the output of a cell, or anywhere in the notebook."""
        where = (
            self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)") if cell is None else self.output(cell)
        )
        expect(where).to_contain_text(text, timeout=timeout * 1000)

    def save(self) -> None:
        """Saves the file, which ``lab.notebooks / notebook.name`` then is."""
        self.page.evaluate(self._script(_SAVE))

    def restart_kernel(self) -> None:
        """A new kernel for the same notebook; the outputs stay."""
        self.page.evaluate(self._script(_RESTART))
        self.wait_idle()

    def screenshot(self, path: Path | str, *, cell: int | None = None) -> Path:
        """Takes a picture of the window, or of the output of one cell, whole."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if cell is None:
            self.page.screenshot(path=target)
        else:
            self.output(cell).screenshot(path=target)
        return target

    def close(self) -> None:
        """Ends the kernel and closes the notebook. What was not saved is lost."""
        if not self._is_open:
            return
        self._is_open = False
        self.page.remove_listener("pageerror", self._keep_error)
        is_as_before = False
        try:
            is_closed = self.page.evaluate(self._script(_CLOSE))
            is_as_before = is_closed and not (self.spoils_page or self.page_errors or self.lab_errors)
        except BrowserError:
            # A page that crashed or never loaded has no kernel that it could end: the server ends it when it
            # stops.
            pass
        finally:
            self._closed(self, is_as_before)
