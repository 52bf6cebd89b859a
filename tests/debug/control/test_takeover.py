"""A session that stands still, while another process takes over its job with its stores in RocksDB."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.errors import ContainerStateError, FencedError, TaskError
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.log import open_log

GUARANTEES = ["at-least-once", "exactly-once"]

HOLDER = """
import sys
from tests.debug.control.test_takeover import answer

answer(sys.argv[1], sys.argv[2])
"""


class Counts(sb.StreamTask):
    """Counts messages by key, and sends each count. It fails at the key "bad" if it is to."""

    fails = False

    def init(self, context: sb.TaskContext) -> None:
        self.counts = context.store("counts")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        key = envelope.message
        self.counts[key] = self.counts.get(key, 0) + 1
        collector.send("log.out", f"{key}{self.counts[key]}")
        if self.fails and key == "bad":
            raise ValueError("a bad key")


class Fails(Counts):
    fails = True


def job(directory: Path | str, **values: Any) -> dict[str, Any]:
    return {
        "job.name": "counts",
        "task.inputs": "log.in",
        "task.commit.ms": -1,
        "systems.log.samza.factory": "log",
        "systems.log.path": directory,
        "systems.log.samza.msg.serde": "string",
        "systems.log.samza.offset.default": "oldest",
        "stores.counts.factory": "rocksdb",
        **values,
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with open_log(tmp_path) as streams:
        streams.create("in")
        streams.create("out")
        streams.partition("in", 0).append(None, [b"a", b"b", b"a", b"bad", b"b"])
    return tmp_path


def outputs(directory: Path) -> list[str]:
    with open_log(directory) as streams:
        batches = streams.partition("out", 0).read(0)
        return [value.decode() for batch in batches for value in batch["value"].to_pylist()]


def beside(directory: Path) -> list[Path]:
    """The directories of stores that were made because another process kept the first one."""
    return list(directory.glob("_jobs/counts-1/stores/counts/*~*"))


def paused_session(directory: Path | str, task: Any = Counts, **values: Any) -> Session:
    """A session that has processed three messages, and committed two of them."""
    session = Session(Container(job(directory, **values), task))
    session.start()
    session.step(2)
    session.commit()
    session.step(1)
    return session


def answer(directory: str, guarantee: str) -> None:
    """A process with a paused session, which evaluates the lines that it reads."""
    session = paused_session(directory, Fails, **{"task.processing.guarantee": guarantee})
    names = {"session": session, "failed_step": failed_step}
    print("paused", flush=True)
    for line in sys.stdin:
        try:
            said = repr(eval(line, names))
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        print(said, flush=True)


def failed_step(session: Session) -> bool:
    try:
        session.step()
    except TaskError:
        return session.can_resume
    return False


class Holder:
    """The other process."""

    def __init__(self, process: subprocess.Popen[str], guarantee: str) -> None:
        self.process, self.guarantee = process, guarantee
        assert self.read() == "paused"

    def ask(self, expression: str) -> str:
        assert self.process.stdin is not None
        print(expression, file=self.process.stdin, flush=True)
        return self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip()


@pytest.fixture(params=GUARANTEES)
def holder(directory: Path, request: pytest.FixtureRequest) -> Iterator[Holder]:
    command = [sys.executable, "-c", HOLDER, str(directory), request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Holder(process, request.param)
        process.communicate()


@pytest.mark.parametrize("before", ["session.state", "session.back(2)", "failed_step(session)"])
def test_a_paused_job_releases_its_stores_to_another_process(
    holder: Holder, before: str, directory: Path
) -> None:
    assert holder.ask(before) in ("'paused'", "1", "True")
    position, state = holder.ask("session.position"), holder.ask("session.stores()")
    with Container(job(directory, **{"task.processing.guarantee": holder.guarantee}), Counts) as taker:
        assert not beside(directory), "the start has not got the files of the former one"
        taker.run("caught-up")
        assert holder.ask("session.state") == "'failed'"
        assert holder.ask("session.position") == position
        assert holder.ask("session.stores()") == state
        said = holder.ask("session.go_live() and session.step()")
        assert said.startswith("SupersededError: job counts-1, container 0: a newer start of the job")
        assert f"process {os.getpid()}" in said
        assert holder.ask("session.step()").startswith("ContainerStateError: ")
        holder.ask("session.stop()")
    there = outputs(directory)
    if holder.guarantee == "exactly-once":
        assert there == ["a1", "b1", "a2", "bad1", "b2"]
    else:
        assert there[-3:] == ["a2", "bad1", "b2"] and set(there) == {"a1", "b1", "a2", "bad1", "b2"}


def test_a_paused_job_releases_its_stores_to_its_own_process(directory: Path) -> None:
    session = paused_session(directory)
    with Container(job(directory), Counts) as taker:
        assert taker.run("caught-up") == 3
    with pytest.raises(FencedError, match="has taken over"):
        session.step()
    with pytest.raises(ContainerStateError, match="is failed"):
        session.step()
    assert session.stores() == {"Partition 0": {"counts": {"a": 2, "b": 1}}}


def supersede(directory: Path) -> None:
    """Open another generation, as a start does that dies then."""
    manager = checkpoint_manager(sb.Config(job(directory)), "counts-1")
    last = manager.last_generation()
    assert last is not None
    manager.open_generation(last.assignment, now_ms=0, places=last.places)
    manager.close()


def on_another_thread(what: Any) -> None:
    thread = threading.Thread(target=what)
    thread.start()
    thread.join()


def test_no_takeover_is_noticed_while_a_callback_runs(directory: Path) -> None:
    states = []

    class Overtaken(Counts):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if envelope.message == "bad":
                supersede(directory)
                on_another_thread(session.notice_takeover)
                states.append((session.container.state, self.counts["bad"]))

    session = paused_session(directory, Overtaken)
    with pytest.raises(FencedError):
        session.step(here=True)
        session.commit()
    assert states == [("running", 1)]
    assert session.container.is_released


def test_a_command_waits_for_the_end_of_a_job_that_was_taken_over(directory: Path) -> None:
    closing, gate = threading.Event(), threading.Event()

    class Slow(Counts):
        def close(self) -> None:
            closing.set()
            gate.wait(60)

    session = paused_session(directory, Slow)
    supersede(directory)
    assert closing.wait(60)
    assert session.state == "failed"
    threading.Timer(0.1, gate.set).start()
    assert session.is_takeover_unreported
    with pytest.raises(FencedError):
        session.report_takeover()
    assert not session.is_takeover_unreported


def test_a_branch_is_kept_until_its_session_is_live_again(directory: Path) -> None:
    session = paused_session(directory)
    session.back()
    session.swap(Counts)
    assert session.branched
    supersede(directory)
    session.notice_takeover()
    assert session.branched and session.step() == 1
    session.go_live()
    session.notice_takeover()
    assert session.state == "failed"
    with pytest.raises(FencedError):
        session.run()


def watches(name: str) -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == f"claim of {name}-1"]


def test_the_watch_ends_with_its_session(directory: Path) -> None:
    session = paused_session(directory, **{"job.name": "watched"})
    assert len(watches("watched")) == 1
    session.stop()
    until = time.monotonic() + 60
    while watches("watched") and time.monotonic() < until:
        threading.Event().wait(0.01)
    assert not watches("watched")


def test_a_session_with_stores_in_memory_is_not_watched(directory: Path) -> None:
    session = paused_session(directory, **{"job.name": "unwatched", "stores.counts.factory": "memory"})
    assert not watches("unwatched")
    session.stop()
