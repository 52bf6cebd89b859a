"""Lifecycle listeners: when they are called, in which order, and what their failures do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import ConfigError, TaskError
from streambench.job.run import run
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.system.log import open_log
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator, TaskLifecycleListener
from streambench.testing import JobRun, ManualClock, run_job

told: list[str] = []


@pytest.fixture(autouse=True)
def nothing_told_yet() -> None:
    told.clear()


class Noting(TaskLifecycleListener):
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


class Once(Noting):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Once.made += 1


class Factory:
    """Makes listeners, as in Samza."""

    def get_lifecycle_listener(self, name: str, config: Config) -> Noting:
        return Noting(f"{config.required('job.name')}-{name}")


def from_function(name: str, config: Config) -> Noting:
    return Noting(name)


class Looking(TaskLifecycleListener):
    """Uses the context that it is given."""

    def before_init(self, context: TaskContext) -> None:
        told.append(f"looking at {' '.join(map(str, context.partitions))}")

    def before_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None:
        context.store("notes").put(envelope.message, "seen")

    def before_close(self, context: TaskContext) -> None:
        told.append(f"looking at {context.store('notes').get('x')}")


class FailsBeforeInit(Noting):
    def before_init(self, context: TaskContext) -> None:
        super().before_init(context)
        raise ValueError("not today")


class FailsAfterInit(Noting):
    def after_init(self, context: TaskContext) -> None:
        super().after_init(context)
        raise ValueError("not today")


class FailsAtTheEnd(Noting):
    def before_close(self, context: TaskContext) -> None:
        super().before_close(context)
        if context.task_name == "Partition 0":
            raise ValueError("not now")


class NoListener:
    def before_init(self, context: TaskContext) -> None:
        pass


class Task(StreamTask):
    def init(self, context: TaskContext) -> None:
        self.number = context.task_name.removeprefix("Partition ")
        told.append(f"init {self.number}")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
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


def test_the_hooks_stand_around_the_callbacks_in_listed_order_both_times() -> None:
    run_job(Task, listening("b, a"), {"mem.a": {0: ["x"]}})
    assert told == [
        "b.before_init 0", "a.before_init 0", "init 0", "b.after_init 0", "a.after_init 0",
        "b.before_process 0", "a.before_process 0", "process 0", "b.after_process 0", "a.after_process 0",
        "b.before_close 0", "a.before_close 0", "close 0", "b.after_close 0", "a.after_close 0",
    ]  # fmt: skip


def test_every_task_is_told_of_even_without_callbacks_of_its_own() -> None:
    run_job(lambda envelope, collector, coordinator: None, listening("a"), {"mem.a": {0: [], 1: []}})
    assert told == [
        f"a.{hook} {task}"
        for when in ("init", "close")
        for task in "01"
        for hook in (f"before_{when}", f"after_{when}")
    ]


def test_nothing_is_told_of_windows_commits_and_sends() -> None:
    class Busy(Task):
        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            clock.advance(0)

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            coordinator.commit()
            clock.advance(10)

    clock = ManualClock()
    run = run_job(Busy, listening("a") | {"task.window.ms": 5}, {"mem.a": {0: ["x"]}}, clock=clock)
    assert {"window", "commit", "send"} <= {call.event for call in run.calls}
    hooks = ["before_init", "after_init", "before_process", "after_process", "before_close", "after_close"]
    assert [call.removeprefix("a.") for call in told if call.startswith("a.")] == [
        f"{hook} 0" for hook in hooks
    ]


def test_hooks_are_called_in_the_listed_order_whatever_the_names() -> None:
    run_job(Task, listening(" z , b,a "), {"mem.a": {0: []}})
    assert [call.partition(".")[0] for call in told if "before_init" in call] == ["z", "b", "a"]


def test_what_is_configured_but_not_listed_is_not_called() -> None:
    run_job(Task, listening("a") | {"task.lifecycle.listener.b.class": Noting}, {"mem.a": {0: ["x"]}})
    assert {call.partition(".")[0] for call in told if "." in call} == {"a"}


def test_a_hook_is_given_the_tasks_context() -> None:
    run_job(
        Task,
        listening("a", a=Looking) | {"stores.notes.changelog": "none"},
        {"mem.a": {0: ["x"]}, "mem.b": {0: []}},
    )
    assert [call for call in told if call.startswith("looking")] == [
        "looking at mem.a.0 mem.b.0",
        "looking at seen",
    ]


@pytest.mark.parametrize(("failing", "reached"), [("before_init", 0), ("after_init", 1)])
def test_a_listener_that_fails_at_the_start_stops_the_job_before_reading(
    failing: str, reached: int
) -> None:
    kind = {"before_init": FailsBeforeInit, "after_init": FailsAfterInit}[failing]
    with pytest.raises(
        TaskError,
        match=rf"Partition 0 failed in {failing}\(\) of the listener a \(.*\): ValueError: not today",
    ) as caught:
        run_job(Task, listening("b,a,c", a=kind), {"mem.a": {0: ["x"], 1: ["y"]}})
    assert not caught.value.job_run.processed  # type: ignore[attr-defined]
    assert told.count("init 0") == reached
    assert f"c.{failing} 0" not in told
    # The task that had begun is closed (its own close only after its own init); the other one never began.
    assert [call for call in told if "close" in call] == [
        *(f"{name}.before_close 0" for name in "bac"),
        *["close 0"] * reached,
        *(f"{name}.after_close 0" for name in "bac"),
    ]


def test_a_listener_that_fails_at_the_end_keeps_no_other_task_from_closing() -> None:
    with pytest.raises(
        TaskError, match=r"Partition 0 failed in before_close\(\) of the listener a .*: ValueError: not now"
    ) as caught:
        run_job(Task, listening("a", a=FailsAtTheEnd), {"mem.a": {0: ["x"], 1: ["y"]}})
    assert [call for call in told if "close" in call] == [
        "a.before_close 0",
        "a.before_close 1",
        "close 1",
        "a.after_close 1",
    ]
    assert caught.value.job_run.checkpoints == {
        "Partition 0": {"mem.a.0": "0"},
        "Partition 1": {"mem.a.1": "0"},
    }  # type: ignore[attr-defined]


def test_each_container_has_a_listener_of_its_own(tmp_path: Path) -> None:
    Once.made = 0
    config = listening("a", a=Once) | {
        "job.name": "two",
        "job.container.count": 2,
        "task.inputs": "log.a",
        "systems.log.samza.factory": "log",
        "systems.log.path": str(tmp_path),
        "systems.log.samza.offset.default": "oldest",
    }
    with open_log(tmp_path) as log:
        log.create("a", 4)
    for number in range(2):
        run(config, task=Task, container=number)
    assert Once.made == 2
    assert [call for call in told if "before_init" in call] == [
        f"a.before_init {task}" for task in (0, 2, 1, 3)
    ]


def test_there_is_one_listener_per_name_for_all_tasks() -> None:
    Once.made = 0
    run_job(Task, listening("a", a=Once), {"mem.a": {0: ["x"], 1: ["y"], 2: ["z"]}})
    assert Once.made == 1


def test_a_listener_may_be_a_class_a_factory_class_or_a_function() -> None:
    config = listening(
        "class,factory,function", **{"class": Noting, "factory": Factory, "function": from_function}
    )
    run_job(Task, config, {"mem.a": {0: []}})
    assert told[:3] == ["a.before_init 0", "job-factory.before_init 0", "function.before_init 0"]


def test_a_listener_that_fails_before_keeps_the_message_from_the_task() -> None:
    error, run = failing("a fails before")
    assert (
        str(error)
        == f"Partition 0 failed at mem.a.0@1, in before_process() of the listener a ({__name__}.Noting): "
           f"ValueError: before"
    )
    assert told.count("process 0") == 1
    assert told[told.index("a.before_process 0", 9) + 1 :] == [
        "a.before_close 0", "b.before_close 0", "close 0", "a.after_close 0", "b.after_close 0",
    ]  # fmt: skip
    assert len(run.processed) == 1


def test_a_message_passed_over_before_the_task_saw_it_is_still_processed() -> None:
    config = listening("a") | {"task.ignored.exceptions": "ValueError"}
    run = run_job(
        Task,
        config,
        {"mem.a": {0: ["good", "a fails before", "a fails after", "task fails", "a fails before"]}},
    )
    assert [message for _, _, _, message in run.processed] == [
        "good",
        "a fails before",
        "a fails after",
        "task fails",
        "a fails before",
    ]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "4"}}
    assert "ignored" not in {call.event for call in run.calls}


def test_a_run_of_messages_that_is_passed_over_is_processed_all_the_same() -> None:
    class Batches:
        def process_batch(
            self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            told.append(f"{len(batch)} messages")

    config = listening("a") | {"task.ignored.exceptions": "ValueError"}
    run = run_job(Batches, config, {"mem.a": {0: ["good", "a fails before"], 1: ["good"]}})
    assert sorted(message for _, _, _, message in run.processed) == ["a fails before", "good", "good"]


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
    run = run_job(
        Task,
        listening("a") | {"task.ignored.exceptions": "ValueError"},
        {"mem.a": {0: ["task fails", "good"]}},
    )
    assert told.count("process 0") == 2
    assert told.count("a.after_process 0") == 1
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "1"}}


def test_a_broadcast_message_has_its_hooks_for_each_task() -> None:
    run_job(
        Task,
        listening("a") | {"task.broadcast.inputs": "mem.rules#0"},
        {"mem.a": {0: [], 1: []}, "mem.rules": {0: ["r"]}},
    )
    assert [call for call in told if "process" in call] == [
        "a.before_process 0",
        "process 0",
        "a.after_process 0",
        "a.before_process 1",
        "process 1",
        "a.after_process 1",
    ]


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


made_by_test: Any = from_function

HOOKS = ["before_init", "after_init", "before_process", "after_process", "before_close", "after_close"]


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
def test_the_error_of_a_listener_names_the_listener_and_the_hook(
    hook: str, batches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(TaskLifecycleListener):
        pass

    def breaks(*arguments: Any) -> None:
        raise ValueError("boom")

    def listener(name: str, config: Config) -> TaskLifecycleListener:
        made = Breaking()
        if name == "audit":
            setattr(made, hook, breaks)
        return made

    class Batched:
        def process_batch(
            self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            pass

    class Single(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            pass

    monkeypatch.setattr(f"{__name__}.made_by_test", listener)
    config = {"task.lifecycle.listeners": "first,audit"} | {
        f"task.lifecycle.listener.{name}.class": f"{__name__}.made_by_test" for name in ("first", "audit")
    }
    with pytest.raises(TaskError) as caught:
        run_job(Batched if batches else Single, config, {"mem.in": {0: ["m"]}})
    place = " at mem.in.0@0," if "process" in hook else ""
    assert f"Partition 0 failed{place} in {hook}() of the listener audit (" in str(caught.value)
    assert str(caught.value).endswith("Breaking): ValueError: boom")


def test_an_error_of_the_task_itself_names_no_listener() -> None:
    def breaks(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        raise ValueError("boom")

    config = {"task.lifecycle.listeners": "a", "task.lifecycle.listener.a.class": f"{__name__}.from_function"}
    with pytest.raises(TaskError, match=r"^Partition 0 failed at mem\.in\.0@0: ValueError: boom"):
        run_job(breaks, config, {"mem.in": {0: ["m"]}})
