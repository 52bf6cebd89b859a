"""The live panel, without a browser: which messages go to the page, who sends them, and what is left when it
is closed."""

from __future__ import annotations

import cProfile
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ipywidgets.widgets import widget as widgets

from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.debug.control.session import Session
from streambench.debug.view.panel_state import PanelStateReader, static_view
from streambench.errors import StreambenchError
from streambench_magics.panel.frozen import hidden_table_html, table_html
from streambench_magics.panel.panel import WIDGET_VIEW, Panel
from streambench_magics.panel.render import panel_html
from tests.magics.conftest import Shell

PATIENCE_S = 60.0


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        threading.Event().wait(0.005)


class Page:
    """What a browser would see: the messages of all widgets, and the panel that ``%stream show`` opened."""

    def __init__(self, ip: Shell) -> None:
        self.ip = ip
        self.updates: list[tuple[str, str]] = []

    @property
    def panel(self) -> Panel:
        return self.ip.magics._panels["Count"]

    @property
    def html(self) -> str:
        return self.updates[-1][1]

    def press(self, command: str) -> None:
        self.panel.widget._handle_custom_msg({"do": command}, [])


@pytest.fixture
def page(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A page that shows the panel of the job Count."""
    page = Page(ip)

    def sent(self: Any, message: dict[str, Any], buffers: Any = None) -> None:
        if message["method"] == "update" and "html" in message["state"]:
            page.updates.append((threading.current_thread().name, message["state"]["html"]))

    monkeypatch.setattr(widgets.Widget, "_send", sent)
    monkeypatch.setattr(ip.shell, "kernel", object(), raising=False)
    ip.run("%stream create Count --config inputs")
    ip.run("%stream show")
    yield page
    for panel in ip.magics._panels.values():
        panel.close()


def shown(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_the_cell_has_a_view_and_below_it_a_table_that_stands_in(page: Page) -> None:
    view, table = page.ip.displayed
    assert set(view) == {WIDGET_VIEW, "text/plain"}
    assert set(table) == {"text/html", "text/plain"}
    assert f'data-panel="{page.panel.widget.model_id}"' in table["text/html"]
    assert table["text/plain"].startswith("Count  paused  0 processed  lag 4")
    assert "0x" not in table["text/plain"]


def test_the_table_of_a_live_panel_is_kept_fresh_for_when_its_kernel_dies(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    updated: list[dict[str, str]] = []
    monkeypatch.setattr(page.panel._handle, "update", lambda bundle, raw=False: updated.append(bundle))
    page.ip.run("%stream step 3")
    wait_until(lambda: updated and "after message 3" in updated[-1]["text/html"])
    assert "as it was when last drawn, at 20" in updated[-1]["text/html"]


def test_a_step_is_painted_by_the_painter(page: Page) -> None:
    page.ip.run("%stream step")
    wait_until(lambda: page.updates and "message 1" in page.html)
    assert "mem" not in shown(page.html).split("Inputs")[0]
    assert 'class="sb-won"' in page.html
    assert {thread for thread, _ in page.updates} == {"streambench painter Count"}


def test_what_has_not_changed_is_not_painted(page: Page) -> None:
    page.ip.run("%stream step")
    wait_until(lambda: page.updates and "message 1" in page.html)
    looks = page.panel._viewer
    before, seen = len(page.updates), []
    look = looks.take
    looks.take = lambda notice="": seen.append(1) or look(notice)  # type: ignore[method-assign,func-returns-value]
    for expected in (1, 2, 3):
        page.panel._wake.set()
        wait_until(lambda expected=expected: len(seen) >= expected)
    assert len(page.updates) == before


def test_the_buttons_do_what_the_magics_do(page: Page) -> None:
    job = page.ip.magics.bench.jobs["Count"]
    page.press("step")
    wait_until(lambda: page.updates and "message 1" in page.html)
    page.press("commit")
    wait_until(lambda: 'data-commits="0"' in page.html)
    page.press("run")
    wait_until(lambda: "message 4" in page.html)
    assert job.state == "running"
    page.press("pause")
    wait_until(lambda: 'data-state="paused"' in page.html)
    assert job.state == "paused"
    page.ip.run('%stream send mem.clicks --from ["x"]*12')
    page.press("step 10")
    wait_until(lambda: "message 14" in page.html)
    assert job.session.container.processed == 14


def test_a_button_is_pressed_on_no_thread_but_the_workers(page: Page) -> None:
    threads = []
    job = page.ip.magics.bench.jobs["Count"]
    step = job.step
    job.step = lambda n=1: threads.append(threading.current_thread().name) or step(n)
    page.press("step")
    wait_until(lambda: threads)
    assert threads == ["streambench buttons Count"]


def test_unknown_messages_of_the_page_are_ignored(page: Page) -> None:
    for content in ({"do": "rm -rf"}, {"do": 5}, {}, "step", None):
        page.panel._on_message(None, content, [])
    assert page.panel._commands.empty()


def test_every_button_has_a_magic_of_its_name(page: Page) -> None:
    for magic in re.findall(r'title="[^"]+\n(%stream [^"]+)"', page.panel.widget.html):
        page.ip.run(magic.replace("%stream run", "%stream run --until caught-up"))
        page.ip.run("%stream wait")


def test_new_messages_are_seen_although_nothing_runs(page: Page) -> None:
    page.ip.run('%stream send mem.clicks --from ["x"]*7')
    wait_until(lambda: page.updates and "11 left" in page.html)


def test_a_picture_that_is_asked_for_just_as_a_run_begins_is_taken(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.ip.run("%stream run")
    session = page.ip.magics.bench.jobs["Count"].session
    running = Session.running
    here, seen = threading.current_thread(), []

    def not_at_first(self: Session) -> bool:
        if threading.current_thread() is here and not seen:
            seen.append(1)
            return False
        return running.fget(self)

    monkeypatch.setattr(Session, "running", property(not_at_first))
    assert session.snapshot().state == "running"


def test_a_failure_is_on_the_panel(page: Page) -> None:
    page.ip.run("%stream send mem.clicks bad --partition 0")
    page.press("step 10")
    wait_until(lambda: page.updates and 'data-state="failed"' in page.html)
    assert "ValueError: cannot count this" in page.html


def test_what_a_failed_job_refuses_is_on_the_panel(page: Page) -> None:
    page.ip.run("%stream send mem.clicks bad --partition 0")
    page.press("step 10")
    wait_until(lambda: page.updates and 'data-state="failed"' in page.html)
    page.press("break message mesage > 3")
    wait_until(lambda: "unknown name" in page.html)


def test_a_snapshot_of_a_job_that_fails_meanwhile_has_the_reason(
    ip: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.run("%stream step")
    take = Session.snapshot_now

    def fail_behind(self: Session, timeout: float) -> ContainerSnapshot | None:
        found = take(self, timeout)
        with pytest.raises(StreambenchError, match="cannot count this"):
            self.step(10)
        return found

    monkeypatch.setattr(Session, "snapshot_now", fail_behind)
    found = ip.magics.bench.jobs["Count"].snapshot()
    assert found.state == "failed"
    assert "ValueError: cannot count this" in found.reason


def test_what_a_button_cannot_do_stands_at_the_foot(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page.ip.magics.bench.jobs["Count"], "commit", lambda: 1 / 0)
    page.press("commit")
    said = 'data-kind="failure" role="alert">commit: division by zero<'
    wait_until(lambda: page.updates and said in page.html)


def test_a_frame_that_cannot_be_drawn_says_so_and_later_ones_are_drawn(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(page.panel._viewer, "take", lambda notice: 1 / 0)
        page.panel._wake.set()
        said = 'role="alert">the panel could not be drawn: ZeroDivisionError: division by zero<'
        wait_until(lambda: page.updates and said in page.html)
    page.ip.run("%stream step")
    wait_until(lambda: "message 1" in page.html)
    assert "could not be drawn" not in page.html


def test_a_notice_goes_when_the_job_has_moved_on_without_the_panel(page: Page) -> None:
    page.ip.run("%stream step 4")
    page.press("step")
    said = 'data-kind="" role="status">nothing to read: it has caught up with its inputs<'
    wait_until(lambda: page.updates and said in page.html)
    wait_until(lambda: page.panel._notice_at)
    page.ip.run("%stream send mem.clicks 1 --key b")
    page.ip.run("%stream step")
    wait_until(lambda: "message 5" in page.html and said not in page.html)


def test_the_last_frame_is_true_and_a_table_stays(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    updated: list[tuple[dict[str, str], bool]] = []
    panel = page.panel
    monkeypatch.setattr(panel._handle, "update", lambda bundle, raw=False: updated.append((bundle, raw)))
    page.ip.run("%stream run --until caught-up")
    page.ip.run("%stream wait")
    page.ip.run("%stream stop")
    assert "message 4" in page.html
    bundle, raw = updated[-1]
    assert raw
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"].startswith("Count  stopped  4 processed  lag 0")
    assert "<table>" in bundle["text/html"] and "stopped" in bundle["text/html"]
    assert not re.search(r"<script|<svg|<style|var\(|class=", bundle["text/html"])
    assert not panel.is_open


def test_a_panel_makes_way_for_the_recreated_job_before_the_old_one_stops(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel, job = page.panel, page.ip.magics.bench.jobs["Count"]
    updated: list[str] = []
    monkeypatch.setattr(
        panel._handle, "update", lambda bundle, raw=False: updated.append(bundle["text/html"])
    )
    stop, open_at_stop = job.stop, []
    monkeypatch.setattr(job, "stop", lambda: (open_at_stop.append(panel.is_open), stop()))
    page.ip.run("%stream create Count")
    assert "closed to create the job again" in updated[-1]
    assert open_at_stop == [False]
    assert page.ip.magics.bench.jobs["Count"] is not job


def test_a_job_that_cannot_be_created_leaves_the_one_before_with_its_panel(page: Page) -> None:
    panel, job = page.panel, page.ip.magics.bench.jobs["Count"]
    with pytest.raises(StreambenchError, match="there is no task nothing"):
        page.ip.run("%stream create Count --task nothing")
    assert page.ip.magics.bench.jobs["Count"] is job
    assert panel.is_open
    assert job.state == "paused"
    page.ip.run("%stream step")
    wait_until(lambda: page.updates and "message 1" in page.html)


def test_a_job_that_shuts_itself_down_leaves_its_table(page: Page) -> None:
    page.ip.run(
        "%%streamtask Count\n"
        "def process(envelope, collector, coordinator):\n"
        "    coordinator.shutdown(sb.RequestScope.ALL_TASKS_IN_CONTAINER)\n"
    )
    page.ip.run("%stream create Count")
    page.ip.run("%stream show")
    panel = page.panel
    assert page.ip.run("%stream step").startswith("Count has shut itself down")
    wait_until(lambda: not panel.is_open)


def test_a_panel_of_a_reloaded_page_leaves_its_table_where_it_is_stopped(page: Page) -> None:
    for name in ("one", "two"):
        page.panel.widget._handle_custom_msg({"do": f"page {name}"}, [])
    page.ip.run("%stream stop")
    assert "<table>" in page.ip.displayed[-1]["text/html"]


def test_showing_it_again_closes_the_panel_before(page: Page) -> None:
    first = page.panel
    page.ip.run("%stream show")
    assert not first.is_open
    assert page.panel.is_open


def test_a_panel_that_nobody_looks_at_is_not_painted(page: Page) -> None:
    page.panel.widget._view_count = 1
    page.panel.widget._view_count = 0
    page.ip.run("%stream step")
    before = len(page.updates)
    page.panel.widget._view_count = 1
    wait_until(lambda: page.updates and "message 1" in page.html)
    assert len(page.updates) == before + 1


def test_nothing_is_left_of_panels_that_were_closed(page: Page) -> None:
    page.ip.run("%stream stop")
    before, threads = dict(widgets._instances), set(threading.enumerate())
    for _ in range(20):
        page.ip.run("%stream create Count")
        page.ip.run("%stream show")
        page.ip.run("%stream stop")
    assert widgets._instances == before
    assert set(threading.enumerate()) <= threads
    assert page.ip.magics._panels == {}


def test_many_partitions_fold_to_a_row_for_their_stream_that_opens(page: Page) -> None:
    page.ip.run("%stream streams create mem.wide --partitions 1000")
    page.ip.run("%stream attach Count mem.wide")
    wait_until(lambda: page.updates and "partitions" in page.html and "· 1,000" in page.html)
    assert page.html.count("<tr") < 20
    page.press("open mem.wide")
    wait_until(lambda: "wide.0</" in shown_parts(page.html))
    page.press("open mem.wide")
    wait_until(lambda: page.html.count("<tr") < 20)


def shown_parts(html: str) -> str:
    """The names of the rows, without what splits them."""
    return re.sub('</span><span class="sb-(tail|part)">', "", html)


def test_of_a_thousand_rows_those_in_sight_are_drawn(page: Page) -> None:
    page.ip.run("%stream streams create mem.wide --partitions 1000")
    page.ip.run("%stream attach Count mem.wide")
    page.press("open mem.wide")
    wait_until(lambda: page.updates and "wide.0</" in shown_parts(page.html))
    assert len(page.html) < 100_000
    assert "wide.500</" not in shown_parts(page.html)
    page.press("row 500 first")
    wait_until(lambda: "wide.500</" in shown_parts(page.html))
    assert "wide.0</" not in shown_parts(page.html)
    blank = [int(number) for number in re.findall(r'data-rows="(\d+)"', page.html)]
    drawn = page.html.count("data-row=") - len(blank)
    assert sum(blank) + drawn == 1000 + 2
    page.press("row 999 second")
    wait_until(lambda: "wide.999</" in shown_parts(page.html))
    assert "wide.500</" in shown_parts(page.html)  # the other view of it
    page.press("row 999 first")
    wait_until(lambda: "wide.500</" not in shown_parts(page.html))
    assert len(page.html) < 100_000


def luminance(colour: str) -> float:
    """The brightness of a colour, as WCAG defines it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part < 0.04 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_bars_of_the_static_table_say_what_is_committed_without_colour(page: Page) -> None:
    page.ip.run("%stream step 2")
    page.ip.run("%stream commit")
    page.ip.run("%stream step")
    html = re.sub(r' style="[^"]*"', "", table_html(static_view(page.panel.job)))
    assert re.findall("[█▒░]+", html) == ["█" * 10 + "▒" * 10, "█" * 10 + "░" * 10]
    assert "<b>chosen</b>" in html
    assert re.sub("<[^>]+>", "", html.split("<code>")[1].split("</code>")[0]) == "AB|A"


def test_a_partition_without_messages_has_no_bar_in_the_static_table(page: Page) -> None:
    page.ip.run("%stream streams create mem.none --partitions 1")
    page.ip.run("%stream attach Count mem.none")
    html = table_html(static_view(page.panel.job))
    assert "none.0" in html
    assert re.findall("[█▒░]+", html) == ["░" * 20, "░" * 20]


def test_the_static_table_has_only_what_github_and_vs_code_let_through(page: Page) -> None:
    page.ip.run("%stream step 2")
    page.ip.run("%stream commit")
    html = table_html(static_view(page.panel.job), "a note")
    # Elements that GitHub's sanitizer keeps, and its only attribute here; without styles the words stay.
    kept = {"b", "code", "div", "pre", "small", "span", "table", "tbody", "td", "th", "thead", "tr"}
    assert set(re.findall(r"<(\w+)", html)) <= kept
    assert set(re.findall(r' ([\w-]+)="', html)) <= {"align", "style"}
    assert "url(" not in html and "position:" not in html
    # VS Code has no sanitizer for outputs. Its page would apply rules for the whole of it.
    live = hidden_table_html(static_view(page.panel.job), "an-id", "a note")
    [rules] = re.findall("<style>(.*?)</style>", live)
    assert all(".jp-OutputArea-child" in each for each in rules.split("{")[0].split(",") if each)


def test_words_of_the_static_table_have_the_colour_of_the_page(page: Page) -> None:
    page.ip.run("%stream step 3")
    page.ip.run("%stream commit")
    html = table_html(static_view(page.panel.job), "a note")
    coloured = re.findall(r"<[^>]*\bcolor:(#[0-9a-f]{6})[^>]*>([^<]*)", html)
    assert {text.strip("█▒░") for _, text in coloured} <= {"", "&#9632;", "&#9679;"}
    sign = luminance(next(colour for colour, text in coloured if text == "&#9679;"))
    for paper in ("#ffffff", "#111111", "#0d1117"):
        brighter, darker = sorted((sign, luminance(paper)), reverse=True)
        assert (brighter + 0.05) / (darker + 0.05) >= 3  # what is no text


def test_without_anywidget_there_is_the_table(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "streambench_magics.panel.widget", None)
    monkeypatch.setattr(ip.shell, "kernel", object(), raising=False)
    ip.run("%stream create Count --config inputs")
    assert (
        ip.run("%stream show")
        == "a live panel needs an optional dependency: pip install 'streambench[jupyter]'"
    )
    assert set(ip.displayed[-1]) == {"text/html", "text/plain"}


def test_what_streams_hold_cannot_become_markup(page: Page) -> None:
    page.ip.run('%stream send mem.clicks "<script>alert(1)</script>" --key "<b>k</b>" --partition 0')
    page.ip.run("%stream step 10")
    wait_until(lambda: page.updates and "message 5" in page.html)
    page.ip.run("%stream show --static")
    for html in (page.html, page.ip.displayed[-1]["text/html"]):
        assert "<script" not in html and "<b>k" not in html


def test_the_panel_says_who_else_was_there_and_whose_turn_comes_when(page: Page) -> None:
    page.ip.run("%stream step")
    wait_until(lambda: page.updates and "message 1" in page.html)
    told = shown(page.html)
    assert "2 candidates, next clicks.1@0" in told
    assert "next in 1" in told


def test_drawing_a_panel_costs_as_much_per_partition_as_ever(ip_empty: Shell) -> None:
    def calls(partitions: int) -> int:
        """Python calls that one frame of a job takes after a step."""
        name = f"wide{partitions}"
        ip_empty.run(
            f"%%streamconfig {name}\nsystems.mem.samza.factory=memory\n"
            f"systems.mem.samza.offset.default=oldest\ntask.inputs=mem.{name}\n"
        )
        ip_empty.run(f"%stream streams create mem.{name} --partitions {partitions}")
        ip_empty.run(f"%stream send mem.{name} --from [[0]]*{2 * partitions}")
        ip_empty.run(f"%stream create {name} --task Nothing --config {name}")
        ip_empty.run(f"%stream step {name}")
        reader, profile = PanelStateReader(ip_empty.magics.bench.job(name)), cProfile.Profile()
        profile.runcall(lambda: panel_html(reader.take()))
        return sum(entry.callcount for entry in profile.getstats())

    ip_empty.run("%%streamtask Nothing\ndef process(envelope, collector, coordinator):\n    pass\n")
    assert calls(400) < 6 * calls(100)


def test_one_commit_is_one_mark_in_the_strip(page: Page) -> None:
    page.ip.run("%stream step 3")
    page.ip.run("%stream commit")
    page.ip.run("%stream step 1")
    wait_until(lambda: page.updates and "message 4" in page.html and 'data-commits="2"' in page.html)
    assert 'data-ticks="0101"' in page.html  # one stream: coloured by partition


def test_a_long_message_is_indented_and_says_its_size_and_what_is_cut(page: Page) -> None:
    page.ip.run("big = [{'name': 'a', 'text': 'y' * 5000}]\n%stream send mem.clicks --from big --partition 0")
    page.ip.run("%stream step 10")
    wait_until(lambda: page.updates and "message 5" in page.html)
    assert '<span class="sb-dim">&quot;name&quot;:</span> &quot;a&quot;,\n' in page.html
    # The size is in sight above it.
    assert page.html.index("5.0 kB as text") < page.html.index('class="sb-msg"')
    assert re.search(r"\(1,0\d\d more characters\)", page.html)


def test_a_stream_with_a_long_name_keeps_its_partition_in_every_table(ip: Shell) -> None:
    name = f"flights-{'x' * 87}-before-and-after"
    ip.run(f"%stream streams create mem.{name} --partitions 12")
    ip.run("many = [1] * 24")
    ip.run(f"%stream send mem.{name} --from many")
    ip.run("%stream create Count --config inputs")
    ip.run(f"%stream attach Count mem.{name}")
    ip.run("%stream step 8")
    ip.run("%stream show --static")
    [bundle] = ip.displayed
    lines = bundle["text/plain"].splitlines()
    assert max(map(len, lines)) <= 120
    assert [line.split()[1] for line in lines if line.startswith("mem.flights")] == [
        str(n) for n in range(12)
    ]
    assert next(line for line in lines if line.startswith("last chosen")).count("@") == 1
    assert re.search(r"…\S*\.11</td>", bundle["text/html"])
    shown = re.sub("<[^>]+>", "\n", bundle["text/html"]).splitlines()
    assert not [line for line in shown if "x" * 40 in line and not line.startswith("message 8: ")]
    checkpoints = ip.run("%stream checkpoints").splitlines()
    assert max(map(len, checkpoints)) <= 120
    assert sum("…" in line and re.search(r"\.(10|11) ", line) is not None for line in checkpoints) == 2
    assert checkpoints[-1].startswith("Partition 11")
