"""``streambench.run``: a job in this process, or in several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

import streambench as sb
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.checkpoint.record_log import RecordLog
from streambench.chooser import RoundRobinChooser
from streambench.container.container import Container
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.errors import ConfigError, StreambenchError, TaskError
from streambench.job import processes, runner
from streambench.job.messages import CaughtUp, Finish, KeepRunning, StartContainer
from streambench.job.pickling import shipped
from streambench.job.restarts import Restart
from streambench.job.result import ContainerRun
from streambench.job.runner import ContainerRunner
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import JobModel
from streambench.system.systems import Systems
from tests.container.stateful import Job, Keep
from tests.job.project import CHECKOUT, Project, await_ends


def ssp(partition: int) -> sb.SystemStreamPartition:
    return sb.SystemStreamPartition("log", "numbers", partition)


def committed(config: sb.Config) -> dict[str, dict[str, str]]:
    manager = checkpoint_manager(config, "up-1")
    try:
        return {
            task: {str(at): offset for at, offset in last.offsets.items()}
            for task, last in manager.read_last().items()
        }
    finally:
        manager.close()


def test_one_container_runs_here_until_it_has_caught_up_and_commits(project: Project) -> None:
    project.fill(10)
    result = sb.run(project.config)
    assert (result.messages, result.ended) == (10, "caught-up")
    assert result.containers[0].offsets == {ssp(0): ("0", "5"), ssp(1): ("0", "5")}
    assert project.outputs() == list(range(1, 11))
    assert committed(project.config) == {
        "Partition 0": {"log.numbers.0": "4"},
        "Partition 1": {"log.numbers.1": "4"},
    }


def test_a_run_of_so_many_messages_is_continued_by_the_next(project: Project) -> None:
    project.fill(10)
    first = sb.run(project.config, 4)
    second = sb.run(project.config)
    assert (first.messages, first.ended, second.messages) == (4, "count", 6)
    for partition, (before, _) in second.containers[0].offsets.items():
        assert before == first.containers[0].offsets[partition][1]


@pytest.mark.parametrize("kind", [str, Path])
def test_it_takes_the_path_of_a_properties_file(project: Project, kind: Any) -> None:
    project.fill(3)
    assert sb.run(kind(project.directory / "job.properties")).messages == 3


def test_it_takes_a_task_from_python_and_a_plain_mapping(project: Project) -> None:
    project.fill(3)
    seen: list[int] = []
    values = {**project.config, "systems.log.path": str(project.directory / "streams")}
    sb.run(values, task=lambda envelope, collector, coordinator: seen.append(envelope.message["n"]))
    assert sorted(seen) == [0, 1, 2]


def test_a_container_starts_after_a_death_between_two_generations(
    project: Project,
) -> None:
    project.fill(10)
    assert sb.run(project.config, container=0).messages == 10

    class Died(BaseException):
        pass

    starter = JournalCheckpointManager(project.directory / "streams" / "_jobs" / "up-1", "up-1", keep=1)
    with (
        mock.patch.object(
            RecordLog, "append", autospec=True, side_effect=_dies_when_it_opens_a_generation(Died)
        ),
        pytest.raises(Died),
    ):
        starter.open_generation({0: ["Partition 0", "Partition 1"]}, now_ms=1)
    assert sb.run(project.config, container=0).ended == "caught-up"


def _dies_when_it_opens_a_generation(died: type[BaseException]) -> Any:
    append = RecordLog.append

    def dying(record_log: RecordLog, *arguments: Any, **more: Any) -> Any:
        if record_log.directory.name == "generations":
            raise died
        return append(record_log, *arguments, **more)

    return dying


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"systems.scratch.samza.factory": "memory"}, "systems.scratch.samza.factory"),
        (
            {
                "task.checkpoint.system": "log",
                "systems.log.samza.factory": "memory",
                "systems.log.path": None,
            },
            "systems.log.samza.factory",
        ),
    ],
)
def test_several_processes_cannot_share_what_is_in_memory(
    project: Project, settings: dict[str, str], key: str
) -> None:
    project.fill(4)
    with pytest.raises(ConfigError, match="exists once in each process") as told:
        sb.run(project.configure({**settings, "job.container.count": 2}))
    assert told.value.key == key


def test_snapshots_end_with_a_last_true_one(project: Project) -> None:
    project.fill(10)
    seen: list[ContainerSnapshot] = []
    sb.run(project.config, on_snapshots=lambda snapshots: seen.extend(snapshots), every_s=0)
    assert (seen[-1].state, seen[-1].processed, seen[-1].lag) == ("stopped", 10, 0)


def test_what_a_callback_raises_stops_the_job_cleanly_and_is_raised(project: Project) -> None:
    project.fill(10)

    def fails(snapshots: Any) -> None:
        raise RuntimeError("the display broke")

    with pytest.raises(RuntimeError, match="the display broke"):
        sb.run(project.config, None, on_snapshots=fails, every_s=0)
    assert project.outputs() == [n + 1 for n in range(10)][: len(project.outputs())]


def test_off_the_main_thread_it_runs_without_touching_signals(project: Project) -> None:
    project.fill(4)
    before = signal.getsignal(signal.SIGINT)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(sb.run(project.config)))
    thread.start()
    thread.join()
    assert results[0].messages == 4
    assert signal.getsignal(signal.SIGINT) is before


def test_signal_handlers_are_put_back_afterwards(project: Project) -> None:
    project.fill(1)
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    sb.run(project.config)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_several_containers_run_in_processes_of_their_own(project: Project) -> None:
    project.fill(20, partitions=4)
    config = project.configure({"job.container.count": 2})
    seen: list[tuple[int, ...]] = []
    result = sb.run(
        config, on_snapshots=lambda snapshots: seen.append(tuple(each.processed for each in snapshots))
    )
    assert [(each.container, each.messages, each.ended) for each in result.containers] == [
        (0, 10, "caught-up"),
        (1, 10, "caught-up"),
    ]
    assert result.containers[1].offsets == {ssp(1): ("0", "5"), ssp(3): ("0", "5")}
    assert project.outputs() == list(range(1, 21))
    assert seen[-1] == (10, 10)
    assert len(committed(config)) == 4


def test_containers_that_feed_each_other_stop_only_when_none_has_work_left(project: Project) -> None:
    config = project.configure({"task.class": "task.py:Feeds", "job.container.count": 2})
    project.fill(8)
    # Each n counts down to 0, from one partition to the other, one message more for each step.
    assert sb.run(config).messages == sum(n + 1 for n in range(8))


def test_a_class_that_exists_only_here_is_shipped_to_the_processes(project: Project) -> None:
    project.fill(6)
    out = sb.SystemStream("log", "up")

    class Local(sb.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            collector.send(sb.OutgoingMessageEnvelope(out, {"n": envelope.message["n"] + 100}))

    sb.run(project.configure({"job.container.count": 2}), task=Local)
    assert project.outputs() == [100, 101, 102, 103, 104, 105]


class Present(RoundRobinChooser):
    """Takes turns, and leaves a file where it was at work."""

    directory = ""

    def stop(self) -> None:
        (Path(self.directory) / f"chooser-{os.getpid()}").touch()


def test_a_chooser_of_this_program_goes_with_it_into_the_processes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(6)
    here = type("Present", (Present,), {"directory": str(project.directory), "__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Present", here, raising=False)
    sb.run(project.configure({"job.container.count": 2, "task.chooser.class": "__main__.Present"}))
    pids = {int(each.name.partition("-")[2]) for each in project.directory.glob("chooser-*")}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_a_class_that_exists_only_here_needs_cloudpickle_to_be_shipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.setitem(sys.modules, "pyspark.cloudpickle", None)
    with pytest.raises(ConfigError, match=r"pip install cloudpickle.*task\.class=file\.py:Class"):
        shipped(lambda envelope, collector, coordinator: None)


def test_a_task_that_holds_what_cannot_travel_is_refused_by_name() -> None:
    lock = threading.Lock()

    def locked(envelope: Any, collector: Any, coordinator: Any) -> None:
        lock.acquire()

    with pytest.raises(ConfigError, match=r"locked cannot be handed to another process"):
        shipped(locked)


def test_several_containers_cannot_stop_at_a_count_together(project: Project) -> None:
    project.fill(4)
    with pytest.raises(ConfigError, match=r"job\.container\.count=2.*--container 0"):
        sb.run(project.configure({"job.container.count": 2}), 3)
    assert committed(project.config) == {}


def test_one_container_of_several_runs_alone_and_joins_the_same_generation(project: Project) -> None:
    project.fill(8)
    config = project.configure({"job.container.count": 2})
    first, second = sb.run(config, container=1), sb.run(config, 2, container=0)
    assert (first.messages, second.messages) == (4, 2)
    manager = checkpoint_manager(config, "up-1")
    last = manager.last_generation()
    manager.close()
    assert last is not None and last.number == 1


def test_a_container_number_that_is_out_of_range_is_refused(project: Project) -> None:
    project.fill(2)
    with pytest.raises(ConfigError, match=r"there is no container 1"):
        sb.run(project.config, container=1)


def test_a_failure_in_another_process_keeps_its_place_and_its_frames(project: Project) -> None:
    project.fill(20)
    config = project.configure({"task.class": "task.py:Raises", "job.container.count": 2})
    with pytest.raises(TaskError) as caught:
        sb.run(config)
    error = caught.value
    assert str(error).startswith("container 1: Partition 1 failed at log.numbers.1@3")
    assert (error.task, error.ssp, error.offset, error.key) == ("Partition 1", ssp(1), "3", "k7")
    assert 'return message["n"] / 0' in error.__notes__[0]
    assert str(CHECKOUT / "streambench") not in error.__notes__[0]


def test_when_one_container_fails_the_others_stop_with_a_commit(project: Project) -> None:
    project.fill(20)
    config = project.configure({"task.class": "task.py:Raises", "job.container.count": 2})
    with pytest.raises(TaskError):
        sb.run(config, None)
    assert "log.numbers.1" not in committed(config).get("Partition 1", {})
    # It may have been stopped before its first message. Then it has sent nothing, and has nothing to commit.
    done = committed(config).get("Partition 0", {}).get("log.numbers.0", "-1")
    sent = [n - 1 for n in project.outputs() if n % 2 == 1]
    assert int(done) + 1 == len(sent)


def test_a_stop_that_comes_before_the_start_is_heeded(project: Project) -> None:
    project.fill(4)
    driver = ContainerRunner(Container(project.config))
    driver.stop_soon()
    run = driver.run(None)
    assert (run.ended, run.messages) == ("signal", 0)


@pytest.mark.parametrize("changes", [0, 10_000], ids=["changelog", "snapshot"])
def test_a_restore_is_shown_and_a_stop_need_not_wait_for_its_end(changes: int, tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        {
            "stores.s.factory": "memory",
            "stores.s.snapshot.changes": changes,
            "stores.s.clean.on.container.start": True,
        },
    )
    state = job.run(*((f"k{at}", "1") for at in range(25_000)))  # more than is read at once
    shown: list[ContainerSnapshot] = []

    def show(snapshot: ContainerSnapshot) -> None:
        # On a busy machine one may be taken before the restore begins.
        if snapshot.restoring is not None or shown:
            shown.append(snapshot)
            driver.stop_soon()

    driver = ContainerRunner(Container(job.config, Keep), on_snapshot=show, every_s=0)
    run = driver.run(None)
    assert (run.ended, run.messages) == ("signal", 0)
    assert bool(list(tmp_path.rglob("snapshot-*"))) == bool(changes)
    [first, last] = shown
    assert first.restoring is not None and first.restoring.total == 25_000
    assert 0 < first.restoring.restored < 25_000
    assert (last.state, last.reason) == ("stopped", "stopped while its state was restored")
    assert job.run() == state


def test_a_slow_init_is_named_and_a_stop_waits_for_it_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "_SLOW_INIT_S", 0.01)
    begun: list[str] = []
    released = threading.Event()

    class SlowToInit(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            begun.append(context.task_name)
            assert released.wait(60)

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            pass

    project.fill(4)
    container = Container(project.config, SlowToInit)
    driver = ContainerRunner(container)
    runs: list[ContainerRun] = []
    thread = threading.Thread(target=lambda: runs.append(driver.run(None)))
    thread.start()
    try:
        while "container 0 is still in the init of Partition 0" not in caplog.messages:
            assert thread.is_alive()
        driver.stop_soon()
        assert driver.under_way() == "the init of Partition 0"
    finally:
        released.set()
        thread.join(60)
    assert [(run.ended, run.messages) for run in runs] == [("signal", 0)]
    assert begun == ["Partition 0"]
    assert container.snapshot().reason == "stopped before the init of Partition 1"


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def test_no_container_outlives_the_process_that_runs_the_job(project: Project) -> None:
    project.fill(20)
    project.pipes()
    project.configure({"task.class": "task.py:Waits", "job.container.count": 2})
    with project.start("run", "job.properties") as job:
        project.await_reached()
        children = children_of(job)
        assert len(children) == 2
        job.kill()
        await_ends(children)


RETRY = "cluster-manager.container.retry."


def test_a_killed_container_goes_on_from_its_checkpoint_in_a_new_process(project: Project) -> None:
    project.fill(20)
    project.pipes()
    project.configure({"task.class": "task.py:Waits", "job.container.count": 2, f"{RETRY}delay.ms": 1})
    with project.start("run", "job.properties", "--until", "caught-up", "--json") as job:
        first = project.await_reached()
        os.kill(first, signal.SIGKILL)
        second = project.await_reached()
        (project.directory / "gate").write_text("")
        out, errors = job.communicate()
    assert second != first
    assert job.returncode == 0, errors
    assert "container 1: was killed (SIGKILL); it is started again in 0.001 s (1 of 8)" in errors
    restart, *ends = [row for row in map(json.loads, out.splitlines()) if row["event"] != "progress"]
    assert (restart["event"], restart["container"], restart["reason"]) == (
        "restart",
        1,
        "was killed (SIGKILL)",
    )
    assert [(row["event"], row["container"], row["restarts"]) for row in ends] == [
        ("end", 0, 0),
        ("end", 1, 1),
    ]
    assert sorted(set(project.outputs())) == list(range(1, 21))


def test_the_others_go_on_while_a_container_is_started_again_and_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.directory)
    project.fill(20)
    project.pipes()
    project.configure(
        {"task.class": "task.py:Exits", "job.container.count": 2, f"{RETRY}count": 2, f"{RETRY}delay.ms": 1}
    )
    restarts: list[Restart] = []
    with pytest.raises(
        StreambenchError,
        match=r"container 1: its process ended with exit code 3; it has died 3 times.*retry\.count=2",
    ):
        sb.run(project.config, None, on_restart=restarts.append)
    assert [(each.container, each.reason, each.attempt, each.pause_s) for each in restarts] == [
        (1, "ended with exit code 3", 1, 0.001),
        (1, "ended with exit code 3", 2, 0.002),
    ]
    assert committed(project.config)["Partition 0"] == {"log.numbers.0": "9"}


def test_a_container_may_be_left_dead(project: Project) -> None:
    project.fill(20)
    project.configure({"task.class": "task.py:Exits", "job.container.count": 2, f"{RETRY}count": 0})
    with pytest.raises(
        StreambenchError,
        match=r"exit code 3; cluster-manager\.container\.retry\.count=0, so it was not started again",
    ):
        sb.run(project.config)


def test_a_stop_does_not_wait_for_a_container_that_is_to_be_started_again(project: Project) -> None:
    project.fill(20)
    project.configure(
        {"task.class": "task.py:Exits", "job.container.count": 2, f"{RETRY}delay.ms": 3_600_000}
    )

    def stop(restart: Restart) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(
        StreambenchError, match="exit code 3; the job was stopped before it was started again"
    ):
        sb.run(project.config, None, on_restart=stop)


def test_a_container_whose_task_raises_is_not_started_again(project: Project) -> None:
    project.fill(20)
    restarts: list[Restart] = []
    with pytest.raises(TaskError, match="container 1"):
        sb.run(
            project.configure({"task.class": "task.py:Raises", "job.container.count": 2}),
            None,
            on_restart=restarts.append,
        )
    assert restarts == []


def test_nobody_has_caught_up_while_a_container_is_started_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.directory)
    config = project.configure(
        {"task.class": "task.py:FeedsAndDies", "job.container.count": 2, f"{RETRY}delay.ms": 1}
    )
    project.fill(8)
    result = sb.run(config)
    assert sum(each.restarts for each in result.containers) == 1
    assert {(last, upcoming) for last, upcoming in ends(config)} == {
        (upcoming, upcoming) for _, upcoming in ends(config)
    }


def test_a_container_has_not_caught_up_before_it_saw_all_that_others_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One container has ended (its inputs have, or its task wanted to) when the other has caught up already.
    """
    told: list[list[Any]] = []

    class Child:
        def __init__(self, order: StartContainer) -> None:
            self.connection, self._theirs = Pipe()
            self._reports: list[Any] = [ContainerRun(0, 3, {}, 0.0, "end-of-stream")]
            if order.number == 1:
                self._reports = [CaughtUp(0, 0), CaughtUp(3, 0), ContainerRun(1, 3, {}, 0.0, "caught-up")]
            self.told: list[Any] = []
            told.append(self.told)
            self._theirs.send(None)

        def receive(self) -> Any:
            self.connection.recv()
            return self._reports.pop(0)

        def send(self, what: Any) -> None:
            self.told.append(what)
            self._theirs.send(None)

        def end(self) -> None:
            self.connection.close()
            self._theirs.close()

    monkeypatch.setattr(processes, "ChildProcess", Child)
    model = JobModel("up", ())
    # What they report is heard in this order.
    orders = [StartContainer(sb.Config(), None, {}, model, number, 1, "caught-up", None) for number in (1, 0)]
    runs = processes.Processes(orders).run()
    assert [run.messages for run in runs] == [3, 3]
    assert [type(what) for what in told[0]] == [KeepRunning, Finish]


