"""A stop does not wait for ever for a task that does not come to the end of its message."""

from __future__ import annotations

import signal
import threading
from typing import Any

import psutil
import pytest

import streambench as sb
from streambench.container.container import Container
from streambench.errors import StreambenchError
from streambench.job.runner import ContainerRunner
from streambench.job.watchdog import stuck_at
from streambench.planning.checkpoint_managers import checkpoint_manager
from tests.job.project import Project

SAYS = (
    "did not stop within 100 ms (task.shutdown.ms): it hangs at log.numbers.1@3, key 'k7', in process "
    "(task.py:"
)
HANGS = {"task.class": "task.py:Waits", "task.shutdown.ms": 100}


def committed(config: sb.Config) -> dict[str, list[str]]:
    """Per task that has committed a message, the offsets."""
    manager = checkpoint_manager(config, "up-1")
    try:
        return {
            task: list(last.offsets.values()) for task, last in manager.read_last().items() if last.offsets
        }
    finally:
        manager.close()


@pytest.mark.parametrize(
    ("number", "arguments"), [(signal.SIGTERM, ()), (signal.SIGINT, ("--json", "--quiet"))]
)
def test_a_run_that_hangs_at_a_message_ends_and_names_it(
    project: Project, number: signal.Signals, arguments: tuple[str, ...]
) -> None:
    project.fill(10)
    project.pipes()
    project.configure(HANGS)
    with project.start("run", "job.properties", *arguments) as job:
        project.await_reached()
        job.send_signal(number)
        _, errors = job.communicate()
    assert job.returncode == 1
    (line,) = [each for each in errors.splitlines() if each.startswith("error: ")]
    assert SAYS in line
    assert committed(project.config) == {}
    project.configure()
    assert sb.run(project.config).messages == 10


def test_of_several_containers_the_hanging_one_is_named_without_a_commit(project: Project) -> None:
    project.fill(10)
    project.pipes()
    # Long enough for the other one to stop, which waits for messages by then.
    project.configure(HANGS, **{"job.container.count": 2, "task.shutdown.ms": 3000})
    with project.start("run", "job.properties") as job:
        project.await_reached()
        while not {1, 3, 5, 7, 9} <= set(project.outputs()):
            assert job.poll() is None
        job.terminate()
        _, errors = job.communicate()
    assert job.returncode == 1
    assert f"error: container 1: up-1: container 1 {SAYS.replace('100 ms', '3000 ms')}" in errors
    assert "Partition 1" not in committed(project.config)


def test_the_process_of_a_container_that_cannot_report_its_hang_is_killed(project: Project) -> None:
    project.fill(10)
    config = project.configure({"job.container.count": 2, "task.shutdown.ms": 100})

    others = set(psutil.Process().children())  # brokers of other tests, for example

    def freeze(snapshots: object) -> None:
        for child in set(psutil.Process().children()) - others:
            child.suspend()
        signal.raise_signal(signal.SIGTERM)

    seen = iter([freeze])
    with pytest.raises(
        StreambenchError,
        match=r"its process did not stop within 100 ms \(task\.shutdown\.ms\) and was killed",
    ):
        sb.run(config, None, on_snapshots=lambda snapshots: next(seen, id)(snapshots), every_s=0)


def test_without_anybody_to_end_the_process_it_is_logged(
    project: Project, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.directory)
    project.fill(10)
    project.pipes()
    driver = ContainerRunner(Container(project.configure(HANGS)))
    runner = threading.Thread(target=driver.run, args=("caught-up",))
    runner.start()
    project.await_reached()
    driver.stop_soon()
    for each in threading.enumerate():
        if each.name == "stop":
            each.join()
    (line,) = caplog.messages
    (project.directory / "gate").write_text("")
    runner.join()
    assert SAYS in line
    assert committed(project.config)


class Looked(threading.Event):
    """Counts how often it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.release()
        return super().wait(timeout)


def test_a_container_that_waits_for_the_others_does_not_hang(project: Project) -> None:
    project.fill(2)
    told: list[StreambenchError] = []
    driver = ContainerRunner(Container(project.configure({"task.shutdown.ms": 1})), on_hang=told.append)
    looked = driver._heard = Looked()

    def next_round(processed: int, sent: int) -> bool:
        driver.stop_soon()
        for _ in range(3):
            looked.waits.acquire()
        return False

    assert driver.run("caught-up", next_round).ended == "signal"
    assert told == []


def test_where_no_code_of_the_user_is_on_the_stack_nothing_is_named() -> None:
    assert stuck_at(None) == ""


def test_a_last_commit_that_comes_to_no_end_is_told_as_that(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(1)
    told: list[StreambenchError] = []
    answers = threading.Event()

    def heard(error: StreambenchError) -> None:
        told.append(error)
        answers.set()

    container = Container(project.configure({"task.shutdown.ms": 50}))
    driver = ContainerRunner(container, on_hang=heard)

    def is_reached() -> bool:
        commits = container.runtime.commits
        commit = commits.commit

        def slow(tasks: Any, **options: Any) -> None:
            answers.wait()
            commit(tasks, **options)

        monkeypatch.setattr(commits, "commit", slow)
        driver.stop_soon()
        return True

    driver.run(is_reached)
    assert (
        "(task.shutdown.ms): its last commit waits for a system that does not answer; nothing since"
        in str(told[0])
    )
