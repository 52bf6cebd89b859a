"""The lower half of the panel and its way through time, without a browser."""

from __future__ import annotations

import re
from html import unescape

import pytest
from msgspec.structs import replace

from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.debug.effects.events import Change
from streambench.debug.message_text import MessageText, message_block
from streambench.debug.terminal.terminal_pages import pages
from streambench.debug.view.panel_state import PanelState, PanelStateReader
from streambench.errors import StreambenchError
from streambench_magics.panel.panel import Panel
from streambench_magics.panel.render import panel_html
from streambench_magics.panel.values import before_and_after
from streambench_magics.tables import Records, as_text
from tests.magics.conftest import Shell

CONFIG = """%%streamconfig counted
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
task.inputs=mem.clicks
stores.seen.factory=memory
stores.seen.key.serde=string
stores.seen.msg.serde=json
"""

TASK = """%%streamtask counted
class Counted:
    def init(self, context):
        self.seen = context.store("seen")

    def process(self, envelope, collector, coordinator):
        before = self.seen.get(envelope.key) or {"n": 0, "name": envelope.key}
        self.seen.put(envelope.key, {**before, "n": before["n"] + 1})
        if before["n"]:
            collector.send("mem.again", {"n": before["n"]}, key=envelope.key)
"""


@pytest.fixture
def counted(ip_empty: Shell) -> Shell:
    """A shell with the job counted, which has processed x, y, x; z is left."""
    ip = ip_empty
    ip.run(CONFIG)
    ip.run(TASK)
    ip.run("%stream streams create mem.clicks mem.again")
    for key in ("x", "y", "x", "z"):
        ip.run(f"%stream send mem.clicks 1 --key {key}")
    ip.run("%stream create counted --config counted")
    ip.run("%stream step 3")
    return ip


def frame_of(ip: Shell, search: str = "") -> PanelState:
    reader = PanelStateReader(ip.magics.bench.job("counted"))
    reader.standing.search = search
    return reader.take()


def page(html: str, name: str) -> str:
    return unescape(html.split(f'data-page="{name}">')[1].split('<div class="sb-page"')[0])


def marks(html: str) -> list[tuple[str, str]]:
    """The name of each tab, and its mark as a screen reader says it."""
    found = re.findall(r'data-tab="\w+">(\w+)<span class="sb-mark"[^>]*>(.*?)</button>', html)
    return [(name, re.sub("<[^>]+>", "", mark)) for name, mark in found]


def test_a_value_that_was_written_as_it_was_has_no_colours() -> None:
    change = Change(1, None, None, {"n": 1}, {"n": 1})
    assert before_and_after(change) == '<td class="sb-num">n 1</td><td class="sb-dim">written as it was</td>'


def test_figures_of_messages_have_commas_in_tables() -> None:
    assert "3,500" in repr(Records(["messages"], [{"messages": 3500}], right=["messages"]))


def test_the_state_tab_has_what_the_message_changed_and_the_entries(counted: Shell) -> None:
    html = panel_html(frame_of(counted))
    assert ("State", "1 changed") in marks(html)
    state = page(html, "state")
    assert '<td class="sb-num sb-before">n 1</td><td class="sb-num sb-after">n 2</td>' in state
    assert "n 2 · name x" in state
    assert "n 1 · name y" in state


def test_a_picked_key_has_each_of_its_changes_with_its_message(counted: Shell) -> None:
    reader = PanelStateReader(counted.magics.bench.job("counted"))
    html = panel_html(reader.take())
    pick = 'key ["Partition 0", "seen", "x"]'
    assert f'data-do="{pick}"' in page(html, "state")
    panel = Panel(counted.magics.bench.job("counted"))
    panel._do(pick)
    state = page(panel_html(panel._viewer.take()), "state")
    assert "seen[x]</b>" in state and "2 changes" in state
    assert re.search(r'data-do="goto 3"[^>]+>3</a>.*data-do="goto 1"[^>]+>1</a>', state)
    assert 'data-values="1,2"' in state
    panel._do("back")
    state = page(panel_html(panel._viewer.take()), "state")
    assert "1 change<" in state and 'data-do="goto 3"' not in state
    panel._do(pick)
    assert "2 changes" not in page(panel_html(panel._viewer.take()), "state")


