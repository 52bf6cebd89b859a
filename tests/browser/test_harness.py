"""The harness itself, proved on plain ipywidgets: what is tested with it later can only be as true as this.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from playwright.sync_api import expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import CellFailed, Notebook
from tests.surroundings import only_soak

# Each of its kernels and pages takes seconds of CPU, and no part of the product is in it.
HARNESS = only_soak("the other tests of the browser use the harness")

PNG = b"\x89PNG\r\n\x1a\n"

# Ticks until it is told to stop, from a thread of its own, as a live panel does.
TICKING = """
import threading, ipywidgets as widgets
slider = widgets.IntSlider(description="speed", value=5, min=0, max=10)
shown = widgets.HTML("ticks: 0")
stop = threading.Event()
def tick():
    n = 0
    while not stop.wait(0.05):
        n += 1
        shown.value = f"ticks: {n} at speed {slider.value}"
ticker = threading.Thread(target=tick, daemon=True)
ticker.start()
widgets.VBox([slider, shown])
"""


@HARNESS
def test_a_widget_fed_by_a_thread_is_shown_and_ticks(lab: JupyterLab, tmp_path: Path) -> None:
    notebook = lab.new(TICKING, "stop.set(); ticker.join(); shown.value = f'ended at speed {slider.value}'")
    notebook.run_cell(0)
    notebook.wait_text(re.compile(r"ticks: [1-9]"), cell=0)
    seen = int(re.search(r"ticks: (\d+)", notebook.output(0).inner_text())[1])  # type: ignore[index]
    notebook.wait_text(re.compile(rf"ticks: (?!{seen} )\d+ at speed 5"), cell=0)

    # The other way: from the page into the kernel.
    notebook.output(0).get_by_role("slider").press("ArrowRight")
    notebook.wait_text("at speed 6", cell=0)

    picture = notebook.screenshot(tmp_path / "pictures" / "ticking.png", cell=0)
    assert picture.read_bytes().startswith(PNG)
    notebook.run_cell(1)
    notebook.wait_text("ended at speed 6", cell=0)
    assert notebook.page_errors == []


def test_a_cell_that_fails_fails_the_test_with_its_traceback(lab: JupyterLab) -> None:
    notebook = lab.new("1 / 0", "print('not reached')")
    with pytest.raises(CellFailed, match="ZeroDivisionError"):
        notebook.run_all()
    assert notebook.outputs(1) == []
    notebook.run_cell(0, may_fail=True)
    assert notebook.outputs(0)[0]["ename"] == "ZeroDivisionError"


@HARNESS
def test_a_button_waits_for_no_cell_of_the_test(lab: JupyterLab) -> None:
    """A cell that runs for long does not hold up the test, which can meanwhile look, and interrupt."""
    notebook = lab.new("import threading\nprint('waiting', flush=True)\nthreading.Event().wait()")
    run = notebook.start_cell(0)
    notebook.wait_text("waiting", cell=0)
    notebook.page.keyboard.press("i")
    notebook.page.keyboard.press("i")
    notebook.wait_run(run)
    assert notebook.outputs(0)[-1]["ename"] == "KeyboardInterrupt"


@HARNESS
def test_a_saved_notebook_is_what_the_next_reader_sees(lab: JupyterLab) -> None:
    notebook = lab.new("mine = 6 * 7\nprint('the answer is', mine)", "mine")
    notebook.run_cell(0)
    notebook.save()
    notebook.reload()
    notebook.run_cell(1)  # the kernel went on

    again = lab.reopen(notebook)
    again.wait_text("the answer is 42", cell=0)
    expect(again.output(1)).not_to_contain_text("42")  # it was not saved
    with pytest.raises(CellFailed, match="NameError"):
        again.run_cell(1)  # and the kernel is a new one


@HARNESS
def test_a_notebook_of_the_checkout_is_opened_as_a_copy_on_this_python(
    lab: JupyterLab, tmp_path: Path
) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import sys; print(sys.prefix)")])
    original = tmp_path / "mine.ipynb"
    nbformat.write(book, original)
    (lab.notebooks / "mine.ipynb").touch()
    before = original.read_bytes()
    copy = lab.open(original)
    copy.run_all()
    assert copy.outputs(0)[0]["text"].strip() == sys.prefix
    copy.save()
    assert original.read_bytes() == before
    assert copy.name == "mine-2.ipynb"


@HARNESS
def test_the_next_notebook_has_the_same_page_and_a_kernel_of_its_own(lab: JupyterLab) -> None:
    notebook = lab.new("mine = 1")
    notebook.run_all()
    notebook.close()
    following = lab.new("mine")
    assert following.page is notebook.page
    with pytest.raises(CellFailed, match="NameError"):
        following.run_all()
    raise_in_page(following, "of a widget", "lab/extensions/widget")
    following.close()
    assert lab.new("1").page is not notebook.page


def test_a_page_error_is_kept_apart_from_errors_of_jupyterlab_itself(lab: JupyterLab) -> None:
    notebook = lab.new("1 + 1")
    raise_in_page(notebook, "of a widget", "lab/extensions/widget")
    raise_in_page(notebook, "of the core", "static/lab/jlab_core")
    assert ["of a widget" in error for error in notebook.page_errors] == [True]
    assert ["of the core" in error for error in notebook.lab_errors] == [True]


def raise_in_page(notebook: Notebook, name: str, place: str) -> None:
    """An error in the page, as of the script at this place."""
    throw = """([name, place]) => {
        const error = new Error(name);
        const frame = `render (http://127.0.0.1:1/${place}.js:1:2)`;
        error.stack = `Error: ${name}\\n    at ${frame}\\n    at new Promise (<anonymous>)`;
        setTimeout(() => { throw error; });
    }"""
    with notebook.page.expect_event("pageerror"):
        notebook.page.evaluate(throw, [name, place])


STARTS_A_SERVER = """
import sys
from pathlib import Path
from tests.browser.lab import JupyterLab
with JupyterLab(Path(sys.argv[1]), context=None) as lab:
    print(lab._server.pid, flush=True)
    sys.stdin.read()
"""


@HARNESS
def test_the_server_ends_with_the_test_process_even_if_that_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_SERVER, str(tmp_path / "lab")],
        cwd=request.config.rootpath,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with tests:
        assert tests.stdout is not None
        server = psutil.Process(int(tests.stdout.readline()))
        family = [server, *server.children(recursive=True)]
        tests.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