def ends(config: sb.Config) -> list[tuple[int, int]]:
    """Per partition of the inputs: where the next start goes on, and what is upcoming."""
    systems = Systems(config)
    there = systems.metadata([sb.SystemStream("log", "numbers")])[sb.SystemStream("log", "numbers")]
    systems.close()
    done = {at: int(offset) + 1 for last in committed(config).values() for at, offset in last.items()}
    return [(done[f"log.numbers.{number}"], int(here.upcoming or 0)) for number, here in there.items()]


def test_an_error_of_a_callback_of_several_containers_stops_them_cleanly(
    project: Project,
) -> None:
    project.fill(20)
    config = project.configure({"job.container.count": 2})
    seen: list[Any] = []

    def fails(snapshots: Any) -> None:
        seen.append(snapshots)
        raise RuntimeError("the display broke")

    with pytest.raises(RuntimeError, match="the display broke"):
        sb.run(config, None, on_snapshots=fails, every_s=0)
    assert len(seen) == 1
    done = sum(int(offset) + 1 for task in committed(config).values() for offset in task.values())
    assert len(project.outputs()) == done


def test_a_stop_signal_has_all_containers_commit(project: Project) -> None:
    project.fill(20)
    project.pipes()
    config = project.configure({"task.class": "task.py:Tells", "job.container.count": 2})
    with project.start("run", "job.properties") as job:
        project.await_reached()
        job.terminate()
        out, errors = job.communicate()
    assert job.returncode == 0, errors
    assert "stopped" in out
    done = sum(int(offset) + 1 for task in committed(config).values() for offset in task.values())
    assert len(project.outputs()) == done
