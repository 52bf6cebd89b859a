"""``%stream rewind``: going back to a commit, a message or the beginning, from the notebook."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from streambench.container.container import Container
from streambench.errors import CheckpointError, ConfigError, StreambenchError
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench_magics.panel.panel import Panel
from tests.magics.conftest import Shell

CONFIG = """%%streamconfig kept
systems.log.samza.factory=log
systems.log.path=data
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
stores.sum.factory=memory
stores.sum.changelog=log.sum-changelog
stores.sum.key.serde=string
stores.sum.msg.serde=json
task.checkpoint.system=log
task.commit.ms=0
"""

TASK = """%%streamtask Sum
class Sum:
    def init(self, context):
        self.sum = context.store("sum")

    def process(self, envelope, collector, coordinator):
        self.sum.put("all", self.sum.get("all", 0) + envelope.message)
"""


@pytest.fixture
def summed(ip_empty: Shell) -> Shell:
    """A job of ten messages, paused after eight, with commits after two and six."""
    for cell in (
        CONFIG,
        "%stream streams create log.numbers --config kept",
        "numbers = list(range(10))",
        "%stream send log.numbers --from numbers --config kept",
        TASK,
        "%stream create Sum --config kept --inputs log.numbers",
        "%stream step 2",
        "%stream commit",
        "%stream step 4",
        "%stream commit",
        "%stream step 2",
    ):
        ip_empty.run(cell)
    return ip_empty


def state(shell: Shell) -> int:
    shell.run("%stream state sum --key all")
    return int(shell.value[0]["value"])


def test_a_job_goes_back_to_a_commit_with_its_stores(summed: Shell) -> None:
    summed.run("%stream checkpoints --history")
    first = next(row["commit"] for row in summed.value if row["checkpoint"] == "1")
    said = summed.run(f"%stream rewind Sum {first}")
    assert "Sum is stopped, with everything committed" in said
    assert "Partition 0: goes on with log.numbers.0 at 2" in said
    summed.run("%stream step")
    assert state(summed) == 0 + 1 + 2


def test_a_job_goes_back_to_the_beginning_with_empty_stores(summed: Shell) -> None:
    assert "Partition 0: goes on with log.numbers.0 at 0" in summed.run("%stream rewind oldest")
    summed.run("%stream step 10")
    assert state(summed) == sum(range(10))


def test_a_rewound_job_has_no_figures_of_before(summed: Shell) -> None:
    summed.run("%stream step 10")
    summed.run("%stream break message == 3")
    summed.run("%stream stop")
    summed.run("%stream rewind oldest")
    summed.run("%stream")
    (row,) = summed.value
    assert (row["state"], row["processed"], row["lag"]) == ("new", 0, None)
    summed.run("%stream step 10")
    assert summed.magics.bench.job("Sum").session.position == 3


def test_a_job_goes_back_to_a_message_and_says_that_its_stores_stay(summed: Shell) -> None:
    assert "warning: the stores stay as they are (sum)" in summed.run("%stream rewind log.numbers.0@7")
    summed.run("%stream step")
    assert state(summed) == sum(range(8)) + 7


def test_what_is_no_place_is_refused_before_the_job_is_stopped(summed: Shell) -> None:
    with pytest.raises(ConfigError, match="'somewhere' is no place to go back to"):
        summed.run("%stream rewind somewhere")
    with pytest.raises(CheckpointError, match="there is no commit 99"):
        summed.run("%stream rewind 99.1")
    assert summed.magics.bench.job("Sum").state == "paused"


def test_a_job_that_runs_elsewhere_is_named_once_before_it_is_taken_over(
    summed: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    summed.run("%stream stop")
    running = Container(summed.magics.bench.job("Sum").config, summed.names["Sum"])
    running.start()
    where = f"Sum is running elsewhere: process {os.getpid()} on {socket.gethostname()} has container 0; "
    assert f"{where}the first step or run here takes it over" in summed.run("%stream create Sum")
    assert "elsewhere" not in summed.run("%stream step")
    summed.run("%stream stop")
    running.abandon()
    running = Container(summed.magics.bench.job("Sum").config, summed.names["Sum"])
    running.start()
    assert summed.run("%stream step").startswith(f"{where}it is taken over from there, at its last commit\n")
    assert "elsewhere" not in summed.run("%stream step")
    assert "elsewhere" not in caplog.text
    summed.run("%stream stop")
    running.abandon()


def test_a_job_that_was_taken_over_says_how_to_take_it_back(summed: Shell) -> None:
    running = Container(summed.magics.bench.job("Sum").config, summed.names["Sum"])
    running.start()
    said = summed.fails("%stream commit")
    assert "has taken over" in said
    assert "%stream step Sum takes it over again, at the last commit of that start" in said
    assert "it is taken over from there" in summed.run("%stream step")
    running.abandon()


def paused(shell: Shell, task: str = TASK) -> None:
    """Start a job with a store in RocksDB, which is paused then."""
    for cell in (
        CONFIG.replace("memory", "rocksdb"),
        "%stream streams create log.numbers --config kept",
        "%stream send log.numbers 1 --config kept",
        task,
        "%stream create Sum --config kept --inputs log.numbers",
        "%stream step",
    ):
        shell.run(cell)


@pytest.fixture
def taken_over(ip_empty: Shell) -> Iterator[tuple[Shell, Container]]:
    """A paused job with a store in RocksDB, and the container that has taken it over."""
    paused(ip_empty)
    running = Container(ip_empty.magics.bench.job("Sum").config, ip_empty.names["Sum"])
    running.start()
    yield ip_empty, running
    running.abandon()


@pytest.mark.parametrize(
    "command", ["step", "run", "commit", "stop", "wait", "pause", "rewind oldest", "swap"]
)
def test_the_next_command_says_that_a_paused_job_was_taken_over(
    taken_over: tuple[Shell, Container], command: str
) -> None:
    shell, running = taken_over
    said = shell.fails(f"%stream {command}")
    assert f"process {os.getpid()}" in said and "has taken over" in said
    assert "%stream step Sum takes it over again, at the last commit of that start" in said
    assert running.state == "running" and not running.is_replaced


def test_the_next_command_says_that_a_running_job_was_taken_over(summed: Shell) -> None:
    job = summed.magics.bench.job("Sum")
    ended = threading.Event()
    job.on_change.append(lambda: ended.set() if job.state == "failed" else None)
    summed.run("%stream run")
    with Container(job.config, summed.names["Sum"]):
        assert ended.wait(60)
    assert "%stream step Sum takes it over again" in summed.fails("%stream step")
    assert "Sum had failed; it goes on from its last checkpoint" in summed.run("%stream step")


def test_a_paused_job_that_was_taken_over_goes_on_with_a_second_step(
    taken_over: tuple[Shell, Container],
) -> None:
    shell, running = taken_over
    shell.fails("%stream step")
    running.stop()
    assert "Sum had failed; it goes on from its last checkpoint" in shell.run("%stream step")


def test_stop_now_ends_a_job_that_was_taken_over_in_a_close_that_hangs(ip_empty: Shell) -> None:
    is_closing, gate = (ip_empty.names.setdefault(name, threading.Event()) for name in ("is_closing", "gate"))
    paused(ip_empty, TASK + "\n    def close(self):\n        is_closing.set()\n        gate.wait(30)\n")
    # As a start does that dies before it opens the stores.
    with closing(checkpoint_manager(ip_empty.magics.bench.job("Sum").config, "Sum-1")) as manager:
        last = manager.last_generation()
        assert last is not None
        manager.open_generation(last.assignment, now_ms=0, places=last.places)
    assert is_closing.wait(60)
    assert ip_empty.run("%stream stop --now").startswith("Sum has given up its message")
    assert "it goes on from its last checkpoint" in ip_empty.run("%stream step")
    gate.set()


def test_a_job_that_has_failed_here_does_not_run_elsewhere(summed: Shell) -> None:
    summed.run("%stream send log.numbers '\"bad\"'")
    summed.fails("%stream step 10")
    assert "elsewhere" not in summed.run("%stream")
    assert summed.value[0]["state"] == "failed"


def test_a_rewind_of_a_job_that_runs_elsewhere_says_so(summed: Shell) -> None:
    summed.run("%stream stop")
    running = Container(summed.magics.bench.job("Sum").config, summed.names["Sum"])
    running.start()
    said = summed.run("%stream rewind oldest").splitlines()
    assert said[0].startswith("Sum is running elsewhere: ") and "; it ends there" in said[0]
    running.abandon()


def test_the_buttons_of_a_panel_say_that_the_job_runs_elsewhere(summed: Shell) -> None:
    job = summed.magics.bench.job("Sum")
    panel = Panel(job)
    commit = panel._viewer.take().standing.commits[0].name
    running = Container(job.config, summed.names["Sum"])
    running.start()
    with pytest.raises(StreambenchError):
        job.commit()
    panel._do(f"rewind {commit}")
    assert panel._notice.text.startswith("Sum is running elsewhere: ")
    assert f"; it ends there, at its last commit · rewound to commit {commit}" in panel._notice.text
    running = Container(job.config, summed.names["Sum"])
    running.start()
    with pytest.raises(StreambenchError):
        job.step()
        job.commit()
    panel._do("step")
    assert panel._notice.text.startswith("Sum is running elsewhere: ")
    assert "; it is taken over from there, at its last commit · it had failed" in panel._notice.text
    job.stop()
    running.abandon()
