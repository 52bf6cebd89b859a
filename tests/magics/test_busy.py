"""A task that never ends with a message: what the notebook says of it, and the way out."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.debug.control.session import Session
from streambench.testing import ManualClock
from streambench_magics.errors import Interrupted
from tests.magics.conftest import Shell

_PATIENCE_S = 60

TASK = """%%streamtask Loop
import time
import streambench as sb

class Loop(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        if envelope.message == "c":
            while not end.is_set():
                try:
                    reached.set()
                    spin()
                except BaseException:
                    if not stubborn:
                        raise

def spin():  # of its own: what Python 3.13 raises at a loop's jump back is not caught in the same function
    while not end.is_set():
        time.sleep(0.001)  # busy for the job, not for the machine that tests other things meanwhile
"""
MENDED = """%%streamtask Loop
seen = []

def process(envelope, collector, coordinator):
    seen.append(envelope.message)
"""


@pytest.fixture
def stuck(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell whose job Loop is stuck in the background, and whose job Count has done one message."""
    ip.names.update(reached=threading.Event(), end=threading.Event(), stubborn=False)
    ip.run(TASK)
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step")
    ip.run("%stream create Loop --config inputs")
    ip.run("%stream step 2")
    ip.run("%stream commit")
    ip.run("%stream record Loop loop.recording")
    ip.run("%stream run")
    assert ip.names["reached"].wait(_PATIENCE_S)
    monkeypatch.setattr("streambench_magics.jobs.jobs._SILENT_S", 1e-9)
    monkeypatch.setattr("streambench_magics.jobs.jobs._PATIENCE_S", 1e-9)
    monkeypatch.setattr("streambench_magics.magics._MOMENT_S", 0.01)
    monkeypatch.setattr("streambench_magics.jobs.jobs.Job.snapshot.__defaults__", (0.01,))
    yield ip
    ip.names["end"].set()


def interrupted_when_it_tells(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the kernel as soon as it says what it waits for."""

    def tell(text: str) -> None:
        print(text)
        raise KeyboardInterrupt

    monkeypatch.setattr("streambench_magics.commands.job_commands.say", tell)


@pytest.mark.parametrize(
    "line",
    [
        "step 1", "run", "pause", "stop", "commit", "attach mem.x", "detach mem.clicks", "create Loop",
        "back", "forward", "goto 1", "state", "outputs", "swap", "crash",
        "break message == 1", "watch x = 1",
    ],
)  # fmt: skip
def test_whatever_waits_for_it_says_so_and_is_interrupted_in_a_line(
    stuck: Shell, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    stuck.run("%stream streams create mem.x")
    interrupted_when_it_tells(stuck, monkeypatch)
    said, *more = stuck.fails(f"%stream {line}").strip().splitlines()
    assert re.match(r"waiting for Loop: busy \d+ s at mem\.clicks\.\d@\d+, cell \[\d+\] line \d+: ", said)
    assert said.endswith(
        "(interrupt the kernel to wait no longer; %stream stop --now Loop gives the message up)"
    )
    assert more == [
        "interrupted: Loop is running. Its task may still be busy with one message, which %stream stop "
        "--now Loop gives up."
    ]
    assert isinstance(stuck.error, KeyboardInterrupt)


def test_waiting_for_it_says_so(stuck: Shell) -> None:
    waited = stuck.run("%stream wait --timeout 0.1").splitlines()
    assert waited[0].startswith("waiting for Loop: busy ")
    assert waited[1:] == ["Loop still runs after 0.1 s"]


def test_the_list_shows_it_as_busy_and_the_others_as_ever(stuck: Shell) -> None:
    later = ManualClock()
    later.advance(int(time.monotonic() * 1000) + 3_600_000)
    stuck.magics.bench.jobs["Loop"].session.container.status.clock = later
    said = stuck.run("%stream").splitlines()[0]
    place = r"mem\.clicks\.\d@\d, cell \[\d+\] line \d+: "
    assert re.match(rf"Loop is running: 2 messages, busy [\d,]+ s at {place}", said)
    assert [(each["job"], each["state"], each["processed"]) for each in stuck.value] == [
        ("Count", "paused", 1),
        ("Loop", "running, busy with one message for 3,600 s", 2),
    ]


@pytest.mark.parametrize("line", ["show --static", "checkpoints"])
def test_pictures_of_it_are_those_of_before(stuck: Shell, line: str) -> None:
    said = stuck.run(f"%stream {line}")
    assert "this is how it was before. %stream stop --now Loop gives the message up" in said
    if line == "checkpoints":
        assert [each["position"] for each in stuck.value] == ["1", "1"]


@pytest.mark.parametrize("stubborn", [False, True])
def test_it_is_given_up_and_the_mended_cell_goes_on_from_the_checkpoint(
    stuck: Shell, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    stuck.names["stubborn"] = stubborn
    if stubborn:
        monkeypatch.setattr("streambench.debug.control.session.Session.give_up.__defaults__", (0.01,))
    said = stuck.run("%stream stop --now").splitlines()
    assert said[0].startswith(
        "Loop has given up its message: nothing since its last checkpoint is committed."
    )
    assert said[1:-1] == [each for each in said if each.startswith("its task has not ended")]
    assert (len(said) == 3) == stubborn
    size = Path("loop.recording").stat().st_size
    count = "0 messages" if stubborn else "1 message"
    assert said[-1] == f"Loop is recorded to loop.recording: {count}, {size / 1000:.1f} kB"
    assert stuck.magics.bench.jobs["Loop"].state == "failed"
    stuck.run(MENDED)
    assert "it replaces the former Loop" in stuck.run("%stream create Loop")
    stuck.run("%stream run --until caught-up")
    assert "Loop is paused: 2 messages processed" in stuck.run(f"%stream wait --timeout {_PATIENCE_S}")
    assert sorted(stuck.names["seen"]) == ["c", "d"]
    stuck.names["end"].set()
    stuck.run("%stream stop")


def test_a_panel_says_where_its_task_is_stuck_and_aborts_it(
    stuck: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck.shell, "kernel", object(), raising=False)
    stuck.run("%stream show Loop")
    panel = stuck.magics._panels["Loop"]
    html = panel.widget.html
    assert 'data-state="busy"' in html
    assert re.search(
        r"\d+ s at mem\.clicks\.\d@\d+, cell \[\d+\] line \d+: (while not end\.is_set\(\)|time\.sleep)", html
    )
    # The message is shown while the task is at it, and the other pages say why they cannot be read.
    assert "Busy with this one" in html and '<div class="sb-msg">c</div>' in html
    assert "not read yet: the task is busy with one message" in html
    assert "pause it" not in html
    assert re.search(r'data-do="give up" title="[^"]+%stream stop --now">abort<', html)
    panel._on_message(None, {"do": "give up"}, [])
    deadline = time.monotonic() + _PATIENCE_S
    while 'data-kind="warning" role="status">aborted: nothing since the last' not in panel.widget.html:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    assert 'data-state="failed"' in panel.widget.html
    panel.close()


def test_stop_now_commits_nothing_where_nothing_is_stuck_either(stuck: Shell) -> None:
    assert stuck.run("%stream stop --now Count") == (
        "Count is abandoned: nothing since its last checkpoint is committed: 1 message comes again with its "
        "next start; outputs that are out already come again, too"
    )
    said = stuck.run("%stream step Count").splitlines()
    assert said[0] == "Count had been abandoned; it goes on from its last checkpoint"
    assert said[1].startswith("     1  mem.clicks.0@0")


def test_the_mended_cell_tells_the_way_to_its_job(stuck: Shell) -> None:
    way = "give up its message with %stream stop --now Loop, and then %stream create Loop takes the new one"
    assert stuck.run(MENDED).splitlines()[1] == f"the job Loop still runs the old code; {way}"


def test_whatever_else_is_interrupted_says_so_in_a_line(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streambench_magics.commands.stream_commands.peek", impatient)
    assert ip.fails("%stream peek mem.clicks").strip() == "interrupted: %stream peek"
    assert isinstance(ip.error, Interrupted)


def test_a_cell_without_its_import_is_told_which(ip_empty: Shell) -> None:
    shown = ip_empty.fails(
        "%%streamtask T\nclass T(sb.StreamTask):\n    def process(self, envelope, collector, coordinator): "
        "pass\n"
    )
    assert "write 'import streambench as sb' at the top of this cell" in shown


@pytest.mark.parametrize("line", ["back", "state", "outputs", "goto 1"])
def test_what_needs_a_paused_job_pauses_it_and_says_so(ip: Shell, line: str) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 2")
    ip.run("%stream run")
    assert ip.run(f"%stream {line}").startswith("Count was running: it is paused now, at ")
    assert "was running" not in ip.run(f"%stream {line}")


def test_a_wait_says_how_it_stands_though_another_thread_reads_the_job(
    ip: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step")
    job = ip.magics.bench.job("Count")
    take, reading, tries = Session.snapshot_now, threading.Event(), 0
    read_on = threading.Event()

    def read_meanwhile(session: Session, timeout: float) -> ContainerSnapshot | None:
        nonlocal tries
        tries += 1
        if tries > 2:
            read_on.set()
            reader.join(_PATIENCE_S)
        return take(session, timeout)

    def read() -> None:
        reading.set()
        read_on.wait(_PATIENCE_S)

    assert job.snapshot().processed == 1
    ip.run("%stream run --messages 1")
    assert job.wait(_PATIENCE_S)
    reader = threading.Thread(target=lambda: job.session.between(read))
    reader.start()
    assert reading.wait(_PATIENCE_S)
    monkeypatch.setattr(Session, "snapshot_now", read_meanwhile)
    monkeypatch.setattr("streambench_magics.jobs.jobs.Job.snapshot.__defaults__", (0.01,))
    assert "Count is paused: 2 messages processed" in ip.run("%stream wait")
    assert tries > 2
