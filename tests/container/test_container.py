"""A container: making it, starting it, driving it, and what it hands to tasks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import (
    ConfigError,
    ContainerStateError,
    TaskError,
    UnknownStreamError,
)
from streambench.model import IncomingMessageEnvelope
from streambench.system.memory import (
    MemoryStreams,
)
from streambench.task import (
    MessageCollector,
    TaskContext,
    TaskCoordinator,
)
from tests.container.jobs import Bench, Choices, echo, ignore
from tests.container.noted_calls import STORE, Counter, Noting, happened

# Making one


def test_a_container_is_made_of_a_config_a_mapping_or_a_properties_file(tmp_path: Path) -> None:
    values = {"task.inputs": "mem.a", "systems.mem.samza.factory": "memory"}
    path = tmp_path / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    for config in (Config(values), values, path, str(path)):
        assert (
            Container.from_config(config, ignore).config == Container(config, ignore).config == Config(values)
        )
    assert Container(path, ignore).name == "job-1"


@pytest.mark.parametrize("wrong", [None, 7, ["task.inputs"], b"job.properties"])
def test_what_is_no_configuration_is_an_error_that_says_how_to_make_one(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no configuration: give a mapping.*Config\.from_file\(path\)"):
        Container(wrong, ignore)
    with pytest.raises(ConfigError, match=r"Config\.from_text\(text\)"):
        Container("task.inputs=mem.a\nsystems.mem.samza.factory=memory", ignore)


@pytest.mark.parametrize(
    ("config", "task", "key"),
    [
        ({"task.inputs": "mem.a"}, None, "task.class"),
        ({"task.inputs": "mem.a", "task.class": "nowhere.Task"}, None, "task.class"),
        ({"task.inputs": "mem.a"}, 7, "task.class"),
        ({"task.inputs": "mem.a", "task.wndow.ms": 1}, ignore, "task.wndow.ms"),
        ({"task.inputs": "mem.a", "job.name": "../x"}, ignore, "job.name"),
    ],
)
def test_what_is_wrong_by_itself_is_found_at_once(config: dict[str, Any], task: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Container.from_config(config, task)
    assert caught.value.key == key


def test_making_a_container_makes_no_task() -> None:
    made = []

    class Made(Counter):
        def __init__(self) -> None:
            made.append(self)

    bench = Bench(Made, {"mem.a": {0: [], 1: []}}, STORE)
    assert made == []
    bench.started()
    assert len(made) == 2


def test_the_inputs_need_not_exist_before_the_start() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, {"task.inputs": "mem.a,mem.later"})
    with pytest.raises(UnknownStreamError, match=r"there is no stream mem\.later"):
        bench.started()
    assert bench.container.state == "failed"
    assert "mem.later" in bench.container.reason


def test_the_system_of_an_input_must_be_defined() -> None:
    container = Container.from_config(
        {"task.inputs": "lgo.a", "systems.log.samza.factory": "log", "systems.log.path": "x"}, ignore
    )
    with pytest.raises(ConfigError, match=r"task\.inputs: there is no system 'lgo'; did you mean log"):
        container.start()


@pytest.mark.parametrize(
    "key",
    ["systems.lgo.samza.offset.default", "systems.lgo.streams.a.samza.reset.offset", "systems.lgo.path"],
)
def test_a_setting_of_a_system_that_nothing_defines_is_not_passed_over(key: str) -> None:
    config = {
        "task.inputs": "log.a",
        "systems.log.samza.factory": "log",
        "systems.log.path": "x",
        key: "oldest",
    }
    with pytest.raises(ConfigError, match=rf"{key}: there is no system 'lgo'; did you mean log") as caught:
        Container.from_config(config, ignore).start()
    assert caught.value.key == key


def test_a_setting_of_inputs_for_a_stream_named_much_like_one_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {
        "systems.mem.streams.flihgts.samza.offset.default": "oldest",
        "systems.mem.streams.planes.samza.offset.default": "oldest",
        "systems.mem.streams.flights2.partitions": "3",
        "systems.mem.streams.fligths2.samza.msg.serde": "json",
        "systems.mem.streams.flights.samza.priority": "1",
    }
    Bench(ignore, {"mem.flights": {0: []}}, settings).started()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "systems.mem.streams.flihgts.samza.offset.default: this job reads no stream mem.flihgts, so that "
        "this does nothing; "
        "did you mean mem.flights?"
    ]


# Starting


def test_a_container_starts_once() -> None:
    container = Bench(ignore, {"mem.a": {0: []}}).started()
    with pytest.raises(ContainerStateError, match="this container is running; it can be started only once"):
        container.start()
    container.stop()
    with pytest.raises(ContainerStateError, match="this container is stopped"):
        container.start()


@pytest.mark.parametrize("verb", ["step", "run", "commit"])
def test_a_container_that_is_not_running_cannot_be_driven(verb: str) -> None:
    container = Bench(ignore, {"mem.a": {0: []}}).container
    with pytest.raises(ContainerStateError, match=r"the container is new; start\(\) it first"):
        getattr(container, verb)()
    container.start()
    container.stop()
    with pytest.raises(
        ContainerStateError,
        match="the container is stopped; make a new one: it goes on from the last checkpoint",
    ):
        getattr(container, verb)()


def test_init_is_called_before_anything_is_read() -> None:
    bench = Bench(Counter, {"mem.a": {0: ["x"]}}, STORE)
    bench.started()
    assert bench.events() == ["init"]


def test_a_start_that_fails_closes_what_it_had_opened() -> None:
    class Refuses(Counter):
        def init(self, context: TaskContext) -> None:
            raise RuntimeError("not today")

    bench = Bench(
        Refuses, {"mem.a": {0: ["x"]}}, STORE, factory=Noting(streams := MemoryStreams()), streams=streams
    )
    with pytest.raises(TaskError, match="not today"):
        bench.started()
    assert bench.container.state == "failed"
    assert happened[-1] == "admin closes"
    assert "close" in happened


@pytest.mark.parametrize("room", [0, -5])
def test_a_threshold_that_leaves_no_room_is_an_error(room: int) -> None:
    with pytest.raises(
        ConfigError, match=rf"systems\.mem\.samza\.fetch\.threshold: {room} is too small: give 1 or more"
    ):
        Bench(ignore, {"mem.a": {0: []}}, {"systems.mem.samza.fetch.threshold": room}).started()


# Stepping and running


def test_a_step_processes_one_message() -> None:
    bench = Bench(ignore, {"mem.a": {0: ["x", "y"]}})
    container = bench.started()
    assert (container.step(), bench.places(), container.processed) == (1, ["mem.a.0@0"], 1)
    assert (container.step(), container.step()) == (1, 0)
    bench.put("mem.a.0", "z")
    assert (container.step(), container.processed) == (1, 3)


@pytest.mark.parametrize("remembered", [0, 1, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 7, 9])
def test_a_step_of_several_processes_so_many_or_what_there_is(count: int, remembered: int) -> None:
    container = Bench(
        ignore, {"mem.a": {0: [1, 2, 3], 1: [4, 5, 6, 7]}}, remember_choices=remembered
    ).started()
    assert container.step(count) == min(count, 7)
    assert container.processed == min(count, 7)


def test_run_goes_on_to_the_head_of_all_inputs() -> None:
    bench = Bench(echo, {"mem.a": {0: list(range(2500)), 1: list(range(10))}})
    container = bench.started()
    assert container.run("caught-up") == 2510
    assert container.run("caught-up") == 0
    bench.put("mem.a.1", "late")
    assert container.run("caught-up") == 1


def test_run_goes_on_for_so_many_messages() -> None:
    container = Bench(ignore, {"mem.a": {0: [1, 2, 3]}}).started()
    assert [container.run(0), container.run(2), container.run(1)] == [0, 2, 1]


def test_run_goes_on_until_a_function_of_the_container_says_so() -> None:
    container = Bench(ignore, {"mem.a": {0: list(range(10))}}).started()
    assert container.run(lambda: container.processed >= 4) == 4
    assert container.run(lambda: container.snapshot().partitions[0].position == "7") == 3


def test_a_function_is_asked_again_while_there_is_nothing_to_do() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, {"task.max.idle.ms": 0})
    asked = []

    def until() -> bool:
        asked.append(bench.container.processed)
        if len(asked) == 3:
            bench.put("mem.a.0", "x")
        return len(asked) == 5

    assert bench.started().run(until) == 1
    assert asked[:3] == [0, 0, 0]
    assert asked[-1] == 1


def test_a_function_that_raises_ends_the_run_but_not_the_container() -> None:
    container = Bench(ignore, {"mem.a": {0: [1, 2, 3]}}).started()
    with pytest.raises(ZeroDivisionError):
        container.run(lambda: container.processed == 2 and 1 / 0)
    assert (container.state, container.processed) == ("running", 2)
    assert container.run("caught-up") == 1


@pytest.mark.parametrize("until", ["caught up", True, 1.5, [3]])
def test_an_impossible_until_is_an_error_that_leaves_the_container_alive(until: Any) -> None:
    container = Bench(ignore, {"mem.a": {0: ["x"]}}).started()
    with pytest.raises(
        ConfigError, match="run until .* Give 'caught-up', a number of messages, a function, or nothing"
    ):
        container.run(until)
    assert container.step() == 1


def test_a_pause_ends_a_run_after_the_message_it_is_at() -> None:
    def pauses(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 2:
            bench.container.pause()

    bench = Bench(pauses, {"mem.a": {0: [1, 2, 3]}})
    container = bench.started()
    assert [container.run(), container.run("caught-up")] == [2, 1]


@pytest.mark.parametrize("remembered", [0, 2, 100])
def test_a_pause_ends_a_step_of_many_too(remembered: int) -> None:
    def pauses(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 2:
            bench.container.pause()

    bench = Bench(pauses, {"mem.a": {0: [1, 2, 3, 4, 5, 6]}}, remember_choices=remembered)
    container = bench.started()
    assert [container.step(5), container.step(5)] == [2, 4]


def test_a_pause_while_nothing_runs_concerns_nobody() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1, 2]}})
    bench.container.pause()
    container = bench.started()
    container.pause()
    assert container.run("caught-up") == 2


def test_a_commit_between_two_messages_does_not_undo_a_pause() -> None:
    def pauses(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 1:
            bench.container.post(bench.container.commit)
            bench.container.pause()

    bench = Bench(pauses, {"mem.a": {0: [1, 2, 3]}})
    assert bench.started().run("caught-up") == 1
    assert bench.committed() == {"mem.a.0": "0"}


def test_what_is_posted_is_called_between_two_messages() -> None:
    seen: list[str] = []

    def posts(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        bench.container.post(lambda: seen.append(f"after {envelope.message}"))
        seen.append(f"processed {envelope.message}")

    bench = Bench(posts, {"mem.a": {0: [1, 2]}})
    bench.started().run("caught-up")
    assert seen == ["processed 1", "after 1", "processed 2", "after 2"]


def test_another_thread_can_post_while_the_container_waits() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, {"task.max.idle.ms": 60_000})
    container = bench.started()
    waiting = threading.Event()

    def from_outside() -> None:
        waiting.wait(30)
        container.pause()

    other = threading.Thread(target=from_outside)
    other.start()
    container.post(waiting.set)
    assert container.run() == 0
    other.join()


def test_each_chosen_message_can_be_watched_before_its_task_sees_it() -> None:
    seen: list[Any] = []
    bench = Bench(
        lambda envelope, collector, coordinator: seen.append(("task", envelope.message)),
        {"mem.a": {0: [1, 2, 3]}},
        remember_choices=5,
    )
    container = bench.started()
    watch = Choices(lambda envelope: seen.append(("watched", envelope.message)))
    container.observe(watch)
    container.step(2)
    container.stop_observing(watch)
    container.step()
    assert seen == [("watched", 1), ("task", 1), ("watched", 2), ("task", 2), ("task", 3)]
    assert [choice.offset for choice in container.snapshot().choices] == ["0", "1", "2"]
