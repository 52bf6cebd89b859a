"""The live panel in a real JupyterLab: it ticks, its buttons act, its last frame is true, and a table stays when it is gone.

``STREAMBENCH_SCREENSHOTS=docs pytest tests/browser/test_panel.py`` leaves its pictures there: panel.png (the README's) and panel-dark.png.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.lab import JupyterLab
from tests.browser.notebook import TIMEOUT_SECONDS, Notebook

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)

CONFIG = """%%streamconfig flights
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
systems.mem.streams.airports.samza.bootstrap=true
systems.mem.streams.flights.samza.priority=1
systems.mem.streams.backfill.samza.priority=0
task.inputs=mem.airports,mem.flights,mem.backfill,mem.rules
"""

TASK = """%%streamtask delays
names, late = {}, {}

def process(envelope, collector, coordinator):
    if envelope.ssp.stream == "airports":
        names[envelope.key] = envelope.message["name"]
    elif envelope.ssp.stream == "flights" and envelope.message["delay"] > 60:
        late[envelope.key] = late.get(envelope.key, 0) + 1
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
%stream streams create mem.airports mem.backfill mem.rules
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


def test_a_job_is_stepped_and_looked_at(lab: JupyterLab, tmp_path: Path) -> None:
    show = 5
    notebook = lab.new(
        "%load_ext streambench", CONFIG, TASK, STREAMS, "%stream create delays --config flights", "%stream show",
        "%stream step 88\n%stream commit\n%stream step 70", "%stream stop",
    )  # fmt: skip
    for cell in range(show + 1):
        notebook.run_cell(cell)
    panel = notebook.output(show)
    expect(panel.locator("tr", has_text="airports.0").locator("td").nth(2)).to_have_text("0")
    panel.get_by_role("button", name="step ▶").click()
    expect(panel.locator("tr", has_text="airports.0").locator("td").nth(2)).to_have_text("1")
    expect(panel.locator(".sb-why")).to_contain_text("airports.0 @ 0")
    panel.get_by_role("button", name="step 10").click()
    notebook.wait_text("message 11", cell=show)
    notebook.run_cell(6)
    notebook.wait_text("message 169", cell=show)
    expect(panel.locator(".sb-strip i")).to_have_count(160)
    expect(panel.locator(".sb-strip i.sb-commit")).not_to_have_count(0)
    expect(panel.locator("tr.sb-held", has_text="backfill.0")).to_contain_text("priority")

    assert picture(notebook, "panel.png", show, tmp_path).stat().st_size > 10_000
    notebook.page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    expect(notebook.page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    picture(notebook, "panel-dark.png", show, tmp_path)
    notebook.page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    expect(notebook.page.locator("body")).to_have_attribute("data-jp-theme-light", "true")

    notebook.run_cell(7)
    expect(panel.locator(".sb-panel")).to_have_count(0)
    notebook.wait_text("delays stopped everything is committed", cell=show)
    assert notebook.page_errors == []


def test_a_job_that_runs_ticks_until_it_is_paused_and_its_last_frame_is_true(lab: JupyterLab) -> None:
    show, stop = 2, 4
    notebook = lab.new(
        "%load_ext streambench\nfrom streambench.model import SystemStream, OutgoingMessageEnvelope\n",
        "%%streamtask ring\n"
        "def process(envelope, collector, coordinator):\n"
        "    collector.send(OutgoingMessageEnvelope(SystemStream('mem', 'ring'), envelope.message, partition=0))\n",
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
            "(before) => { const text = document.querySelector('.sb-time').innerText.replaceAll(',', '').match(/message (\\d+)/);"
            " return text && Number(text[1]) > before; }",
            arg=before,
        )
    panel.get_by_role("button", name="pause").click()
    expect(panel.locator(".sb-pill")).to_have_text("paused")
    notebook.run_cell(3)
    processed = int(notebook.outputs(3)[0]["data"]["text/plain"].splitlines()[1].split()[-2])
    assert message_number(notebook, show) == processed > 0

    notebook.run_cell(stop)
    notebook.wait_text("ring stopped", cell=show)
    notebook.save()
    notebook = lab.reopen(notebook)
    table = notebook.output(show)
    expect(table.locator("table")).to_contain_text("ring.0")
    expect(table).to_contain_text(f"message {processed:,}")
    expect(table).not_to_contain_text("model not found")
    assert notebook.page_errors == []


def test_a_page_that_is_loaded_again_has_a_panel_that_acts_and_gets_its_table_from_stop(lab: JupyterLab) -> None:
    """JupyterLab forgets with the page which output an update is for: the table then stands where it was stopped."""
    show, stop = 2, 3
    notebook = lab.new(
        "%load_ext streambench",
        "%%streamtask idle\ndef process(envelope, collector, coordinator):\n    pass\n",
        "%stream streams create log.quiet\n%stream send log.quiet hello\n%stream create idle --inputs log.quiet\n%stream show",
        "%stream stop",
    )
    for cell in range(show + 1):
        notebook.run_cell(cell)
    expect(notebook.output(show).locator(".sb-pill")).to_have_text("paused")
    notebook.save()
    notebook.reload()
    panel = notebook.output(show)
    panel.get_by_role("button", name="step ▶").click()
    expect(panel.locator(".sb-time")).to_contain_text("message 1")
    notebook.run_cell(stop)
    expect(notebook.output(stop).locator("table")).to_contain_text("quiet.0")
    assert notebook.page_errors == []
