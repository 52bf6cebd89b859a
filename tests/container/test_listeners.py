"""Lifecycle listeners: when they are called, in which order, and what their failures do."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import ConfigError, TaskError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator, TaskLifecycleListener
from streambench.testing import JobRun, run_job

told: list[str] = []


@pytest.fixture(autouse=True)
def nothing_told_yet() -> None:
    told.clear()


class Telling(TaskLifecycleListener):
    """Notes every call with its own name."""

    def __init__(self, name: str = "a") -> None:
        self.name = name

    def _tell(self, hook: str, context: TaskContext) -> None:
        told.append(f"{self.name}.{hook} {context.task_name.removeprefix('Partition ')}")

    def before_init(self, context: TaskContext) -> None:
        self._tell("before_init", context)

    def after_init(self, context: TaskContext) -> None:
        self._tell("after_init", context)

    def before_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None:
        self._tell("before_process", context)
        if envelope.message == f"{self.name} fails before":
            raise ValueError("before")

    def after_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None:
        self._tell("after_process", context)
        if envelope.message == f"{self.name} fails after":
            raise ValueError("after")

    def before_close(self, context: TaskContext) -> None:
        self._tell("before_close", context)

    def after_close(self, context: TaskContext) -> None:
        self._tell("after_close", context)


class Once(Telling):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Once.made += 1


class Factory:
    """Makes listeners, as in Samza."""

    def get_lifecycle_listener(self, name: str, config: Config) -> Telling:
        return Telling(f"{config.required('job.name')}-{name}")


def from_function(name: str, config: Config) -> Telling:
    return Telling(name)


class NoListener:
    def before_init(self, context: TaskContext) -> None:
        pass


class Task(StreamTask):
    def init(self, context: TaskContext) -> None:
        self.number = context.task_name.removeprefix("Partition ")
        told.append(f"init {self.number}")

    def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        told.append(f"process {self.number}")
        collector.send(OutgoingMessageEnvelope(SystemStream("mem", "out"), envelope.message))
        if envelope.message == "task fails":
            raise ValueError("task")

    def close(self) -> None:
        told.append(f"close {self.number}")


def listening(names: str = "a,b", **classes: Any) -> dict[str, Any]:
    listed = [name.strip() for name in names.split(",")]
    return {
        "task.lifecycle.listeners": names,
        **{f"task.lifecycle.listener.{name}.class": classes.get(name, from_function) for name in listed},
    }


def failing(message: str) -> tuple[TaskError, JobRun]:
    with pytest.raises(TaskError) as caught:
        run_job(Task, listening(), {"mem.a": {0: ["good", message, "later"]}})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert isinstance(run, JobRun)
    return caught.value, run


def test_the_hooks_stand_around_the_callbacks_in_the_listed_order_both_times() -> None:
    run_job(Task, listening("b, a"), {"mem.a": {0: ["x"]}})
    assert told == [
        "b.before_init 0", "a.before_init 0", "init 0", "b.after_init 0", "a.after_init 0",
        "b.before_process 0", "a.before_process 0", "process 0", "b.after_process 0", "a.after_process 0",
        "b.before_close 0", "a.before_close 0", "close 0", "b.after_close 0", "a.after_close 0",
    ]  # fmt: skip


def test_every_task_is_told_of_even_without_callbacks_of_its_own() -> None:
    run_job(lambda envelope, collector, coordinator: None, listening("a"), {"mem.a": {0: [], 1: []}})
    assert told == [f"a.{hook} {task}" for when in ("init", "close") for task in "01" for hook in (f"before_{when}", f"after_{when}")]


def test_there_is_one_listener_per_name_for_all_tasks() -> None:
    Once.made = 0
    run_job(Task, listening("a", a=Once), {"mem.a": {0: ["x"], 1: ["y"], 2: ["z"]}})
    assert Once.made == 1


def test_a_listener_may_be_a_class_a_factory_class_or_a_function() -> None:
    config = listening("class,factory,function", **{"class": Telling, "factory": Factory, "function": from_function})
    run_job(Task, config, {"mem.a": {0: []}})
    assert told[:3] == ["a.before_init 0", "job-factory.before_init 0", "function.before_init 0"]


def test_a_listener_that_fails_before_keeps_the_message_from_the_task() -> None:
    error, run = failing("a fails before")
    assert str(error) == "Partition 0 failed at mem.a.0@1: ValueError: before"
    assert told.count("process 0") == 1
    assert told[told.index("a.before_process 0", 9) + 1 :] == [
        "a.before_close 0", "b.before_close 0", "close 0", "a.after_close 0", "b.after_close 0",
    ]  # fmt: skip
    assert len(run.processed) == 1


def test_a_listener_that_fails_afterwards_fails_the_message() -> None:
    error, run = failing("a fails after")
    assert (str(error.ssp), error.offset) == ("mem.a.0", "1")
    assert told.count("b.after_process 0") == 1
    assert [message for _, message in run.outputs["mem.out"][0]] == ["good"]
    assert run.checkpoints == {}


def test_after_process_is_not_called_when_the_task_fails() -> None:
    failing("task fails")
    assert told.count("process 0") == 2
    assert told.count("a.after_process 0") == 1


def test_after_process_is_not_called_when_the_exception_is_ignored() -> None:
    run = run_job(Task, listening("a") | {"task.ignored.exceptions": "ValueError"}, {"mem.a": {0: ["task fails", "good"]}})
    assert told.count("process 0") == 2
    assert told.count("a.after_process 0") == 1
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "1"}}


def test_a_broadcast_message_has_its_hooks_for_each_task() -> None:
    run_job(Task, listening("a") | {"task.broadcast.inputs": "mem.rules#0"}, {"mem.a": {0: [], 1: []}, "mem.rules": {0: ["r"]}})
    assert [call for call in told if "process" in call] == [
        "a.before_process 0", "process 0", "a.after_process 0", "a.before_process 1", "process 1", "a.after_process 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (NoListener, "NoListener is not a TaskLifecycleListener: it has no after_init, before_process"),
        ("nowhere.Listener", "there is no module nowhere"),
        (Config, "Config is not a TaskLifecycleListener"),
        (None, "is missing"),
    ],
)
def test_what_is_no_listener_is_an_error_that_names_the_key(kind: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        run_job(Task, listening("a", a=kind), {"mem.a": {0: []}})
    assert caught.value.key == "task.lifecycle.listener.a.class"
    assert told == []


def test_a_listener_that_cannot_be_made_is_an_error_that_names_the_key() -> None:
    with pytest.raises(ConfigError, match="cannot make a Demanding: TypeError: .*'url'") as caught:
        run_job(Task, listening("a", a=Demanding), {"mem.a": {0: []}})
    assert caught.value.key == "task.lifecycle.listener.a.class"


class Demanding(TaskLifecycleListener):
    def __init__(self, url: str) -> None:
        pass