def test_entries_are_searched_by_key(counted: Shell) -> None:
    state = page(panel_html(frame_of(counted, "Y")), "state")
    assert "n 1 · name y" in state
    assert "name x" not in state


def test_the_outputs_tab_has_the_last_outputs_the_new_ones_marked(counted: Shell) -> None:
    html = panel_html(frame_of(counted))
    assert ("Outputs", "1 new") in marks(html)
    assert page(html, "outputs").count("<tr class=sb-won>") == 1
    assert "mem.again.0" in page(html, "outputs")
    counted.run("%stream step")
    html = panel_html(frame_of(counted))
    assert ("Outputs", "") in marks(html)
    assert "<tr class=sb-won>" not in page(html, "outputs")


def test_in_the_past_everything_is_that_of_then(counted: Shell) -> None:
    counted.run("%stream back")
    frame = frame_of(counted)
    html = panel_html(frame)
    assert (frame.state, frame.why) == ("past", "at message 2 of 3")
    assert frame.rows[0].position == "2"
    assert frame.choice is not None and frame.choice.key == "y"
    assert 'data-at="1"' in html
    assert '{"n": 2' not in page(html, "state")
    assert 'not in the past, live returns from it\n%stream run" disabled' in html
    assert re.search(r'data-do="live" title="[^"]+\n%stream live">', html)
    counted.run("%stream live")
    assert frame_of(counted).state == "paused"


def test_the_buttons_go_back_to_a_choice_of_the_strip_and_live(counted: Shell) -> None:
    job = counted.magics.bench.job("counted")
    panel = Panel(job)
    for command, position in (("back", 2), ("goto 1", 1), ("step", 2), ("live", 3), ("goto 3", 3)):
        panel._do(command)
        assert job.session.position == position
    assert job.session.live


def test_in_the_past_of_a_failed_job_the_buttons_move_and_start_nothing(counted: Shell) -> None:
    counted.run("%stream send mem.clicks 1")  # without a key, which the store refuses
    job = counted.magics.bench.job("counted")
    panel = Panel(job)
    with pytest.raises(StreambenchError, match="None is not a valid key"):
        panel._do("step 10")
    failed = job.session
    html = panel_html(frame_of(counted))
    assert '%stream back" aria-keyshortcuts="ArrowLeft">' in html
    assert "back shows how it was before" in page(html, "state")
    assert "Changed by message 4" in page(html, "state") and "n 1 · name y" in page(html, "state")
    panel._do("back")
    frame = frame_of(counted)
    assert (frame.state, frame.why) == ("past", "at message 3 of 4")
    assert "n 1 · name y" in page(panel_html(frame), "state")
    panel._do("back")
    panel._do("forward")
    panel._do("live")
    assert (job.session, frame_of(counted).state) == (failed, "failed")


def test_a_message_that_a_breakpoint_holds_is_not_shown_as_processed(counted: Shell) -> None:
    counted.run("%stream send mem.clicks z --key z\n%stream send mem.clicks y --key y")
    counted.run("%stream break key == 'y'\n%stream run\n%stream wait")
    frame = frame_of(counted)
    html = panel_html(frame)
    assert frame.is_pending and ">Stopped before this one<" in html and " data-held" in html
    assert ">at a breakpoint<" in html and ">breakpoint 1: key is &#x27;y&#x27;<" in html
    assert "Changed by message 5" in page(html, "state") and "message 5<" in html
    counted.run("%stream step")
    assert ">Why this one<" in panel_html(frame_of(counted))


