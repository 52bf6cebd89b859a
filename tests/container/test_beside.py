"""Jobs none of whose systems can hold a changelog: state is kept beside the checkpoints, or the start says
that it is not."""

from __future__ import annotations

import logging
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.errors import ConfigError
from streambench.testing import run_job
from tests.surroundings import figure

KILLS = figure(3, soak=30, check=1)
GUARANTEES = ("at-least-once", "exactly-once")
STORES = ("memory", "rocksdb")

TASK = """\
import streambench as sb


class Counts(sb.StreamTask):
    def init(self, context):
        self.store = context.store("s")

    def process(self, envelope, collector, coordinator):
        self.store.put("n", self.store.get("n", 0) + 1)
        print("done", flush=True)
"""


class Counts(sb.StreamTask):
    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("s")

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        self.store["n"] = self.store.get("n", 0) + 1


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "data").mkdir()
    return {
        "job.name": "counts",
        "task.inputs": "f.in",
        "task.commit.ms": 5,
        "systems.f.samza.factory": "file",
        "systems.f.path": tmp_path / "data",
        "systems.f.samza.offset.default": "oldest",
        "task.checkpoint.system": "file",
        "task.checkpoint.path": tmp_path / "checkpoints",
        "stores.s.factory": "memory",
    }


def add(values: dict[str, Any], count: int, partition: int | None = None) -> None:
    place = Path(values["systems.f.path"]) / "in.jsonl"
    if partition is not None:
        place = Path(values["systems.f.path"]) / "in" / f"{partition}.jsonl"
        place.parent.mkdir(exist_ok=True)
    with place.open("a") as file:
        file.writelines('{"a":1}\n' for _ in range(count))


def counted(values: dict[str, Any], **more: Any) -> int:
    """The count in the store after another start of the job."""
    container = sb.Container.from_config({**values, **more}, Counts)
    container.start()
    container.run("caught-up")
    count: int = container.tasks[0].context.store("s").get("n", 0)
    container.stop()
    return count


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("store", STORES)
def test_state_and_offsets_of_file_checkpoints_come_back_together(
    values: dict[str, Any], guarantee: str, store: str
) -> None:
    values.update({"task.processing.guarantee": guarantee, "stores.s.factory": store})
    for total in (1, 2, 3):
        add(values, 1)
        assert counted(values) == total
    assert (values["task.checkpoint.path"] / "counts-1" / "changelogs").is_dir()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_was_not_committed_at_a_crash_is_neither_in_state_nor_offsets(
    values: dict[str, Any], guarantee: str
) -> None:
    values.update({"task.processing.guarantee": guarantee, "task.commit.ms": -1})
    add(values, 2)
    assert counted(values) == 2
    add(values, 3)
    container = sb.Container.from_config(values, Counts)
    container.start()
    container.run("caught-up")
    container.abandon()
    assert counted(values) == 5


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_processes_that_are_killed_lose_and_double_no_state(
    values: dict[str, Any], guarantee: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    values["task.processing.guarantee"] = guarantee
    (tmp_path / "task.py").write_text(TASK)
    job = tmp_path / "job.properties"
    job.write_text(
        "\n".join(f"{key}={value}" for key, value in {**values, "task.class": "task.py:Counts"}.items())
    )
    total = 0
    for _ in range(KILLS):
        add(values, 400)
        total += 400
        command = [sys.executable, "-m", "streambench", "run", str(job)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            done, enough = 0, chance.randrange(1, 300)
            while done < enough:
                line = process.stdout.readline()
                assert line, "the job has ended by itself"
                done += line == "done\n"  # on a busy machine there are lines of its progress between
            process.send_signal(signal.SIGKILL)
    assert counted(values) == total


def test_several_containers_keep_their_state_beside_the_checkpoints(
    values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "task.py").write_text(TASK)  # the containers' processes import no test
    for partition in range(3):
        add(values, partition + 1, partition)
    values["job.container.count"] = 2
    for times in (1, 2):
        if times == 2:
            for partition in range(3):
                add(values, partition + 1, partition)
        sb.run({**values, "task.class": f"{tmp_path}/task.py:Counts"}, until="caught-up")
    container = sb.Container.from_config(values, Counts)
    container.start()
    assert [task.context.store("s").get("n") for task in container.tasks] == [2, 4, 6]
    container.stop()


def test_checkpoints_in_memory_have_their_state_in_memory_too(values: dict[str, Any]) -> None:
    values.update({"job.name": "beside-in-memory", "task.checkpoint.system": ""})
    add(values, 2)
    assert counted(values) == 2
    add(values, 1)
    assert counted(values) == 3


def test_the_system_of_the_checkpoints_decides_among_several(values: dict[str, Any], tmp_path: Path) -> None:
    logs = {
        f"systems.{name}.{key}": value
        for name in "ab"
        for key, value in (("samza.factory", "log"), ("path", tmp_path / name))
    }
    values.update({**logs, "task.checkpoint.system": "b"})
    add(values, 2)
    assert counted(values) == 2
    assert (tmp_path / "b" / "counts-1-s-changelog").is_dir()
    add(values, 1)
    assert counted(values) == 3


@pytest.mark.parametrize("key", ["job.default.system", "job.changelog.system", "stores.s.changelog"])
def test_a_system_that_cannot_hold_a_changelog_is_refused_with_a_remedy(
    values: dict[str, Any], key: str
) -> None:
    add(values, 1)
    with pytest.raises(ConfigError, match=r"cannot hold a changelog.*task.checkpoint.system=file") as raised:
        counted({**values, key: "f.x" if key.startswith("stores.") else "f"})
    assert raised.value.key == key


def test_the_name_of_the_system_beside_the_checkpoints_is_taken(
    values: dict[str, Any], tmp_path: Path
) -> None:
    values.update({"systems._checkpoints.samza.factory": "file", "systems._checkpoints.path": tmp_path})
    add(values, 1)
    with pytest.raises(ConfigError, match="name the system otherwise"):
        counted(values)


def test_a_changelog_that_is_switched_off_is_told_at_each_restart(
    values: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    values["stores.s.changelog"] = "none"
    add(values, 2)
    with caplog.at_level(logging.WARNING):
        assert counted(values) == 2
        assert caplog.records == []
        add(values, 1)
        assert counted(values) == 1
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith(
        "stores.s.changelog=none: the store 's' begins empty at every start, while the offsets go on "
        "(Partition 0)"
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("store", STORES)
def test_a_previous_run_hands_its_state_on_without_any_changelog(guarantee: str, store: str) -> None:
    config = {"stores.s.factory": store, "task.processing.guarantee": guarantee}

    class Sends(Counts):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("mem", "out"), self.store["n"]))

    first = run_job(Sends, config, {"mem.in": {0: ["a", "b"]}})
    second = run_job(Sends, config, {"mem.in": {0: ["c"]}}, previous=first)
    third = run_job(Sends, config, {"mem.in": {0: ["c"]}}, previous=first)
    assert [message for _, message in second.outputs["mem.out"][0]] == [1, 2, 3]
    assert third.outputs == second.outputs
    assert list(second.outputs) == ["mem.out"]
