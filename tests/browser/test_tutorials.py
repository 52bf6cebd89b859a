"""The tutorials in a real JupyterLab, as a person works through them: every cell runs, and where pictures are
promised there are some.

``STREAMBENCH_SCREENSHOTS=docs pytest tests/browser/test_tutorials.py`` leaves a picture of each there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS, Notebook
from tests.conftest import CHECKOUT, IN_THE_BROWSER, NEEDS_OF_NOTEBOOKS
from tests.surroundings import SOAK

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)


def worked_through(lab: JupyterLab, name: str) -> Notebook:
    """The notebook, with all its cells run."""
    NEEDS_OF_NOTEBOOKS.get(name, lambda: None)()
    shutil.copytree(CHECKOUT / "notebooks" / "data", lab.notebooks / "data", dirs_exist_ok=True)
    notebook = lab.open(CHECKOUT / "notebooks" / f"{name}.ipynb")
    notebook.page.set_viewport_size({"width": 1280, "height": 1400})
    notebook.run_all()
    if folder := os.environ.get("STREAMBENCH_SCREENSHOTS"):
        for number, cell in enumerate(notebook.page.locator(".jp-Cell").all()):
            cell.scroll_into_view_if_needed()
            if number % 6 == 0:
                notebook.screenshot(Path(folder) / f"{name}-{number:02d}.png")
    return notebook


# The others run elsewhere: here each takes ten seconds of CPU, and those that start brokers most of a minute.
OTHERS = ["03-state-and-checkpoints", "04-kafka", "05-messaging", "09-crash-and-compare"]


@pytest.mark.parametrize("name", [*IN_THE_BROWSER, *(OTHERS if SOAK else [])])
def test_every_cell_runs(lab: JupyterLab, name: str) -> None:
    notebook = worked_through(lab, name)
    expect(
        notebook.page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']")
    ).to_have_count(0)
    if name == "02-choosers":
        # The job is stopped: of its live panel a table is left.
        left = notebook.page.locator(
            ".jp-OutputArea-output", has=notebook.page.locator("table"), has_text="worst · stopped"
        )
        expect(left).to_have_count(1)
