"""The live panel in a real JupyterLab: it ticks, its buttons act, its last frame is true, and a table stays
when it is gone.

``STREAMBENCH_SCREENSHOTS=DIR pytest tests/browser/test_panel.py`` leaves its pictures in DIR. Those of the
README and of the tutorials are taken by ``docs/panel.py``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS, Notebook
from tests.surroundings import only_soak

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)

CONFIG = """%%streamconfig flights
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
systems.mem.streams.airports.samza.bootstrap=true
systems.mem.streams.flights.samza.priority=1
systems.mem.streams.backfill.samza.priority=0
task.inputs=mem.airports,mem.flights,mem.backfill,mem.rules
stores.airports.factory=memory
stores.airports.key.serde=string
stores.airports.msg.serde=json
stores.worst.factory=memory
stores.worst.key.serde=string
stores.worst.msg.serde=json
"""

TASK = """%%streamtask delays
class Delays:
    def init(self, context):
        self.airports, self.worst = context.store("airports"), context.store("worst")

    def process(self, envelope, collector, coordinator):
        code = envelope.key
        if envelope.ssp.stream == "flights":
            delay = envelope.message["delay"]
            airport = self.airports.get(code) or {"n": 0, "late": 0}
            self.airports.put(code, {"n": airport["n"] + 1, "late": airport["late"] + (delay > 60)})
            if delay > (self.worst.get(code) or 0):
                self.worst.put(code, delay)
                collector.send("mem.worst", {"airport": code, "delay": delay}, key=code)
