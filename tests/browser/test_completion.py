"""Tab and Shift-Tab on the lines of the magics in a real JupyterLab, as they are typed."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS, Notebook

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)

CELLS = (
    "%load_ext streambench",
    "%%streamconfig late\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
    "task.inputs=mem.flights\n",
    "def process(envelope, collector, coordinator): pass\n"
    "flights = [{'delay': 5, 'airport': 'ORD'}]\n%stream streams create mem.flights\n"
    "%stream send mem.flights --from flights\n%stream create late --task process --config late\n"
    "%stream step",
    "",
)
LAST = 3


def type_instead(notebook: Notebook, text: str) -> None:
    """Type a text into the last cell, in place of what is there."""
    editor = notebook.cell(LAST).locator(".cm-content")
    editor.click()
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.press("Delete")
    for number, line in enumerate(text.split("\n")):
        if number:
            notebook.page.keyboard.press("Enter")
        notebook.page.keyboard.type(line)


def test_tab_completes_conditions_tasks_and_keys_as_they_are_typed(lab: JupyterLab) -> None:
    notebook = lab.new(*CELLS)
    for cell in range(LAST):
        notebook.run_cell(cell)
    editor = notebook.cell(LAST).locator(".cm-content")
    offered = notebook.page.locator(".jp-Completer .jp-mod-active")
    for text, completed in (
        ("%stream break message['del", "message['delay"),
        ("%%streamtask More\ndef process(it, collector, coordinator):\nit.off", "it.offset"),
        ("%%streamtask More\ndef process(it, collector, coordinator):\ncollector.", "collector.send"),
        ("%%streamconfig more\ntask.checkpoint.sys", "task.checkpoint.system="),
        ("%stream send mem.flights --from flights --key-field air", "--key-field airport"),
    ):
        type_instead(notebook, text)
        notebook.page.keyboard.press("Tab")
        # The list stays open on a single offer too: Enter takes the first.
        expect(offered).to_be_visible()
        notebook.page.keyboard.press("Enter")
        expect(editor).to_contain_text(completed)


def test_shift_tab_explains_a_sub_command(lab: JupyterLab) -> None:
    notebook = lab.new(*CELLS)
    notebook.run_cell(0)
    type_instead(notebook, "%stream step")
    notebook.page.keyboard.press("Shift+Tab")
    shown = notebook.page.locator(".jp-Tooltip")
    expect(shown).to_contain_text("usage: %stream step")
    expect(shown).to_contain_text("--pdb")