def test_a_reason_that_the_bar_cuts_stands_in_full_beside_the_inputs(counted: Shell) -> None:
    counted.run("%stream run --until message['no such field'] > 1")
    counted.fails("%stream wait")
    trouble = panel_html(frame_of(counted)).split('<div class="sb-trouble">')[1].split("</div>")[0]
    assert "cannot be evaluated" in trouble and "TypeError" in trouble


def test_the_message_stands_below_few_inputs_and_beside_many(counted: Shell) -> None:
    frame = frame_of(counted)
    html = panel_html(frame)
    assert html.index('class="sb-under"') < html.index('class="sb-msg"') < html.index("Why this one")
    html = panel_html(replace(frame, rows=frame.rows * 5))
    assert "sb-under" not in html and html.index("Why this one") < html.index('class="sb-msg"')


def test_a_message_is_laid_out_once_a_frame(counted: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[object] = []

    def block(message: object) -> MessageText:
        laid_out.append(message)
        return message_block(message)

    monkeypatch.setattr("streambench.debug.view.panel_state.message_block", block)
    for move in ("step", "back", "live"):
        counted.run(f"%stream {move}")
        laid_out.clear()
        assert frame_of(counted).message is not None and len(laid_out) == 1


def test_run_and_pause_have_one_place(counted: Shell) -> None:
    frame = frame_of(counted)
    assert ('data-do="run"' in panel_html(frame), 'data-do="pause"' in panel_html(frame)) == (True, False)
    moving = replace(frame, snapshot=replace(frame.snapshot, state="running"), standing=None)
    html = panel_html(moving)
    assert ('data-do="run"' in html, 'data-do="pause"' in html) == (False, True)


def test_the_metrics_of_a_job_that_stands_still_have_its_lag_of_now(counted: Shell) -> None:
    frame = replace(frame_of(counted), rates=(5.0, 2000.0), lags=(900.0, 800.0))
    metrics = page(panel_html(frame), "metrics")
    assert "rate while it ran" in metrics and "2.0k/s at most" in metrics
    assert "<h4>lag</h4><b class=" in metrics and ">1</b>" in metrics and "900 at most" in metrics


def test_metrics_that_the_past_does_not_have_are_said_to_be_of_the_newest(counted: Shell) -> None:
    said = "as they are at message 3, the newest"
    assert said not in page(panel_html(frame_of(counted)), "metrics")
    counted.run("%stream back")
    html = page(panel_html(frame_of(counted)), "metrics")
    assert said in html and "seen-puts" in html.split(said)[1] and "show them" not in html


def test_metrics_of_tasks_in_the_past_are_shown_once_they_are_asked_for(counted: Shell) -> None:
    made = 'self.keys, self.last = context.metrics.counter("keys", "m"), context.metrics.gauge("last", "m")'
    begin, rest = TASK.split("        self.seen =")
    middle, end = rest.split("        before =")
    noted = "self.keys.inc()\n        self.last.set(int(envelope.offset))"
    counted.run(f"{begin}        {made}\n        self.seen ={middle}        {noted}\n        before ={end}")
    for key in "xyx":
        counted.run(f"%stream send mem.clicks 1 --key {key}")
    counted.run("%stream create counted --config counted")
    counted.run("%stream step 4")
    job = counted.magics.bench.job("counted")
    panel = Panel(job)

    def shown() -> str:
        return unescape(re.sub("<[^>]*>", " ", page(panel_html(panel._viewer.take()), "metrics")))

    assert re.search(r" keys +4 ", shown()) and re.search(r"last +6 ", shown())
    panel._do("back")
    assert "messages run again, on a copy  show them" in shown() and " keys " not in shown()
    panel._do("metrics")
    assert re.search(r" keys +3 ", shown()) and re.search(r"last +5 ", shown())
    panel._do("back")
    assert re.search(r" keys +2 ", shown()) and "show them" not in shown()
    panel._do("live")
    assert re.search(r" keys +4 ", shown())
    panel._do("back")
    assert "show them" in shown()


def test_moves_go_on_where_metrics_of_the_past_cannot_be_shown(counted: Shell) -> None:
    counted.run("again = True")
    made = 'context.metrics.counter("n", "m")\n        self.seen ='
    counted.run(TASK.replace("self.seen =", made).replace("before =", "assert again\n        before =", 1))
    for key in "xyx":
        counted.run(f"%stream send mem.clicks 1 --key {key}")
    counted.run("%stream create counted --config counted")
    counted.run("%stream step 4")
    panel = Panel(counted.magics.bench.job("counted"))
    panel._do("back")
    counted.run("again = False")
    with pytest.raises(StreambenchError, match="AssertionError"):
        panel._do("metrics")
    panel._do("back")
    assert "show them" in page(panel_html(panel._viewer.take()), "metrics")


def test_the_strip_has_a_lane_per_stream_and_counts_for_screen_readers(counted: Shell) -> None:
    html = panel_html(frame_of(counted))
    assert 'data-lanes="1"' in html
    assert 'aria-label="the last 3 choices: 3 of mem.clicks.0"' in html


def test_a_step_that_does_nothing_says_why(counted: Shell) -> None:
    panel = Panel(counted.magics.bench.job("counted"))
    panel._do("step 10")
    assert panel._notice.text == ""
    panel._do("step")
    assert panel._notice.text == "nothing to read: it has caught up with its inputs"
    counted.run("%stream stop")
    counted.run("%stream send mem.clicks 1 --key x")
    panel._do("step")
    assert panel._notice.text == "it had stopped, and went on from its last checkpoint"


def test_the_checkpoints_tab_lists_the_commits_of_a_job_that_runs(counted: Shell) -> None:
    job = counted.magics.bench.job("counted")
    reader = PanelStateReader(job)
    reader.take()
    counted.run("%stream commit")
    job.run()
    frame = reader.take()
    assert frame.standing is None
    listed = page(panel_html(frame), "checkpoints")
    assert listed.count("<time data-at=") == 1
    assert '<td class="r sb-num">3</td>' in listed
    job.pause()


def test_commits_that_are_kept_are_rewound_to(counted: Shell) -> None:
    counted.run("%stream commit")
    counted.run("%stream step")
    job = counted.magics.bench.job("counted")
    panel = Panel(job)
    listed = page(panel_html(panel._viewer.take()), "checkpoints")
    commit = frame_of(counted).standing.commits[0]
    assert commit.again == 1
    assert f'data-do="rewind {commit.name}"' in listed and 'data-confirm="really?"' in listed
    panel._do(f"rewind {commit.name}")
    assert job.state == "paused"
    assert job.session.stores()["Partition 0"]["seen"]["x"]["n"] == 2
    panel._do("step")
    assert job.session.message.key == "z"
    for refused in ("9.9", "nowhere"):
        with pytest.raises(StreambenchError, match="there is no commit 9.9|'nowhere' is no place"):
            panel._do(f"rewind {refused}")
        assert job.state == "paused"


def test_the_commits_of_a_frame_that_a_step_came_into_count_it(
    counted: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted.run("%stream commit")
    job = counted.magics.bench.job("counted")
    take, taken = job.snapshot, 0

    def step_behind() -> ContainerSnapshot:
        nonlocal taken
        found, taken = take(), taken + 1
        if taken == 1:
            job.step()
        return found

    monkeypatch.setattr(job, "snapshot", step_behind)
    frame = frame_of(counted)
    assert frame.snapshot.processed == 4
    assert frame.standing.commits[0].again == 1


def test_outputs_name_the_message_that_they_were_made_from(counted: Shell) -> None:
    outputs = page(panel_html(frame_of(counted)), "outputs")
    assert 'data-do="goto 3" title="mem.clicks.0@2\n%stream goto 3">mem.clicks.0@2</a>' in outputs


@pytest.mark.parametrize("callback", ["window", "end_of_stream"])
def test_outputs_name_the_callback_that_sent_them(counted: Shell, callback: str) -> None:
    frame = frame_of(counted)
    (output,) = frame.standing.outputs
    standing = replace(frame.standing, outputs=(replace(output, callback=callback),))
    frame = replace(frame, standing=standing)
    assert f'title="{callback}() of Partition 0\n%stream goto 3">{callback}() ' in page(
        panel_html(frame), "outputs"
    )
    assert [each.name for each in pages(frame) if f"{callback}()" in as_text(each.content)] == ["Outputs"]


def test_breakpoints_are_added_switched_and_removed_in_their_tab(counted: Shell) -> None:
    job = counted.magics.bench.job("counted")
    panel = Panel(job)
    panel._do("break message key == 'z'")
    panel._do("break output True")
    assert [(each.id, each.on, str(each)) for each in job.session.breakpoints] == [
        (1, "message", "key == 'z'"),
        (2, "output", "every output"),
    ]
    html = panel_html(panel._viewer.take())
    assert ("Breakpoints", "2") in marks(html)
    assert 'data-do="disable 1"' in page(html, "breakpoints")
    panel._do("disable 1")
    assert 'data-do="enable 1"' in page(panel_html(panel._viewer.take()), "breakpoints")
    panel._do("step")
    assert job.session.position == 4
    panel._do("remove 2")
    assert [each.id for each in job.session.breakpoints] == [1]


def test_a_disabled_breakpoint_for_one_time_is_kept(counted: Shell) -> None:
    session = counted.magics.bench.job("counted").session
    made = session.break_on("key == 'z'", once=True)
    session.enable(made.id, False)
    session.step()
    assert session.breakpoints == [made]
    counted.run("%stream send mem.clicks 1 --key z")
    session.enable(made.id)
    assert session.step() == 0
    assert session.breakpoints == []


def test_watches_show_their_values_and_what_has_changed(counted: Shell) -> None:
    panel = Panel(counted.magics.bench.job("counted"))
    panel._do("watch k=key")
    panel._do("watch at=position")
    html = panel_html(panel._viewer.take())
    assert ("Watches", "2") in marks(html)
    panel._do("back")
    html = panel_html(panel._viewer.take())
    assert ("Watches", "2 changed") in marks(html)
    watches = page(html, "watches")
    assert '<td>k</td><td class="sb-num sb-value">key</td><td class="sb-num sb-value">y</td>' in watches
    panel._do("watch wrong=message['wrong']")
    assert ">the watch message[" in page(panel_html(panel._viewer.take()), "watches")
    panel._do("unwatch wrong")
    panel._do("unwatch k")
    assert ("Watches", "1 changed") in marks(panel_html(panel._viewer.take()))
    with pytest.raises(StreambenchError, match="NAME=EXPRESSION"):
        panel._do("watch key == 1")


def test_the_box_runs_until_a_condition_is_true(counted: Shell) -> None:
    job = counted.magics.bench.job("counted")
    panel = Panel(job)
    panel._do("back")
    panel._do("forward")
    assert job.session.live
    panel._do("until key == 'z'")
    assert job.wait()
    frame = panel._viewer.take()
    assert (frame.state, job.session.position, frame.stopped_at) == ("paused", 3, "key is 'z'")
    assert 'data-ask="until"' in panel_html(frame)


def test_a_large_state_is_not_read_whole_for_the_panel(counted: Shell) -> None:
    store = counted.magics.bench.job("counted").session.container.tasks[0].stores["seen"]
    read = []
    engine = store.engine

    def counting(begin: bytes | None, end: bytes | None) -> object:
        for each in engine_range(begin, end):
            read.append(each)
            yield each

    counted.run(
        "many = [{'k': str(n)} for n in range(500)]\n%stream send mem.clicks --from many --key-field k"
    )
    counted.run("%stream step 500")
    engine_range, engine.range = engine.range, counting  # type: ignore[method-assign]
    try:
        assert "there are more: search for a key" in panel_html(frame_of(counted))
    finally:
        del engine.range
    assert len(read) < 100
