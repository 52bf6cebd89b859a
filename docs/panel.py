"""Take the picture of the live panel that the README shows: ``python docs/panel.py``, with a Chromium (``make browser``).

It runs the first notebook up to its panel, then lets the job go on, commit, and step.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from playwright.sync_api import sync_playwright

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from tests.browser.lab import JupyterLab  # noqa: E402

PICTURE = CHECKOUT / "docs" / "panel.png"
NOTEBOOK = CHECKOUT / "notebooks" / "01-first-stream.ipynb"
SHOW = "%stream show"
MORE = ("%stream run --messages 6500\n%stream wait\n%stream commit", "%stream run --messages 2000\n%stream wait", "%stream step 150")


def main() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell.source for cell in book.cells if cell.cell_type == "code"]
    shown = cells.index(SHOW)
    chromium = subprocess.run([CHECKOUT / "tools" / "browser.sh", "find"], capture_output=True, text=True, check=True).stdout.strip()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--disable-dev-shm-usage", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 1360, "height": 1000}, device_scale_factor=2)
        with JupyterLab(Path(folder), context) as lab:
            shutil.copytree(NOTEBOOK.parent / "data", lab.notebooks / "data")
            notebook = lab.new(*cells[: shown + 1], *MORE)
            notebook.run_all()
            notebook.wait_text("message 8,651", cell=shown)
            notebook.output(shown).locator(".sb-panel").screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
