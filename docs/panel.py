"""Take the picture of the live panel that the README shows: ``python docs/panel.py``, with a Chromium (``make
browser``).

It does what the README says: writes its files, runs the commands of its first task, and then the lines of its
notebook up to the panel, each in a cell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from tests.browser.lab import JupyterLab  # noqa: E402

PICTURE = CHECKOUT / "docs" / "panel.png"
SHOW = "%stream show"

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\w+\.\w+)\n")


def main() -> None:
    blocks = _FENCED.findall((CHECKOUT / "README.md").read_text())
    commands = next(text for language, text in blocks if language == "sh")
    lines = next(text for language, text in blocks if language == "ipython").splitlines()
    cells = lines[: lines.index(SHOW) + 1]
    chromium = subprocess.run(
        [CHECKOUT / "tools" / "browser.sh", "find"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--disable-dev-shm-usage", "--disable-gpu"]
        )
        context = browser.new_context(viewport={"width": 1360, "height": 1000}, device_scale_factor=2)
        with JupyterLab(Path(folder), context) as lab:
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
            notebook.output(shown).locator(".sb-panel").screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
