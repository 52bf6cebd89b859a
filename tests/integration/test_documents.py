"""The examples of the README, executed as they stand, and each notebook from beginning to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import CHECKOUT, NEEDS_OF_NOTEBOOKS
from tests.surroundings import SOAK

README = CHECKOUT / "README.md"
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("*.ipynb"))
# One for each day, and one in the browser; that outputs of all of them are right is seen each day.
RUN_AS_A_WHOLE = NOTEBOOKS if SOAK else [CHECKOUT / "notebooks" / "01-first-stream.ipynb"]

DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "notebooks/README.md",
    *sorted(f"docs/{path.name}" for path in (CHECKOUT / "docs").glob("*.md")),
]

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\w+\.\w+)\n")
_LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")

ON_SPARK = "%stream deploy|SparkCluster"


class Reader:
    """Does what the README says, in an empty directory outside of the checkout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "IPYTHONDIR": str(directory / "ipython"),
            "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'magics'}",
        }

    def does(self, language: str, text: str) -> str:
        """Write the file that a block names, or run the block; what it printed."""
        named = _NAMED.match(text)
        if named:
            (self.directory / named[1]).write_text(text)
            return ""
        if language == "sh":
            return self.runs("bash", "-euo", "pipefail", "-c", text)
        ending = {"python": "py", "ipython": "ipy"}[language]
        (self.directory / f"block.{ending}").write_text(text)
        return self.runs(
            sys.executable,
            *(["-m", "IPython", "--no-banner"] if language == "ipython" else []),
            f"block.{ending}",
        )

    def runs(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.mark.usefixtures("spark_installed")
def test_the_readme_does_what_it_says(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    blocks = _FENCED.findall(README.read_text())
    assert [language for language, _ in blocks] == [
        "python",
        "python",
        "properties",
        "python",
        "sh",
        "ipython",
        "sh",
        "python",
    ]
    here, in_notebook, on_spark = [reader.does(language, text) for language, text in blocks][4:7]
    assert "sent 2,000 messages to log.flights" in here
    assert "1,000 messages" in here
    assert len(re.findall(r"^ +\d+  log\.flights\.[0-3]@\d+  key ", in_notebook, re.MULTILINE)) >= 10
    assert "late is stopped, with everything committed" in in_notebook
    assert "980 messages" in on_spark
    late = reader.runs(
        "streambench", "peek", "log.late", "--limit", "100000", "--json", "-c", "late.properties"
    ).splitlines()
    assert all(json.loads(row)["message"]["delay"] > 15 for row in late)
    plain = reader.runs(sys.executable, "flights.py").splitlines()
    assert len(late) == sum(json.loads(flight)["delay"] > 15 for flight in plain)


def test_the_figures_of_the_readme_are_those_of_the_page() -> None:
    figures = README.read_text().partition("\n## Figures\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \S.*$", figures, re.MULTILINE)
    assert rows
    page = (CHECKOUT / "docs" / "figures.md").read_text().splitlines()
    assert [row for row in rows if row not in page] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_something(document: str) -> None:
    path = CHECKOUT / document
    for target, anchor in _LINK.findall(path.read_text()):
        page = path if not target else path.parent / target
        assert page.exists(), target
        if anchor and page.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, f"{target}#{anchor}"


def _anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_and_pictures_of_notebooks_lead_to_something() -> None:
    found = [
        (path.name, target)
        for path in NOTEBOOKS
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
        for target, _ in _LINK.findall(cell.source)
        if not (path.parent / target).exists()
    ]
    assert found == []


def test_every_notebook_is_in_the_list_of_tutorials() -> None:
    listed = (CHECKOUT / "notebooks" / "README.md").read_text()
    assert NOTEBOOKS
    assert [path.name for path in NOTEBOOKS if f"({path.name})" not in listed] == []


@pytest.mark.parametrize("path", RUN_AS_A_WHOLE, ids=lambda path: path.stem)
@pytest.mark.usefixtures("spark_installed")
def test_a_notebook_runs_from_its_beginning_to_its_end(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    NEEDS_OF_NOTEBOOKS.get(path.stem, lambda: None)()
    # The other check of notebooks compares outputs; this one heeds what the kernel replies, as a reader's
    # JupyterLab does. It leaves Spark, which the other one starts, to SOAK=1.
    shutil.copytree(path.parent / "data", tmp_path / "data")
    monkeypatch.setenv("PYTHONPATH", f"{CHECKOUT}:{CHECKOUT / 'magics'}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.read(path, as_version=4)
    if not SOAK:
        book.cells = list(takewhile(lambda cell: not re.search(ON_SPARK, cell.source), book.cells))
    assert any(cell.cell_type == "code" for cell in book.cells)
    NotebookClient(
        book,
        timeout=120,
        store_widget_state=False,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    assert {entry.name for entry in tmp_path.iterdir()} - {"ipython", "streams"} == {"data"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_needs_no_kernel_and_shows_no_local_paths(
    path: Path,
) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert "widgets" not in book.metadata
    text = path.read_text()
    assert "widget-view" not in text
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    assert all(
        cell.execution_count and not any(o.output_type == "error" for o in cell.outputs)
        for cell in book.cells
        if cell.cell_type == "code"
    )
