"""Processes that share the tasks of a job come and go, and die."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from streambench.cli.app import main
from streambench.config import Config
from streambench.errors import ConfigError, StreamSystemError
from streambench.job.membership import MemberInfo, Rebalance, living, read_round
from streambench.job.run import run
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata, SystemStream
from streambench.system.log import open_log
from streambench.system.log.admin import LogAdmin
from streambench.system.log.factory import LogSystemFactory, log_of
from tests.conftest import SOAK
from tests.job.project import Project

PARTITIONS = 4
# A member that only waits for the processor is not to be taken for a frozen one.
SETTINGS = {"task.commit.ms": "20", "job.group.session.ms": "60000", "job.group.rebalance.ms": "60000"}
FREEZING = {**SETTINGS, "job.group.session.ms": "2000", "job.group.rebalance.ms": "1000"}


class Group:
    """Members in copies of this process, which are there at once."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.processes: list[int] = []
        self.sent = 0
        project.fill(0, partitions=PARTITIONS)
        with open_log(project.directory / "streams") as log:
            log.create("up", 1)

    @property
    def directory(self) -> Path:
        (found,) = (self.project.directory / "streams" / "_jobs").glob("*/members")
        return found

    def start(self) -> int:
        process = os.fork()
        if process:
            self.processes.append(process)
            return process
        try:
            os.chdir(self.project.directory)
            main(["run", "job.properties", "--join", "-q"])
        except SystemExit as end:
            os._exit(int(end.code or 0))
        finally:
            os._exit(1)

    def end(self, process: int, how: signal.Signals) -> int:
        """Have a member end; how it did."""
        os.kill(process, how)
        self.processes.remove(process)
        return os.waitpid(process, 0)[1]

    def send(self, count: int) -> None:
        self.project.fill_more(self.sent, self.sent + count, partitions=PARTITIONS)
        self.sent += count

    def await_outputs(self) -> None:
        """Wait until all that was sent has been processed."""
        self.wait(lambda: len(set(self.project.outputs())) == self.sent)

    def wait(self, until: Callable[[], bool]) -> None:
        while not until():
            for process in self.processes:
                assert os.waitpid(process, os.WNOHANG) == (0, 0), "a member has ended by itself"
            time.sleep(0.02)

    def shares(self) -> dict[int, int]:
        """How many tasks each process has, once the round of all that were started is settled."""
        settled: dict[int, int] = {}

        def is_settled() -> bool:
            try:
                current, members = read_round(self.directory), living(self.directory, 60)
            except ValueError:
                return False
            settled.clear()
            settled.update(_held(current, members))
            return sorted(settled) == sorted(self.processes)

        self.wait(is_settled)
        return settled

    def close(self) -> None:
        for process in self.processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _held(current: Rebalance | None, members: list[MemberInfo]) -> dict[int, int]:
    if current is None or current.shares is None or {*current.members} != {each.name for each in members}:
        return {}
    tasks = current.shares.tasks()
    return {each.process: len(tasks.get(each.name, ())) for each in members}


BOTH = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


@pytest.fixture
def guarantee() -> str:
    return "at-least-once"


@pytest.fixture
def settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
def group(project: Project, settings: dict[str, str], guarantee: str) -> Iterator[Group]:
    project.configure({**settings, "task.processing.guarantee": guarantee})
    made = Group(project)
    yield made
    made.close()


def test_members_share_the_tasks_and_take_over_from_those_that_end(group: Group) -> None:
    first = group.start()
    assert group.shares() == {first: 4}
    group.send(20)
    second = group.start()
    assert group.shares() == {first: 2, second: 2}
    group.send(20)
    group.await_outputs()
    assert group.end(first, signal.SIGTERM) == 0
    assert group.shares() == {second: 4}
    group.send(20)
    group.await_outputs()
    # Nobody died: all of them have committed before they let go, so that nothing was done twice whatever the
    # guarantee.
    assert Counter(group.project.outputs()) == Counter(range(1, 61))


