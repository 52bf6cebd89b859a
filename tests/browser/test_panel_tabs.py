"""The tabs of a panel in a real JupyterLab: breakpoints, watches, causes of outputs, rewinds."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS
from tests.browser.test_panel import picture

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)

CELLS = (
    "%load_ext streambench",
    "%%streamconfig tabs\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
    "task.inputs=mem.numbers\nstores.sums.factory=memory\nstores.sums.key.serde=string\n"
    "stores.sums.msg.serde=json\n",
    "%%streamtask tabs\nclass Sums:\n    def init(self, context):\n"
    "        self.sums = context.store('sums')\n\n"
    "    def process(self, envelope, collector, coordinator):\n"
    "        total = (self.sums.get('all') or 0) + envelope.message['n']\n"
    "        self.sums.put('all', total)\n"
    "        self.sums.put('all of 01998f3c-7a5e-7cc1-b0a4-5f2d9b1c3e77', {'total': [total] * 9})\n"
    "        if envelope.message['n'] % 3 == 0:\n"
    "            collector.send('mem.thirds', {'total': total})\n",
    "numbers = [{'n': n} for n in range(1, 41)]\n%stream streams create mem.numbers mem.thirds\n"
    "%stream send mem.numbers --from numbers\n%stream create tabs --config tabs\n%stream step 2\n"
    "%stream show",
    "%stream stop",
)


def ask(panel: Locator, box: str, text: str) -> None:
    """Type into a box of the panel."""
    field = panel.locator(f'[data-ask="{box}"]')
    field.click()
    field.press_sequentially(text)
    field.press("Enter")
    expect(field).to_have_value("")


def open_tab(panel: Locator, name: str) -> Locator:
    panel.get_by_role("tab", name=name).click()
    return panel.locator(".sb-page.sb-shown")


def cut_off(tab: Locator) -> list[str]:
    """The cells and buttons in the halves of a tab that are not whole."""
    return tab.locator(".sb-two > div :is(td, th, button)").evaluate_all(
        "(all) => all.filter((each) => each.scrollWidth > each.clientWidth + 1"
        " || each.getBoundingClientRect().right"
        "    > each.closest('.sb-two > div').getBoundingClientRect().right + 1"
        ").map((each) => each.textContent)"
    )


def test_boxes_and_buttons_of_the_tabs_do_what_they_say(lab: JupyterLab, tmp_path: Path) -> None:
    show = 3
    notebook = lab.new(*CELLS)
    for cell in range(show + 1):
        notebook.run_cell(cell)
    panel = notebook.output(show)
    number = panel.locator(".sb-time")

    tab = open_tab(panel, "Watches")
    ask(panel, "watch", "n=message['n']")
    expect(tab.locator("tr", has_text="message['n']")).to_contain_text("2")
    ask(panel, "until", "message['n'] == 11")
    expect(number).to_contain_text("message 10")
    expect(tab.locator("tr.sb-won")).to_contain_text("changed")

    tab = open_tab(panel, "Breakpoints")
    tab.locator(".sb-kind").select_option("output")
    ask(panel, "break", "output.message['total'] > 100")
    expect(tab.locator("tr", has_text="> 100")).to_contain_text("output")
    panel.get_by_role("button", name="run").click()
    expect(tab.locator(".sb-stopped")).to_contain_text("breakpoint 1")
    expect(number).to_contain_text("message 15")
    tab.get_by_role("button", name="disable").click()
    expect(tab.get_by_role("button", name="enable")).to_be_visible()
    picture(notebook, "panel-breakpoints.png", show, tmp_path)

    tab = open_tab(panel, "Outputs")
    tab.locator("a", has_text="mem.numbers.0@8").click()
    expect(number).to_contain_text("message 9")
    expect(panel.locator(".sb-pill")).to_have_text("past")
    panel.get_by_role("button", name="forward").click()
    expect(number).to_contain_text("message 10")
    panel.get_by_role("button", name="live").click()
    panel.get_by_role("button", name="commit").click()

    tab = open_tab(panel, "Checkpoints")
    commit = tab.locator("tr", has=notebook.page.locator("[data-confirm]")).first
    expect(commit.locator("td.r")).to_have_text("0")
    panel.get_by_role("button", name="step 10").click()
    expect(number).to_contain_text("message 25")
    expect(commit.locator("td.r")).to_have_text("10")
    commit.get_by_role("button", name="rewind").click()
    picture(notebook, "panel-rewind.png", show, tmp_path)
    commit.get_by_role("button", name="really?").click()
    expect(panel.locator(".sb-notice")).to_contain_text("rewound to commit")
    expect(panel.locator("tr", has_text="numbers.0").first.locator("td").nth(2)).to_have_text("15")
    expect(panel.locator(".sb-pill")).to_have_text("paused")
    tab = open_tab(panel, "State")
    expect(tab).to_contain_text(re.compile(r"all\s*120"))
    panel.get_by_role("button", name="step 10").click()
    expect(number).to_contain_text("message 10")
    expect(tab).to_contain_text("Changed by message 10")
    assert cut_off(tab) == []
    picture(notebook, "panel-changes.png", show, tmp_path)
    tab.locator("a", has_text="all").first.click()
    expect(tab.locator(".sb-spark")).to_be_visible()
    picture(notebook, "panel-state.png", show, tmp_path)
    assert cut_off(tab) == []
    assert notebook.page_errors == []


def test_all_tabs_are_reached_by_keyboard_on_narrow_pages(lab: JupyterLab, tmp_path: Path) -> None:
    show = 3
    notebook = lab.new(*CELLS)
    for cell in range(show + 1):
        notebook.run_cell(cell)
    notebook.page.set_viewport_size({"width": 700, "height": 960})
    panel = notebook.output(show)
    unnamed = panel.locator(".sb-root :is(button, input, select, canvas, [role])").evaluate_all(
        "(all) => all.filter((each) => !(each.ariaLabel || each.textContent.trim()"
        " || ['tablist', 'alert', 'status'].includes(each.role))).map((each) => each.outerHTML)"
    )
    assert unnamed == []
    panel.get_by_role("tab", name="State").focus()
    for name in ("Outputs", "Checkpoints", "Metrics", "Watches", "Breakpoints"):
        notebook.page.keyboard.press("Tab")
        notebook.page.keyboard.press("Enter")
        expect(panel.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        widest = panel.locator(".sb-panel").evaluate("(panel) => panel.scrollWidth - panel.clientWidth")
        assert widest <= 0, name
    notebook.page.keyboard.press("Tab")
    expect(panel.locator(".sb-kind")).to_be_focused()
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.type("message['n'] == 5")
    notebook.page.keyboard.press("Enter")
    expect(panel.locator("tr", has_text="== 5")).to_be_visible()
    panel.get_by_role("button", name="step 10").click()
    strip = panel.get_by_role("slider")
    expect(strip).to_have_attribute("aria-valuetext", re.compile("message 4 of 4"))
    strip.focus()
    for key, position in (("Home", 0), ("ArrowRight", 1), ("PageDown", 4), ("ArrowLeft", 3), ("End", 4)):
        notebook.page.keyboard.press(key)
        expect(strip).to_have_attribute("aria-valuenow", str(position))
    expect(panel.locator(".sb-pill")).to_have_text("at a breakpoint")
    picture(notebook, "panel-700-breakpoints.png", show, tmp_path)
    notebook.page.set_viewport_size({"width": 1280, "height": 960})
    assert notebook.page_errors == []


def test_a_folded_stream_has_a_pixel_for_each_of_its_partitions(lab: JupyterLab, tmp_path: Path) -> None:
    notebook = lab.new(
        "%load_ext streambench",
        "%%streamtask many\ndef process(envelope, collector, coordinator):\n    pass\n",
        "config = {'systems.mem.samza.factory': 'memory', 'systems.mem.samza.offset.default': 'oldest',\n"
        "          'task.inputs': 'mem.many'}\n"
        "keys = [{'k': str(n)} for n in range(700)]\n%stream create many --config config\n"
        "%stream streams create mem.many --partitions 1000\n"
        "%stream send mem.many --from keys --key-field k\n%stream step 700\n%stream show\n"
        "job = %stream job many\nparts = job.session.snapshot().partitions\n"
        "print(sum(each.processed > 0 for each in parts))",
    )
    for cell in range(3):
        notebook.run_cell(cell)
    read = int(re.findall(r"\d+", notebook.outputs(2)[-1]["text"])[-1])
    cells = notebook.output(2).locator(".sb-cells")
    opaque = cells.evaluate(
        "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data"
        ".filter((value, at) => at % 4 === 3 && value === 255).length"
    )
    tall = cells.evaluate("(canvas) => Math.floor(canvas.height / Math.ceil(1000 / canvas.width))")
    assert opaque == read * tall > 0
    picture(notebook, "panel-folded.png", 2, tmp_path)

    panel = notebook.output(2)
    panel.locator("a.sb-name").click()
    inputs = panel.locator(".sb-rows")
    last = inputs.locator("tr[data-row]").last
    expect(last).to_have_attribute("data-rows", re.compile(r"\d+"))
    for to, row in (("0.5 * box.scrollHeight", "many.500"), ("box.scrollHeight", "many.999")):
        height = inputs.evaluate(f"(box) => (box.scrollTo(0, {to}), box.scrollHeight)")
        shown = inputs.locator("tr", has=notebook.page.get_by_text(f".{row[-3:]}", exact=True))
        expect(shown).to_be_in_viewport()
        assert abs(inputs.evaluate("(box) => box.scrollHeight") - height) <= 1
        picture(notebook, f"panel-opened-{row}.png", 2, tmp_path)
    assert len(inputs.locator("tr").all()) < 150
    notebook.page.set_viewport_size({"width": 700, "height": 960})
    notebook.page.wait_for_function("() => document.querySelector('.sb-panel').offsetWidth < 400")
    narrowest = "(bars) => Math.min(...bars.map((bar) => bar.offsetWidth))"
    assert inputs.locator(".sb-lane").evaluate_all(narrowest) >= 80
    picture(notebook, "panel-opened-700.png", 2, tmp_path)
    notebook.page.set_viewport_size({"width": 1280, "height": 960})
    assert notebook.page_errors == []
