"""A live panel holds still: nothing moves under the pointer while its job steps and runs. And it follows the
hand on the strip of choices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS, Notebook
from tests.browser.test_panel import picture

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)

SHOW = 3
CELLS = (
    "%load_ext streambench",
    "%%streamconfig steady\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
    "task.inputs=mem.numbers\nstores.sums.factory=memory\nstores.sums.key.serde=string\n"
    "stores.sums.msg.serde=json\n",
    "%%streamtask steady\nclass Sums:\n    def init(self, context):\n"
    "        self.sums = context.store('sums')\n\n"
    "    def process(self, envelope, collector, coordinator):\n"
    "        total = (self.sums.get('all') or 0) + envelope.message['n']\n"
    "        self.sums.put('all', total)\n"
    "        if envelope.message['n'] % 3 == 0:\n"
    "            collector.send('mem.thirds', {'total': total, 'text': 'long ' * (total % 50)})\n",
    "numbers = [{'n': n, 'text': 'long ' * (n % 40)} for n in range(1, 81)]\n"
    "%stream streams create mem.numbers --partitions 4\n%stream streams create mem.thirds\n"
    "%stream send mem.numbers --from numbers\n%stream create steady --config steady\n%stream show",
    "%stream send mem.numbers '{\"n\": \"no number at all\"}'",
)


@pytest.fixture
def notebook(lab: JupyterLab) -> Notebook:
    opened = lab.new(*CELLS)
    for cell in range(SHOW + 1):
        opened.run_cell(cell)
    return opened


def places(panel: Locator) -> list[list[float]]:
    """The place and size of what is clicked, and of the whole."""
    return panel.locator(".sb-panel, .sb-strip, .sb-tabs button, .sb-buttons button").evaluate_all(
        "(all) => all.map((each) => [each.offsetLeft, each.offsetTop, each.offsetWidth, each.offsetHeight])"
    )


def test_nothing_moves_while_a_job_is_stepped_run_paused_and_fails(notebook: Notebook) -> None:
    panel = notebook.output(SHOW)
    number = panel.locator(".sb-time")
    begun = places(panel)
    for message in range(1, 7):
        panel.get_by_role("button", name="step", exact=True).click()
        expect(number).to_contain_text(f"message {message}")
        assert places(panel) == begun, message
    panel.get_by_role("button", name="run", exact=True).click()
    expect(number).to_contain_text("message 80")
    expect(panel.locator(".sb-pill")).to_have_text("running")
    shown = panel.locator(".sb-page.sb-shown")
    expect(shown).to_contain_text("as it was when the job last stood still")
    expect(shown).to_contain_text("Changed by message 6")
    assert places(panel) == begun
    panel.get_by_role("button", name="pause").click()
    expect(shown).to_contain_text("Changed by message 80")
    expect(shown).not_to_contain_text("as it was when the job last stood still")
    notebook.run_cell(SHOW + 1)
    panel.get_by_role("button", name="step", exact=True).click()
    expect(panel.locator(".sb-pill")).to_have_text("failed")
    assert places(panel) == begun
    # All of what the bar cuts.
    expect(panel.locator(".sb-trouble")).to_contain_text("TypeError: unsupported operand type(s) for +")
    assert notebook.page_errors == []


def test_a_panel_says_that_its_message_is_not_processed_yet(notebook: Notebook, tmp_path: Path) -> None:
    panel = notebook.output(SHOW)
    panel.get_by_role("tab", name="Breakpoints").click()
    box = panel.locator('[data-ask="break"]')
    box.fill("message['n'] == 9")
    box.press("Enter")
    expect(panel.locator("tr", has_text="== 9")).to_be_visible()
    panel.get_by_role("button", name="run", exact=True).click()
    expect(panel.locator(".sb-pill")).to_have_text("at a breakpoint")
    expect(panel.locator(".sb-why-still")).to_have_text("breakpoint 1: message['n'] is 9")
    expect(panel.locator("h4", has_text="Stopped before this one")).to_be_visible()
    expect(panel.locator(".sb-strip")).to_have_attribute("data-held", "")
    picture(notebook, "panel-break.png", SHOW, tmp_path)
    panel.get_by_role("button", name="step", exact=True).click()
    expect(panel.locator("h4", has_text="Why this one")).to_be_visible()
    assert notebook.page_errors == []


def test_the_job_follows_the_pointer_along_the_strip(notebook: Notebook, tmp_path: Path) -> None:
    panel, mouse = notebook.output(SHOW), notebook.page.mouse
    for _ in range(3):
        panel.get_by_role("button", name="step 10").click()
    expect(panel.locator(".sb-time")).to_contain_text("message 30")
    tip = panel.locator(".sb-tip")

    def move_to(message: int) -> None:
        box = panel.locator(".sb-strip").bounding_box()
        assert box is not None
        mouse.move(box["x"] + box["width"] * (message - 0.5) / 40, box["y"] + box["height"] / 2)

    move_to(12)
    expect(tip).to_contain_text(re.compile(r"12 mem\.numbers\.\d@\d+"))
    expect(tip).to_contain_text("click or drag: go there")
    mouse.down()
    for message in (20, 16, 8):
        move_to(message)
        # It is there while the button of the mouse is still down.
        expect(panel.locator(".sb-time")).to_contain_text(re.compile(rf"message {message}$"))
        expect(tip).to_contain_text(re.compile(rf"^{message} mem"))
    picture(notebook, "panel-scrubbed.png", SHOW, tmp_path)
    expect(panel.locator(".sb-page.sb-shown")).to_contain_text("Changed by message 8")
    mouse.up()
    expect(panel.locator(".sb-pill")).to_have_text("past")
    expect(tip).to_be_hidden()
    move_to(2)
    expect(tip).to_contain_text(re.compile(r"^2 mem"))
    expect(panel.locator(".sb-time")).to_contain_text("message 8")
    mouse.down()
    mouse.move(0, 0)
    mouse.up()
    expect(tip).to_be_hidden()
    panel.get_by_role("button", name="live").click()
    expect(panel.locator(".sb-time")).to_contain_text("message 30")
    assert notebook.page_errors == []


def test_a_pointer_let_loose_while_the_job_runs_is_not_followed(notebook: Notebook) -> None:
    panel, mouse = notebook.output(SHOW), notebook.page.mouse
    panel.get_by_role("button", name="step 10").click()
    expect(panel.locator(".sb-time")).to_contain_text("message 10")
    strip = panel.locator(".sb-strip")
    box = strip.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 16, box["y"] + box["height"] / 2
    mouse.move(x, y)
    mouse.down()
    expect(panel.locator(".sb-pill")).to_have_text("past")
    # Without the mouse, which is held down.
    panel.get_by_role("button", name="live").dispatch_event("click")
    expect(panel.locator(".sb-pill")).to_have_text("paused")
    panel.get_by_role("button", name="run", exact=True).dispatch_event("click")
    expect(strip).not_to_have_attribute("data-goes", re.compile("."))
    mouse.up()
    panel.get_by_role("button", name="pause", exact=True).click()
    expect(strip).to_have_attribute("data-goes", re.compile("."))
    mouse.move(x, y)
    mouse.move(x + 20, y)
    expect(panel.locator(".sb-tip")).to_contain_text("click or drag: go there")
    expect(panel.locator(".sb-pill")).to_have_text("paused")
    assert notebook.page_errors == []
