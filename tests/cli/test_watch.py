"""``run --watch`` in a terminal, with keys that are pressed and a screen that is read."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.cli.terminal_screen import TerminalScreen
from tests.job.project import Project

COUNTS = """
import time

class Counts:
    def init(self, context):
        self.seen = context.store("seen")

    def process(self, envelope, collector, coordinator):
        n = envelope.message["n"]
        if n == 99:
            while True:
                time.sleep(0.01)
        if n == 77:
            raise ValueError("unlucky")
        print("counted", n)
        self.seen.put("all", (self.seen.get("all") or 0) + 1)
        collector.send("log.up", {"n": n}, key=envelope.key)
"""
SETTINGS = {
    "task.class": "counts.py:Counts",
    "stores.seen.factory": "memory",
    "stores.seen.key.serde": "string",
    "stores.seen.msg.serde": "json",
}

Watch = Callable[..., TerminalScreen]


@pytest.fixture
def watch(project: Project) -> Iterator[Watch]:
    """A function that watches the job of the project in a terminal."""
    opened = []
    (project.directory / "counts.py").write_text(COUNTS)
    project.configure(SETTINGS)

    def watch(*arguments: str, rows: int = 24, columns: int = 80) -> TerminalScreen:
        command = project.command("run", "job.properties", "--watch", *arguments)
        opened.append(TerminalScreen(command, project.directory, rows, columns))
        return opened[-1]

    yield watch
    for each in opened:
        each.close()


def committed(project: Project) -> int:
    return sum(int(row["next"]) for row in project.rows("checkpoints"))


def is_as_before(screen: TerminalScreen) -> bool:
    """True where the shell gets its terminal back as it was."""
    return not screen.is_full and screen.has_cursor and screen.takes_lines


def test_keys_step_go_back_and_forward_and_the_job_stops_cleanly(project: Project, watch: Watch) -> None:
    project.fill(6)
    screen = watch()
    screen.await_text("running.* 6 processed")
    screen.await_text("log.numbers +0 +━+ +3 +0")
    screen.press("b")
    screen.await_text("past +5 processed")
    screen.await_text("seen +all +2 -> 3")
    screen.press("bb")
    screen.await_text("at message 3 of 6")
    screen.press("f")
    screen.await_text("at message 4 of 6")
    screen.press("l")
    screen.await_text("paused +6 processed")
    project.fill_more(6, 8)
    screen.press("s")
    screen.await_text("paused +7 processed")
    screen.press(" ")
    screen.await_text("running +8 processed")
    screen.press("q")
    assert screen.await_end() == 0
    assert "stopped; 8 messages" in screen.scrolled
    assert "counted 7" in screen.scrolled
    assert is_as_before(screen)
    assert committed(project) == 8 == len(project.outputs())


def test_keys_of_the_first_frame_and_of_a_run_are_done_at_once(project: Project, watch: Watch) -> None:
    project.fill(6)
    screen = watch()
    screen.await_text("(?s)log.numbers.*space")
    screen.press("s")
    screen.await_text("paused")
    screen.press(" ")
    screen.await_text("running +6 processed")
    screen.press(".message['n'] == 7\r7")
    screen.await_text(r"running(.|\n)*1 +message +message\['n'\] == 7 +0")
    project.fill_more(6, 8)
    screen.await_text(r"paused(.|\n)*breakpoint 1: ")
    screen.press("x1\r ")
    screen.await_text("running +8 processed")
    screen.press("c4")
    screen.await_text("(?s)running.*0 messages to process again")
    screen.press("q")
    assert screen.await_end() == 0
    assert committed(project) == 8


def test_pages_show_outputs_with_causes_watches_and_breakpoints(project: Project, watch: Watch) -> None:
    project.fill(8)
    screen = watch("--messages", "1000")
    screen.await_text("8 processed")
    screen.press(" ")
    screen.await_text("paused")
    screen.press("2")
    screen.await_text("8 +log.up.* sent +log.numbers.1@3")
    screen.press("wn=message['n']\r6")
    screen.await_text(r"n +message\['n'\] +7")
    screen.press("b")
    screen.await_text(r"\* +n +message\['n'\] +6")
    screen.press("l.message['n'] == 9\r7")
    screen.await_text(r"1 +message +message\['n'\] == 9 +0")
    project.fill_more(8, 11)
    screen.press(" ")
    screen.await_text("paused +9 processed")
    screen.await_text(r"breakpoint 1: .*9")
    screen.press("x1\r")
    screen.await_text("disabled")
    screen.press("u)\r")
    screen.await_text("until: this is no Python expression")
    screen.press("?")
    screen.await_text("stop the job and leave")
    screen.press("\x03")
    assert screen.await_end() == 1
    assert "error: it was stopped before its goal" in screen.scrolled
    assert is_as_before(screen)


def test_the_screen_is_filled_at_any_size(project: Project, watch: Watch) -> None:
    project.fill(64, partitions=32)
    screen = watch(rows=24, columns=80)
    screen.await_text("64 processed(.|\n)*log.numbers +32 +━+ +0")
    screen.resize(60, 160)
    screen.await_text(r"oldest to newest +oldest +position +upcoming(.|\n)*\? help  q quit *$")
    assert max(map(len, screen.text.splitlines())) <= 160
    screen.resize(6, 40)
    screen.await_text("(?s)log.numbers.*space run")
    assert len(screen.text.splitlines()) == 6
    screen.process.send_signal(signal.SIGTERM)
    assert screen.await_end() == 0
    assert is_as_before(screen)


def test_it_ends_by_itself_at_its_goal(project: Project, watch: Watch) -> None:
    project.fill(10)
    screen = watch("--until", "caught-up")
    assert screen.await_end() == 0
    assert "caught up with its inputs; 10 messages" in screen.scrolled
    screen = watch("--messages", "2")
    project.fill_more(10, 12)
    assert screen.await_end() == 0
    assert "reached the number of messages; 2 messages" in screen.scrolled
    assert committed(project) == 12


def test_a_failure_is_shown_and_raised_when_the_screen_is_left(project: Project, watch: Watch) -> None:
    project.fill(5)
    project.fill_more(77, 78)
    screen = watch()
    screen.await_text("failed at log.numbers.1@2, key 'k77': ValueError: unlucky")
    screen.press("s")
    screen.await_text("it has failed: b goes back")
    screen.press("b")
    screen.await_text("past +4 processed")
    screen.await_text("seen +all +1 -> 2")
    screen.press("l")
    screen.await_text("failed at log.numbers.1@2")
    screen.press("q")
    assert screen.await_end() == 1
    assert 'counts.py", line' in screen.scrolled
    assert is_as_before(screen)


@pytest.mark.parametrize(("first", "second"), [("q", "q"), ("q", "\x03"), ("\x03", "q"), ("\x03", "\x03")])
def test_a_stuck_message_is_named_and_left_by_a_second_key(
    project: Project, watch: Watch, first: str, second: str
) -> None:
    project.fill(0, partitions=1)
    assert project.ok("send", "log.numbers", "-c", "job.properties", stdin=json.dumps({"n": 99}) + "\n")
    screen = watch()
    screen.await_text(r"busy(.|\n)*at log.numbers.0@0.*counts.py line 1[012]")
    screen.press(first)
    screen.await_text("stopping: the message it is at is finished")
    screen.press(second)
    assert screen.await_end() == 130
    assert "interrupted; what was committed stays committed" in screen.scrolled
    where = r"the task was here:\s+container 0: \d+ s at log.numbers.0@0.*counts.py line"
    assert re.search(where, screen.scrolled)
    assert is_as_before(screen)
    assert all(row["processed"] is None for row in project.rows("checkpoints"))


def test_a_terminal_that_is_closed_ends_the_job_with_a_commit(project: Project, watch: Watch) -> None:
    project.fill(6)
    screen = watch()
    screen.await_text("6 processed")
    screen.hang_up()
    screen.await_end()
    assert committed(project) == 6


@pytest.mark.parametrize("more", [(), ("--json",), ("--quiet",), ("--join",)])
def test_without_a_terminal_or_with_options_that_exclude_it_it_is_refused(
    project: Project, more: tuple[str, ...]
) -> None:
    refused = project.run("run", "job.properties", "--watch", *more)
    assert refused.returncode == 2
    assert "Invalid value for --watch" in refused.stderr
    assert (more[0] if more else "here is none") in refused.stderr


def test_all_containers_are_shown_and_one_of_them_is_stepped(project: Project, watch: Watch) -> None:
    project.configure(SETTINGS, **{"job.container.count": "2"})
    project.fill(12)
    screen = watch(rows=50, columns=200)
    screen.await_text(r"> +0 +running +6(.|\n)* 1 +running +6")
    screen.press("n")
    screen.await_text(r"> +1 +running +6")
    screen.press("b")
    screen.await_text(r"  +0 +running +6 (.|\n)*> +1 +past +5")
    screen.await_text("at message 5 of 6")
    screen.press("N")
    screen.await_text(r"> +0 +running")
    screen.press("A")
    screen.await_text(r"> +0 +paused")
    screen.resize(16, 80)
    screen.await_text(r"(?s)^containers +0 paused 6 +1 past 5.*n next container")
    screen.press("\x03")
    assert screen.await_end() == 0
    assert "12 messages" in screen.scrolled
    assert is_as_before(screen)
    assert committed(project) == 12


def test_several_containers_end_when_all_have_caught_up(project: Project, watch: Watch) -> None:
    project.configure(SETTINGS, **{"job.container.count": "2"})
    project.fill(40)
    screen = watch("--until", "caught-up")
    assert screen.await_end() == 0
    assert "caught up with its inputs; 40 messages" in screen.scrolled
    assert committed(project) == 40 == len(project.outputs())


@pytest.mark.parametrize("containers", ["1", "2"])
def test_a_rewind_by_keys_takes_the_job_back_to_a_commit(
    project: Project, watch: Watch, containers: str
) -> None:
    project.configure(SETTINGS, **{"job.container.count": containers})
    project.fill(8)
    screen = watch()
    screen.await_text("lag 0")
    screen.press("r99.99\r")
    screen.await_text("rewind: .*there is no commit 99.99")
    screen.press("roldest\r")
    screen.await_text("rewound to oldest: s processes the message after it")
    screen.await_text("paused +0 processed")
    screen.press("s")
    screen.await_text("paused +1 processed")
    screen.press("A")
    screen.await_text("running(.|\n)*lag 0")
    screen.press("q")
    assert screen.await_end() == 0
    assert "16 messages" in screen.scrolled
    assert committed(project) == 8


def test_a_container_that_fails_leaves_the_others_at_work(project: Project, watch: Watch) -> None:
    project.configure(SETTINGS, **{"job.container.count": "2"})
    project.fill(4)
    project.fill_more(77, 78)
    screen = watch()
    screen.await_text(r"> +0 +running +2(.|\n)* 1 +failed +2")
    project.fill_more(4, 5)
    screen.await_text(r"> +0 +running +3")
    screen.press("n")
    screen.await_text("failed at log.numbers.1@2, key 'k77': ValueError: unlucky")
    screen.press("q")
    assert screen.await_end() == 1
    assert 'counts.py", line' in screen.scrolled
    assert is_as_before(screen)
    assert committed(project) == 3