"""

STREAMS = """import random
random.seed(7)
codes = ["ORD", "ATL", "JFK", "SFO", "EWR", "DEN", "SEA", "BOS", "LAX", "PHX"]
airports = [{"code": code, "name": f"airport {code}"} for code in codes * 4]
flights = [
    {"date": "2001-02-25 18:40", "delay": random.randrange(-10, 240), "distance": random.randrange(90, 2500),
     "origin": random.choice(codes), "destination": random.choice(codes)}
    for _ in range(400)
]
%stream streams create mem.airports mem.backfill mem.rules mem.worst
%stream streams create mem.flights --partitions 3
%stream send mem.airports --from airports --key-field code
%stream send mem.flights --from flights --key-field origin
%stream send mem.backfill --from flights[:60]
"""


def message_number(notebook: Notebook, cell: int) -> int:
    """What the panel says how far it is."""
    found = re.search(r"message ([\d,]+)", notebook.output(cell).locator(".sb-time").inner_text())
    return int(found[1].replace(",", "")) if found else 0


def picture(notebook: Notebook, name: str, cell: int, tmp_path: Path) -> Path:
    """A picture of the panel alone, where the environment says, else where nobody looks."""
    target = Path(os.environ.get("STREAMBENCH_SCREENSHOTS") or tmp_path) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    notebook.output(cell).locator(".sb-panel").screenshot(path=target)
    return target


def keys_and_strip_move_it_in_time(notebook: Notebook, show: int) -> None:
    """From message 169, and back to it."""
    panel = notebook.output(show)
    expect(panel.get_by_role("tab", name="State")).to_contain_text("1 changed")
    expect(panel.locator(".sb-after").first).to_be_visible()
    panel.get_by_role("tab", name="Checkpoints").click()
    expect(panel.locator(".sb-after").first).to_be_hidden()
    expect(panel.locator("time").first).to_contain_text("ago")
    panel.locator("h4").first.click()  # gives it the keys
    notebook.page.keyboard.press("ArrowLeft")
    expect(panel.locator(".sb-pill")).to_have_text("past")
    notebook.wait_text("at message 168 of 169", cell=show)
    panel.locator(".sb-strip").click(position={"x": 5, "y": 8})
    expect(panel.locator(".sb-why-still")).to_have_text(re.compile(r"at message 1\d of 169"))
    panel.get_by_role("button", name="live").click()
    expect(panel.locator(".sb-pill")).to_have_text("paused")
    panel.get_by_role("tab", name="State").click()


def test_a_job_is_stepped_and_looked_at(lab: JupyterLab, tmp_path: Path) -> None:
    show = 5
    notebook = lab.new(
        "%load_ext streambench",
        CONFIG,
        TASK,
        STREAMS,
        "%stream create delays --config flights",
        "%stream show",
        "%stream step 88\n%stream commit\n%stream step 70",
        "%stream stop",
    )
    for cell in range(show + 1):
        notebook.run_cell(cell)
    panel = notebook.output(show)
    expect(panel.locator("tr", has_text="airports.0").locator("td").nth(2)).to_have_text("0")
    panel.get_by_role("button", name="step", exact=True).click()
    expect(panel.locator("tr", has_text="airports.0").locator("td").nth(2)).to_have_text("1")
    expect(panel.locator(".sb-why")).to_contain_text("airports.0 @ 0")
    panel.get_by_role("button", name="step 10").click()
    notebook.wait_text("message 11", cell=show)
    notebook.run_cell(6)
    notebook.wait_text("message 169", cell=show)
    strip = panel.locator(".sb-strip")
    expect(strip).to_have_attribute("data-ticks", re.compile(r"^\d{160}$"))
    expect(strip).to_have_attribute("data-commits", "89")  # message 99, counted from the first that is shown
    expect(panel.locator("tr.sb-held", has_text="backfill.0")).to_contain_text("priority")

    keys_and_strip_move_it_in_time(notebook, show)
    assert picture(notebook, "panel.png", show, tmp_path).stat().st_size > 10_000
    notebook.page.evaluate(
        "window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    expect(notebook.page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    expect(notebook.page.locator("#jupyterlab-splash")).to_have_count(0)
    picture(notebook, "panel-dark.png", show, tmp_path)
    notebook.page.evaluate(
        "window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})"
    )
    expect(notebook.page.locator("body")).to_have_attribute("data-jp-theme-light", "true")

    notebook.run_cell(7)
    expect(panel.locator(".sb-panel")).to_have_count(0)
    notebook.wait_text("delays · stopped · everything is committed", cell=show)
    assert notebook.page_errors == []


def test_a_running_job_ticks_until_paused_and_its_last_frame_is_true(lab: JupyterLab) -> None:
    show, stop = 2, 4
    notebook = lab.new(
        "%load_ext streambench\nfrom streambench.model import SystemStream, OutgoingMessageEnvelope\n",
        "%%streamtask ring\n"
        "def process(envelope, collector, coordinator):\n"
        "    collector.send(OutgoingMessageEnvelope(SystemStream('mem', 'ring'), envelope.message, "
        "partition=0))\n",
        "from streambench import Config\n"
        "mem = {'systems.mem.samza.factory': 'memory', 'systems.mem.samza.offset.default': 'oldest'}\n"
        "config = Config({**mem, 'task.inputs': 'mem.ring'})\n"
        "%stream create ring --config config\n"
        "%stream streams create mem.ring\n%stream send mem.ring round --partition 0\n%stream show",
        "%stream",
        "%stream stop",
        "%stream",
    )
    for cell in range(show + 1):
        notebook.run_cell(cell)
    panel = notebook.output(show)
    panel.get_by_role("button", name="run").click()
    expect(panel.locator(".sb-pill")).to_have_text("running")
    for _ in range(3):
        before = message_number(notebook, show)
        notebook.page.wait_for_function(
            "(before) => { const text = document.querySelector('.sb-time').innerText.replaceAll(',', "
            "'').match(/message (\\d+)/);"
            " return text && Number(text[1]) > before; }",
            arg=before,
        )
    panel.get_by_role("button", name="pause").click()
    expect(panel.locator(".sb-pill")).to_have_text("paused")
    notebook.run_cell(3)
    processed = int(notebook.outputs(3)[0]["data"]["text/plain"].splitlines()[1].split()[-2])
    assert message_number(notebook, show) == processed > 0

    notebook.run_cell(stop)
    notebook.wait_text("ring · stopped", cell=show)
    notebook.save()
    notebook = lab.reopen(notebook)
    table = notebook.output(show)
    expect(table.locator("table")).to_contain_text("ring.0")
    expect(table).to_contain_text(f"message {processed:,}")
    expect(table).not_to_contain_text("model not found")
    assert notebook.page_errors == []


def test_a_reloaded_page_has_an_acting_panel_and_gets_its_table_from_stop(
    lab: JupyterLab,
) -> None:
    """JupyterLab forgets with the page which output an update is for: the table then stands where it was
    stopped."""
    show, stop = 2, 3
    notebook = lab.new(
        "%load_ext streambench",
        "%%streamtask idle\ndef process(envelope, collector, coordinator):\n    pass\n",
        "%stream streams create log.quiet\n%stream send log.quiet '\"hello\"'\n%stream create idle --inputs "
        "log.quiet\n%stream show",
        "%stream stop",
    )
    for cell in range(show + 1):
        notebook.run_cell(cell)
    expect(notebook.output(show).locator(".sb-pill")).to_have_text("paused")
    notebook.save()
    notebook.reload()
    panel = notebook.output(show)
    panel.get_by_role("button", name="step", exact=True).click()
    expect(panel.locator(".sb-time")).to_contain_text("message 1")
    notebook.run_cell(stop)
    expect(notebook.output(stop).locator("table")).to_contain_text("quiet.0")
    assert notebook.page_errors == []


def test_a_panel_without_its_kernel_says_so_and_shows_its_table_on_reload(
    lab: JupyterLab, tmp_path: Path
) -> None:
    show, kill = 2, 4
    notebook = lab.new(
        "%load_ext streambench",
        "%%streamtask seen\ndef process(envelope, collector, coordinator):\n    pass\n",
        "%stream streams create log.some\n%stream send log.some --from [1,2,3]\n%stream create seen --inputs "
        "log.some\n%stream show",
        "%stream step 2",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    )
    for cell in range(kill):
        notebook.run_cell(cell)
    panel = notebook.output(show)
    expect(panel.locator(".sb-time")).to_contain_text("message 2")
    expect(panel.locator(".sb-stand-in")).to_be_hidden()
    notebook.save()
    notebook.start_cell(kill)
    expect(panel.locator(".sb-pill")).to_have_text("kernel ended")
    expect(panel.locator(":is(button[data-do], input, select):enabled")).to_have_count(0)
    expect(panel.locator(".sb-age")).to_contain_text("nothing draws it any more")
    notebook.page.get_by_role("button", name="Ok").click()
    picture(notebook, "panel-gone.png", show, tmp_path)

    notebook.reload()
    expect(panel.locator(".sb-stand-in")).to_be_visible()
    expect(panel.locator(".sb-stand-in")).to_contain_text("after message 2, 1 left")
    expect(panel.get_by_text("model not found")).to_be_hidden()
    assert notebook.page_errors == []


@only_soak("test_panel_tabs.py looks at narrow pages")
def test_long_names_leave_room_for_bars_and_tags_on_wide_and_narrow_pages(
    lab: JupyterLab, tmp_path: Path
) -> None:
    show, middling, long = 3, "m" * 46, "n" * 107
    notebook = lab.new(
        "%load_ext streambench",
        f"%%streamconfig named\nsystems.mem.samza.factory=memory\ntask.inputs=mem.{middling},mem.{long}\n"
        f"systems.mem.samza.offset.default=oldest\nsystems.mem.streams.{middling}.samza.bootstrap=true\n",
        "%%streamtask named\ndef process(envelope, collector, coordinator):\n"
        f"    collector.send('mem.{long}', 1, key='k')\n",
        f"many = [1] * 600\n%stream streams create mem.{middling} mem.{long} --partitions 6\n"
        f"%stream send mem.{middling} --from many\n%stream send mem.{long} --from many\n"
        "%stream create named --config named\n%stream step 20\n%stream show",
    )
    for cell in range(show + 1):
        notebook.run_cell(cell)
    panel = notebook.output(show)
    expect(panel.locator(".sb-lane")).to_have_count(12)
    for width in (1400, 700):
        notebook.page.set_viewport_size({"width": width, "height": 960})
        rows = panel.locator(".sb-rows")
        expect(panel.locator(".sb-part").last).to_have_text(".5")
        # The panel takes its new width a moment after the page.
        notebook.page.wait_for_function(
            "() => [...document.querySelectorAll('.sb-name')]"
            ".every((name) => name.scrollWidth <= name.clientWidth)"
        )
        widths = panel.locator(".sb-head").evaluate_all("(heads) => heads.map((head) => head.offsetWidth)")
        assert min(widths) >= 10  # room for the ellipsis
        assert rows.evaluate("(rows) => rows.scrollWidth - rows.clientWidth") == 0
        assert (
            panel.locator(".sb-lane").evaluate_all(
                "(bars) => Math.min(...bars.map((bar) => bar.offsetWidth))"
            )
            >= 80
        )
        assert (
            panel.locator("tr:last-child td").first.evaluate(
                "(name) => name.offsetWidth / name.closest('.sb-rows').clientWidth"
            )
            <= 0.31
        )
        assert panel.locator(".sb-strip").evaluate("(strip) => strip.offsetWidth") >= 200
        picture(notebook, f"panel-{width}.png", show, tmp_path)
        outputs = panel.locator('[data-page="outputs"]')
        panel.get_by_role("tab", name="Outputs").click()
        expect(outputs.get_by_text(re.compile(r"…n+\.\d$")).first).to_be_visible()
        expect(outputs.get_by_text(re.compile(r"…m+\.\d@\d$")).first).to_be_visible()
        cut = "(all) => all.filter((each) => each.scrollWidth > each.clientWidth).length"
        assert outputs.locator("td").evaluate_all(cut) == 0, width
    notebook.page.set_viewport_size({"width": 1280, "height": 960})
    assert notebook.page_errors == []


def test_a_stuck_task_is_shown_with_its_line_and_aborted(lab: JupyterLab, tmp_path: Path) -> None:
    show = 3
    notebook = lab.new(
        "%load_ext streambench",
        "%%streamtask slow\nimport time\n\ndef process(envelope, collector, coordinator):\n"
        "    while envelope.key == 'k2':\n        time.sleep(0.01)",
        "%stream streams create log.inp\n%stream send log.inp 1 --key k1\n%stream send log.inp 2 --key k2",
        "%stream create slow --inputs log.inp\n%stream show\n%stream run",
    )
    for cell in range(show + 1):
        notebook.run_cell(cell)
    panel = notebook.output(show)
    expect(panel.locator(".sb-pill")).to_have_text("busy")
    expect(panel.locator(".sb-why-still")).to_have_text(
        re.compile(r"\d+ s at log\.inp\.0@1 key k2, cell \[2\] line (5|6): (time\.sleep|while)")
    )
    expect(panel.locator("tr.sb-won", has_text="inp.0")).to_contain_text("busy")
    expect(panel.locator(".sb-why")).to_contain_text("inp.0 @ 1 key k2")
    expect(panel.locator(".sb-msg")).to_have_text("2")
    expect(panel.locator(".sb-page.sb-shown .sb-kept")).to_contain_text("the task is busy with one message")
    picture(notebook, "panel-stuck.png", show, tmp_path)
    high = panel.locator(".sb-panel").evaluate("(panel) => panel.offsetHeight")
    panel.get_by_role("button", name="abort").click()
    expect(panel.locator(".sb-notice")).to_contain_text(
        "aborted: nothing since the last checkpoint is committed"
    )
    expect(panel.locator(".sb-pill")).to_have_text("failed")
    red = panel.locator(".sb-trouble").evaluate("(text) => getComputedStyle(text).color")
    assert panel.locator(".sb-notice").evaluate("(text) => getComputedStyle(text).color") != red
    assert panel.locator(".sb-panel").evaluate("(panel) => panel.offsetHeight") == high
    assert notebook.page_errors == []
