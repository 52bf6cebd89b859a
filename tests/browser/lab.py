"""A real JupyterLab server for tests, and a notebook as its user sees it.

The server runs on this Python, on a free port of the loopback address, with settings, data and runtime
folders of its own, so that neither the developer's settings nor a server that runs already can make a
difference. It ends with the test process, however that ends: the server watches a pipe that only the test
process holds open.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import nbformat
import psutil
from playwright.sync_api import BrowserContext, Page, ViewportSize

from tests.browser.notebook import Notebook

# Runs in the server's process. SIGTERM lets the server end its kernels first, which kill would not.
_SERVER = """
import os, signal, sys, threading
def end_with_the_test():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end_with_the_test, daemon=True).start()
sys.modules["rfc3987_syntax"] = None  # a second of CPU, for a check of addresses that is optional
from jupyterlab import commands
# Else each page starts Node to learn where packages would come from, of which none is fetched.
commands._yarn_config = lambda logger: {"yarn config": {}, "npm config": {}}
from jupyterlab.labapp import main
main()
"""

# What would cover the page, talk to the network, or change between two runs.
_SETTINGS = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"windowingMode": "none", "kernelShutdown": True},
}

VIEWPORT: ViewportSize = {"width": 1280, "height": 960}
START_SECONDS = 90
STOP_SECONDS = 60


class JupyterLab:
    """One server, for several notebooks one after the other; a context manager.

    ``folder`` becomes its home: ``folder/notebooks`` is what it serves, the rest is its settings and its log.
    """

    def __init__(self, folder: Path, context: BrowserContext) -> None:
        self.notebooks = folder / "notebooks"
        self.log = folder / "server.log"
        self._folder = folder
        # One for all notebooks: pages of one context share a cache, and JupyterLab is some 10 MB of
        # JavaScript.
        self._context = context
        self._token = secrets.token_hex(16)
        self._port = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._open: list[Notebook] = []
        #: With JupyterLab and no notebook: to load it takes longer than most tests.
        self._empty_page: Page | None = None

    def __enter__(self) -> Self:
        self.notebooks.mkdir(parents=True)
        for plugin, settings in _SETTINGS.items():
            file = self._folder / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(settings))
        # Each page would have the server ask node and yarn if JupyterLab has to be built.
        page_config = self._folder / "config" / "labconfig" / "page_config.json"
        page_config.parent.mkdir(parents=True)
        page_config.write_text(json.dumps({"buildAvailable": False, "buildCheck": False}))
        try:
            # A port that was free may be taken by another process before the server binds it: then it ends,
            # and one more try is due.
            if not self._start():
                self._kill()
                if not self._start():
                    raise RuntimeError(f"JupyterLab did not start:\n{self._log_tail()}")
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close_notebooks()
        finally:
            left = self._stop()
        # Not while another error is on its way: that one says more.
        if left and error is None:
            raise AssertionError(f"processes left by JupyterLab (killed now): {left}")

    def new(self, *cells: str, name: str = "test.ipynb") -> Notebook:
        """Opens a new notebook with these code cells."""
        return self._serve(
            nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), name
        )

    def open(self, path: Path | str) -> Notebook:
        """Opens a copy of a notebook, so that running it changes nothing in the checkout. Files it reads by a
        relative path have to be copied to ``lab.notebooks`` first."""
        return self._serve(nbformat.read(path, as_version=4), Path(path).name)

    def reopen(self, notebook: Notebook) -> Notebook:
        """Closes a notebook, kernel included, and opens its file again, as a person does who comes back the
        next day. What was not saved is lost."""
        notebook.close()
        return self._open_served(self.notebooks / notebook.name)

    def close_notebooks(self) -> None:
        """Closes what is open, kernels included."""
        for notebook in list(self._open):
            notebook.close()

    def _serve(self, book: nbformat.NotebookNode, name: str) -> Notebook:
        # Without a kernel's name JupyterLab asks for one, and there is no one to answer. This one is the
        # server's own Python.
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        path = self._free_path(name)
        nbformat.write(book, path)
        return self._open_served(path)

    def _open_served(self, path: Path) -> Notebook:
        page, self._empty_page = self._empty_page, None
        is_loaded = page is not None
        page = page or self._context.new_page()
        notebook = Notebook(page, path.name, closed=self._closed)
        self._open.append(notebook)
        try:
            if is_loaded:
                page.set_viewport_size(VIEWPORT)
                notebook.open_in_page()
            else:
                address = f"http://127.0.0.1:{self._port}/lab/tree/{path.name}"
                notebook.load(f"{address}?token={self._token}&reset")
        except BaseException:
            notebook.close()
            raise
        return notebook

    def _closed(self, notebook: Notebook, is_as_before: bool) -> None:
        """Keep the page of a notebook for the next one, if it can have it."""
        self._open.remove(notebook)
        if is_as_before and self._empty_page is None:
            self._empty_page = notebook.page
        else:
            notebook.page.close()

    def _free_path(self, name: str) -> Path:
        path = self.notebooks / name
        number = 2
        while path.exists():
            path = self.notebooks / f"{Path(name).stem}-{number}{Path(name).suffix}"
            number += 1
        return path

    def _start(self) -> bool:
        self._port = _free_port()
        arguments = [
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={self._port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={self._token}",
            f"--ServerApp.root_dir={self.notebooks}",
            "--ServerApp.disable_check_xsrf=True",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.extension_manager=readonly",
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        with self.log.open("wb") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                cwd=self.notebooks,
                start_new_session=True,
                # Ctrl-C in the terminal is for pytest, which then stops the server in order
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                return False
            if self._answers():
                return True
        return False

    def _environment(self) -> dict[str, str]:
        # JUPYTER_* of the developer, and of a kernel that this may run under, must not reach the server.
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER", "JPY_", "PYTEST_"))
        }
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        return (
            kept
            | {name: str(self._folder / folder) for name, folder in folders.items()}
            | {"JUPYTER_NO_CONFIG": "1"}
        )

    def _answers(self) -> bool:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/api/status", headers={"Authorization": f"token {self._token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            # Nobody listens yet; wait for the process, which ends at once if it cannot start, instead of
            # asking without pause.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(0.1)
            return False

    def _stop(self) -> list[str]:
        """Ends the server and says which of its processes outlived it."""
        if self._server is None:
            return []
        family = _family(self._server.pid)
        self._server.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(STOP_SECONDS)
        # A kernel that was asked to end may need a moment longer than the server that asked.
        _, alive = psutil.wait_procs(family, timeout=60)
        left = [_describe(process) for process in alive]
        self._kill(alive)
        return left

    def _kill(self, family: list[psutil.Process] | None = None) -> None:
        if self._server is None:
            return
        for process in family if family is not None else _family(self._server.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._server.stdin is not None:
            self._server.stdin.close()
        self._server.wait(STOP_SECONDS)
        self._server = None

    def _log_tail(self) -> str:
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
            if self.log.exists()
            else "(no log)"
        )


def _free_port() -> int:
    """Below the range from which the system gives out ports by itself: there, another process could be given
    it meanwhile."""
    for port in random.SystemRandom().sample(range(20001, 32000, 2), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 20001 and 31999")


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:120]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} (gone)"
