"""JupyterLab's own debugger on a task: a click beside its line, a step, the variables, and on."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)

CELLS = (
    "%load_ext streambench\n"
    "late = {'systems.mem.samza.factory': 'memory', 'systems.mem.samza.offset.default': 'oldest',\n"
    "    'task.inputs': 'mem.flights'}\n"
    "flights = [{'delay': 5, 'airport': 'ORD'}]\n"
    "%stream streams create mem.flights --config late\n"
    "%stream send mem.flights --from flights --config late",
    "%%streamtask Late\n"
    "def process(envelope, collector, coordinator):\n"
    "    flight = envelope.message\n"
    "    delay = flight['delay']\n"
    "    hours = delay / 60",
    "%stream create late --task Late --config late\n%stream step",
)
SETUP, TASK, STEP = range(3)
LINE = 3
"""The line of the cell that gets the breakpoint: its first two are the magic and the def."""


def test_a_click_beside_a_line_of_a_task_stops_there(lab: JupyterLab) -> None:
    notebook = lab.new(*CELLS)
    page = notebook.page
    notebook.spoils_page = True  # the debugger's panel stays open
    notebook.run_cell(SETUP)
    page.locator(".jp-DebuggerBugButton").first.click()
    gutter = notebook.cell(TASK).locator(".cm-breakpoint-gutter .cm-gutterElement")
    # The first element of a gutter is a spacer, which is not shown.
    expect(gutter).to_have_count(6)
    gutter.nth(LINE).click()
    expect(gutter.nth(LINE).locator(".cm-breakpoint-icon")).to_be_visible()
    notebook.run_cell(TASK)
    run = notebook.start_cell(STEP)
    stopped = notebook.cell(TASK).locator(".cm-line.jp-DebuggerEditor-highlight")
    expect(stopped).to_have_text("    flight = envelope.message")
    page.locator("[data-command='debugger:next']:visible").click()
    expect(stopped).to_have_text("    delay = flight['delay']")
    variables = page.locator(".jp-DebuggerVariables")
    expect(variables).to_contain_text("envelope")
    expect(variables).to_contain_text("flight")
    expect(page.locator(".jp-DebuggerCallstack")).to_contain_text("process")
    if folder := os.environ.get("STREAMBENCH_SCREENSHOTS"):
        notebook.screenshot(Path(folder) / "debugger.png")
    page.locator("[data-command='debugger:continue']:visible").click()
    notebook.wait_run(run)
    notebook.wait_text("mem.flights.0@0", cell=STEP)
    assert notebook.page_errors == []
