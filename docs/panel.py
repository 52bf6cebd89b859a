"""Take the pictures of the live panel: ``python docs/panel.py``, with a Chromium (``make browser``).

For that of the README it does what the README says: writes its files, runs the commands of its first task,
and then the lines of its notebook up to the panel, each in a cell. For those of the tutorials it runs their
cells up to the panel.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Locator, sync_playwright

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from tests.browser.lab import JupyterLab  # noqa: E402

PICTURE = CHECKOUT / "docs" / "panel.png"
SHOW = "%stream show"
TUTORIALS = {
    "01-first-stream": ("State", 1),
    "02-choosers": ("State", 0),
    "03-state-and-checkpoints": ("Checkpoints", 0),
}
"""Per tutorial, the tab of the panel to be shown, and how many more cells are run."""

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\w+\.\w+)\n")


def main() -> None:
    chromium = subprocess.run(
        [CHECKOUT / "tools" / "browser.sh", "find"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--disable-dev-shm-usage", "--disable-gpu"]
        )
        with _lab(browser, scale=2) as lab:
            _of_readme(lab)
        with _lab(browser, scale=1) as lab:
            shutil.copytree(CHECKOUT / "notebooks" / "data", lab.notebooks / "data")
            for name, (tab, more) in TUTORIALS.items():
                _of_tutorial(lab, name, tab, more)
        browser.close()


@contextlib.contextmanager
def _lab(browser: Browser, *, scale: int) -> Iterator[JupyterLab]:
    context = browser.new_context(viewport={"width": 1360, "height": 1200}, device_scale_factor=scale)
    with tempfile.TemporaryDirectory() as folder, JupyterLab(Path(folder), context) as lab:
        yield lab


def _of_readme(lab: JupyterLab) -> None:
    blocks = _FENCED.findall((CHECKOUT / "README.md").read_text())
    commands = next(text for language, text in blocks if language == "sh")
    lines = next(text for language, text in blocks if language == "ipython").splitlines()
    cells = lines[: lines.index(SHOW) + 1]
    for _, text in blocks:
        if named := _NAMED.match(text):
            (lab.notebooks / named[1]).write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euc", commands], cwd=lab.notebooks, env={**os.environ, "PATH": path}, check=True
    )
    notebook = lab.new(*cells)
    notebook.run_all()
    shown = cells.index(SHOW)
    notebook.wait_text("message 20", cell=shown)
    notebook.output(shown).get_by_role("tab", name="Outputs").click()
    _take(notebook.output(shown), PICTURE)


def _of_tutorial(lab: JupyterLab, name: str, tab: str, more: int) -> None:
    path = CHECKOUT / "notebooks" / f"{name}.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    shown = next(at for at, cell in enumerate(cells) if cell.source == SHOW)
    notebook = lab.open(path)
    for at, cell in enumerate(cells[: shown + more + 1]):
        if cell.cell_type == "code":
            notebook.run_cell(at)
    output = notebook.output(shown)
    output.get_by_role("tab", name=tab).click()
    _take(output, CHECKOUT / "notebooks" / "pictures" / f"{name[:2]}-panel.png")
    notebook.close()


def _take(output: Locator, to: Path) -> None:
    # The button that was pressed last, or the page's own, must not stand out.
    output.page.mouse.move(0, 0)
    panel = output.locator(".sb-panel")
    # At the edge of the page, a line of the toolbar would be in the picture.
    panel.evaluate("(each) => each.scrollIntoView({block: 'center'})")
    panel.screenshot(path=to)


if __name__ == "__main__":
    main()