def test_what_a_member_counts_goes_on_when_tasks_are_dealt_anew(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(group.project.directory)
    other = group.start()
    shown: list[int] = []

    def await_tasks(count: int) -> None:
        def has_them() -> bool:
            try:
                return (
                    _held(read_round(group.directory), living(group.directory, 60)).get(os.getpid()) == count
                )
            except ValueError:
                return False

        group.wait(has_them)

    def happens() -> None:
        try:
            await_tasks(2)
            group.send(20)
            group.await_outputs()
            group.end(other, signal.SIGTERM)
            await_tasks(4)
            group.send(20)
            group.await_outputs()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    scenario = threading.Thread(target=happens)
    scenario.start()
    result = run(
        group.project.config,
        None,
        join=True,
        every_s=0.01,
        on_snapshots=lambda each: shown.append(each[0].processed),
    )
    scenario.join()
    assert shown == sorted(shown)
    assert (result.messages, shown[-1]) == (30, 30)


@BOTH
def test_a_dead_members_tasks_go_to_others(group: Group, guarantee: str) -> None:
    members = [group.start() for _ in range(2)]
    assert sorted(group.shares().values()) == [2, 2]
    group.send(40)
    group.end(members[0], signal.SIGKILL)
    assert group.shares() == {members[1]: 4}
    group.await_outputs()
    found = group.project.outputs()
    assert set(found) == set(range(1, 41))
    if guarantee == "exactly-once":
        assert sorted(found) == list(range(1, 41))


@pytest.mark.parametrize(("settings", "guarantee"), [(FREEZING, "exactly-once")])
def test_one_that_was_stopped_for_a_while_is_fenced_and_comes_back(group: Group) -> None:
    members = [group.start() for _ in range(2)]
    group.shares()
    os.kill(members[0], signal.SIGSTOP)
    group.send(40)
    group.await_outputs()
    os.kill(members[0], signal.SIGCONT)
    assert group.shares() == {members[0]: 2, members[1]: 2}
    group.send(40)
    group.await_outputs()
    assert sorted(group.project.outputs()) == list(range(1, 81))


def test_there_may_be_more_members_than_tasks(group: Group) -> None:
    for _ in range(PARTITIONS + 1):
        group.start()
    assert sorted(group.shares().values()) == [0, 1, 1, 1, 1]


class FailingSystem(LogSystemFactory):
    """A log that answers no questions while there is a file ``down`` in the working directory; ``asked`` says
    that there were some."""

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> LogAdmin:
        return FailingAdmin(system, log_of(system, config))


class FailingAdmin(LogAdmin):
    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        if Path("down").exists():
            Path("asked").touch()
            raise StreamSystemError("nobody answers")
        return super().metadata(streams)


FAILING = {
    **SETTINGS,
    "task.inputs": "failing.numbers",
    "systems.failing.samza.factory": "tests.job.test_group.FailingSystem",
    "systems.failing.path": "streams",
    "systems.failing.samza.offset.default": "oldest",
    "systems.failing.samza.msg.serde": "json",
    "systems.failing.samza.key.serde": "string",
}


def test_a_silent_system_while_a_member_dies_does_not_end_the_others(project: Project) -> None:
    project.configure(FAILING)
    group = Group(project)
    try:
        first = group.start()
        assert group.shares() == {first: 4}
        second = group.start()
        assert group.shares() == {first: 2, second: 2}
        # Whether their containers have started by now or not.
        (project.directory / "down").touch()
        group.end(first, signal.SIGKILL)
        group.wait((project.directory / "asked").exists)
        (project.directory / "down").unlink()
        assert group.shares() == {second: 4}
        group.send(20)
        group.await_outputs()
    finally:
        group.close()


def test_a_system_that_never_answers_ends_the_group_with_what_is_wrong(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project.configure(FAILING)
    monkeypatch.setattr("streambench.job.group._PATIENCE_S", 0.0)
    monkeypatch.chdir(project.directory)
    Path("down").touch()
    with pytest.raises(StreamSystemError, match="nobody answers"):
        run(config, None, join=True)


def test_the_groups_are_listed_though_a_system_does_not_answer(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.configure(FAILING)
    project.fill(4)
    project.ok("run", "job.properties", "--until", "caught-up")
    (project.directory / "down").touch()
    done = project.run("streams", "--groups", "--json", "-c", "job.properties")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["position"], row["upcoming"], row["lag"]) for row in rows] == [("2", None, None)] * 2
    assert done.returncode == 1
    assert done.stderr.count("nobody answers") == 1


def test_the_groups_are_listed_with_who_has_what_and_how_far_it_is(project: Project) -> None:
    project.configure(SETTINGS)
    group = Group(project)
    first, second = group.start(), group.start()
    group.shares()
    group.send(20)
    group.await_outputs()
    group.wait(lambda: all(row["lag"] == 0 for row in project.rows("streams", "--groups")))
    rows = project.rows("streams", "log.numbers", "--groups")
    assert [(row["group"], row["stream"], row["partition"], row["position"]) for row in rows] == [
        ("up-1", "log.numbers", number, "5") for number in range(4)
    ]
    assert Counter(row["member"].split()[1] for row in rows) == {str(first): 2, str(second): 2}
    assert (group.end(first, signal.SIGTERM), group.end(second, signal.SIGTERM)) == (0, 0)
    group.send(4)
    # Another group reads the same, from where it likes, and does not move this one.
    project.configure({**SETTINGS, "job.name": "other"})
    project.ok("run", "job.properties", "--until", "caught-up")
    rows = project.rows("streams", "--groups")
    assert {row["member"] for row in rows} == {None}
    assert {(row["group"], row["position"], row["lag"]) for row in rows} == {
        ("up-1", "5", 1),
        ("other-1", "6", 0),
    }


@BOTH
@pytest.mark.timeout(3600 if SOAK else 300)
def test_members_come_and_go_and_die_at_random_and_no_message_is_lost(group: Group, guarantee: str) -> None:
    chance = random.Random(5)
    for _ in range(60 if SOAK else 5):
        group.send(20)
        if len(group.processes) < 2 or (len(group.processes) < 4 and chance.random() < 0.5):
            group.start()
        else:
            how = chance.choice([signal.SIGKILL, signal.SIGTERM])
            group.end(chance.choice(group.processes), how)
        if chance.random() < 0.5:
            group.shares()
    group.await_outputs()
    found = group.project.outputs()
    assert set(found) == set(range(1, group.sent + 1))
    if guarantee == "exactly-once":
        assert sorted(found) == list(range(1, group.sent + 1))


def test_a_plain_start_of_the_job_ends_the_group(project: Project) -> None:
    project.configure(FREEZING)
    group = Group(project)
    member = group.start()
    group.shares()
    project.ok("run", "job.properties", "--until", "caught-up", "--if-running", "take-over")
    assert os.waitstatus_to_exitcode(os.waitpid(member, 0)[1]) == 1


def test_what_does_not_go_with_a_group_is_told(project: Project) -> None:
    with pytest.raises(ConfigError, match="until=None"):
        run(project.config, join=True)
    project.configure({"job.container.count": "2"})
    with pytest.raises(ConfigError, match=r"job\.container\.count"):
        run(project.config, None, join=True)
    project.configure({"task.checkpoint.system": "mem", "systems.mem.samza.factory": "memory"})
    with pytest.raises(ConfigError, match="memory"):
        run(project.config, None, join=True)
