"""The tutorials in a real JupyterLab: as they lie there for a reader, and as a person works through them.

``STREAMBENCH_SCREENSHOTS=docs pytest tests/browser/test_tutorials.py`` leaves a picture of each there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS, Notebook
from tests.conftest import CHECKOUT, IN_THE_BROWSER, NEEDS_OF_NOTEBOOKS
from tests.surroundings import SOAK

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)


TUTORIALS = CHECKOUT / "notebooks"

CELL_SECONDS = 300.0
"""The most that a cell may take: some start a broker or a cluster, or run a job there."""


def errors_of(notebook: Notebook) -> Locator:
    return notebook.page.locator(
        ".jp-RenderedText[data-mime-type='application/vnd.jupyter.error'], .jp-mod-error:not(:empty)"
    )


def worked_through(lab: JupyterLab, name: str) -> Notebook:
    """The notebook, with all its cells run."""
    NEEDS_OF_NOTEBOOKS.get(name, lambda: None)()
    shutil.copytree(TUTORIALS / "data", lab.notebooks / "data", dirs_exist_ok=True)
    notebook = lab.open(TUTORIALS / f"{name}.ipynb")
    notebook.page.set_viewport_size({"width": 1280, "height": 1400})
    notebook.run_all(timeout=CELL_SECONDS)
    if folder := os.environ.get("STREAMBENCH_SCREENSHOTS"):
        for number, cell in enumerate(notebook.page.locator(".jp-Cell").all()):
            cell.scroll_into_view_if_needed()
            if number % 6 == 0:
                notebook.screenshot(Path(folder) / f"{name}-{number:02d}.png")
    return notebook


# The others run elsewhere: here each takes ten seconds of CPU, and those that start brokers most of a minute.
# Of the panel of 06-debugging, the tests of panels and of the debugger see more.
OTHERS = [
    "06-debugging",
    "01-first-stream",
    "03-state-and-checkpoints",
    "04-kafka",
    "05-messaging",
    "07-replay",
    "08-spark",
    "09-crash-and-compare",
]


@pytest.mark.parametrize("name", [*IN_THE_BROWSER, *(OTHERS if SOAK else [])])
def test_every_cell_runs(lab: JupyterLab, name: str) -> None:
    notebook = worked_through(lab, name)
    expect(errors_of(notebook)).to_have_count(0)
    if name == "02-choosers":
        # The job is stopped: of its live panel a table is left.
        left = notebook.page.locator(
            ".jp-OutputArea-output", has=notebook.page.locator("table"), has_text="worst · stopped"
        )
        expect(left).to_have_count(1)


def test_a_failure_of_the_tutorial_is_replayed_mended_and_made_a_test(lab: JupyterLab) -> None:
    """07-replay with a run of this kernel in the place of Spark."""
    book = nbformat.read(TUTORIALS / "07-replay.ipynb", as_version=4)
    cells = [cell.source for cell in book.cells if cell.cell_type == "code"]
    ends = next(at for at, source in enumerate(cells) if source == "%stream deploy pace --master local[2]")
    here = "%stream run pace --until caught-up\n    %stream wait pace"
    cells = [source.replace("%stream deploy pace --master local[2]", here) for source in cells[:ends]]
    shutil.copytree(TUTORIALS / "data", lab.notebooks / "data", dirs_exist_ok=True)
    notebook = lab.new(*cells)
    notebook.run_all()
    expect(errors_of(notebook)).to_have_count(0)
    notebook.wait_text("369 messages of pace-1; at the last one, log.flights.0@368, it failed")
    notebook.wait_text("replay had failed; it goes on at log.flights.0@368")
    notebook.wait_text("def test_pace_1_processes_the_recording() -> None:")
    assert notebook.page_errors == []


def test_stored_outputs_and_pictures_are_shown_to_a_reader(lab: JupyterLab, tmp_path: Path) -> None:
    """Of all tutorials in one notebook, which was not run here: it is not trusted."""
    shutil.copytree(TUTORIALS / "pictures", lab.notebooks / "pictures", dirs_exist_ok=True)
    books = [nbformat.read(path, as_version=4) for path in sorted(TUTORIALS.glob("*.ipynb"))]
    cells = [
        cell
        for book in books
        for cell in book.cells
        if "(pictures/" in cell.source or "text/html" in str(cell.get("outputs", ""))
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "tutorials.ipynb")
    notebook = lab.open(tmp_path / "tutorials.ipynb")
    pictures = notebook.page.locator(".jp-Notebook img")
    expect(pictures).to_have_count(4)
    notebook.page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-Notebook img')].every((each) => each.naturalWidth > 500)"
    )
    # The panels of six tutorials are tables: none of them is alive, and none asks for its model.
    expect(
        notebook.page.locator(".jp-OutputArea-output:has(table)", has_text="the last choices")
    ).to_have_count(sum("the last choices" in str(cell.get("outputs", "")) for cell in cells))
    expect(errors_of(notebook)).to_have_count(0)
    expect(notebook.page.locator(".jp-Notebook")).not_to_contain_text("model not found")
    assert notebook.page_errors == []
