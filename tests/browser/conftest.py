"""Fixtures for what has to be seen in a real browser: JupyterLab on this Python, and headless Chromium.

    def test_the_panel_ticks(lab, tmp_path):
        notebook = lab.new("%load_ext streambench", "%stream show")    # or
        lab.open("notebooks/01-first.ipynb"): a copy is opened notebook.run_all()
        # or run_cell(0), run_cell(1); CellFailed has the traceback notebook.wait_text("caught up", cell=1)
        # a text or a regular expression; never sleep notebook.output(1).get_by_role("button",
        name="Step").click()  # a playwright locator notebook.screenshot(tmp_path / "panel.png", cell=1)
        assert notebook.page_errors == []

A cell that runs for long: ``run = notebook.start_cell(2)``, do something meanwhile,
``notebook.wait_run(run)``. A reader who comes back the next day: ``notebook.save()``, ``notebook =
lab.reopen(notebook)``. Everything else is in ``Notebook`` (notebook.py).

Server and browser start once for all the tests of this folder that one process runs (5-10 s); notebooks and
kernels are each test's own. A page goes from one notebook to the next, unless it had an error or the test
sets ``notebook.spoils_page``. What is left running at the end is killed and makes the last test fail. The
browser is the one that ``tools/browser.sh`` finds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.lab import VIEWPORT, JupyterLab
from tests.surroundings import missing

FIND_BROWSER = Path(__file__).resolve().parents[2] / "tools" / "browser.sh"


# Not for the session: while playwright is open its event loop counts as running in this thread, so that
# asyncio.run() of a test elsewhere would be refused.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    found = subprocess.run([FIND_BROWSER, "find"], capture_output=True, text=True)
    if found.returncode:
        missing("a Chromium for the browser tests", remedy="make browser")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=found.stdout.strip(),
            headless=True,
            # Playwright's default is no sandbox, and so it stays: root cannot have one, nor can anyone on a
            # system that forbids user namespaces, and these pages are our own.
            args=["--disable-dev-shm-usage", "--disable-gpu"],
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def lab_server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    """JupyterLab, for all tests of this folder."""
    with (
        browser.new_context(viewport=VIEWPORT) as context,
        JupyterLab(tmp_path_factory.mktemp("lab"), context) as server,
    ):
        yield server


@pytest.fixture
def lab(lab_server: JupyterLab) -> Iterator[JupyterLab]:
    """JupyterLab; the notebooks that a test opens are closed when it ends, kernels included."""
    yield lab_server
    lab_server.close_notebooks()
