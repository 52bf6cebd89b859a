"""Where the checkpoints of a job go, as its configuration says."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from streambench.checkpoint.api import CheckpointManager
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.planning.checkpoint_managers import checkpoint_manager
from tests.checkpoint.samples import at


class KeepsCheckpoints:
    """A kind of system that has a place for checkpoints."""

    made = MemoryCheckpointManager()

    def get_checkpoint_manager(self, system: str, config: Config, job: str) -> CheckpointManager:
        assert (system, job) == ("broker", "counts-1")
        return self.made


class KeepsNothing:
    """A kind of system that has none."""


class KeepsSomethingElse:
    def get_checkpoint_manager(self, system: str, config: Config, job: str) -> object:
        return {}


def config(tmp_path: Path, **values: Any) -> Config:
    """A configuration read from a file in ``tmp_path``; double underscores stand for dots."""
    text = "\n".join(f"{key.replace('__', '.')}={value}" for key, value in values.items())
    return Config.from_text(text, directory=tmp_path)


def written(config: Config, folder: Path) -> list[str]:
    """The directories in ``folder`` after a generation was opened."""
    manager = checkpoint_manager(config, "counts-1")
    manager.open_generation({0: ["a"]}, now_ms=0)
    manager.close()
    return sorted(path.name for path in folder.iterdir())


def test_file_keeps_them_below_the_checkpoint_path(tmp_path: Path) -> None:
    assert written(config(tmp_path, task__checkpoint__system="file"), tmp_path / "checkpoints") == [
        "counts-1"
    ]
    elsewhere = config(tmp_path, task__checkpoint__system="file", task__checkpoint__path="here/and/there")
    assert written(elsewhere, tmp_path / "here/and/there") == ["counts-1"]


def test_file_is_meant_even_where_a_system_has_that_name(tmp_path: Path) -> None:
    named = config(
        tmp_path,
        task__checkpoint__system="file",
        systems__file__samza__factory="file",
        systems__file__path="in",
    )
    assert written(named, tmp_path / "checkpoints") == ["counts-1"]


@pytest.mark.parametrize(
    "factory", ["log", "streambench.system.log:LogSystemFactory", "streambench.system.log.LogSystemFactory"]
)
def test_the_only_log_system_keeps_them_unless_told_otherwise(tmp_path: Path, factory: str) -> None:
    only = config(
        tmp_path,
        systems__store__samza__factory=factory,
        systems__store__path="data",
        systems__ram__samza__factory="memory",
    )
    assert written(only, tmp_path / "data/_jobs") == ["counts-1"]


def test_of_several_log_systems_one_must_be_named(tmp_path: Path) -> None:
    two: dict[str, Any] = {f"systems__{name}__samza__factory": "log" for name in ("one", "two")}
    two |= {f"systems__{name}__path": name for name in ("one", "two")}
    with pytest.raises(ConfigError, match="one, two could all keep the checkpoints") as raised:
        checkpoint_manager(config(tmp_path, **two), "counts-1")
    assert raised.value.key == "task.checkpoint.system"
    assert written(config(tmp_path, **two, job__default__system="one"), tmp_path / "one/_jobs") == [
        "counts-1"
    ]
    both = config(tmp_path, **two, job__default__system="one", task__checkpoint__system="two")
    assert written(both, tmp_path / "two/_jobs") == ["counts-1"]


def test_where_there_is_no_log_system_the_only_other_that_can_keeps_them(tmp_path: Path) -> None:
    kafka = {"systems__k__samza__factory": "kafka", "systems__k__bootstrap__servers": "127.0.0.1:1"}
    job = config(tmp_path, **kafka, systems__in__samza__factory="memory")
    assert "Kafka" in type(checkpoint_manager(job, "counts-1")).__name__
    with_log = job.with_values({"systems.log.samza.factory": "log", "systems.log.path": "data"})
    assert written(with_log, tmp_path / "data/_jobs") == ["counts-1"]


def test_a_memory_system_keeps_them_for_the_next_container_in_this_process(tmp_path: Path) -> None:
    in_memory = config(tmp_path, systems__ram__samza__factory="memory", task__checkpoint__system="ram")
    job = str(tmp_path)
    first = checkpoint_manager(in_memory, job)
    first.claim(first.open_generation({0: ["a"]}, now_ms=0).number, 0, now_ms=0)
    first.write({"a": at(4)})
    assert checkpoint_manager(in_memory, job).read_last() == {"a": at(4)}
    assert checkpoint_manager(in_memory, job + "-other").read_last() == {}


def test_without_any_log_system_they_stay_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(checkpoint_manager(Config(), "counts-1"), MemoryCheckpointManager)
    assert not caplog.records


def test_a_job_with_lasting_inputs_is_warned_of_checkpoints_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        checkpoint_manager(
            config(tmp_path, systems__in__samza__factory="file", systems__in__path="in"), "counts-1"
        )
    assert "task.checkpoint.system=file" in caplog.text


def test_another_kind_of_system_keeps_them_where_its_factory_can(tmp_path: Path) -> None:
    plugged = config(
        tmp_path,
        systems__broker__samza__factory=f"{__name__}:KeepsCheckpoints",
        task__checkpoint__system="broker",
    )
    assert checkpoint_manager(plugged, "counts-1") is KeepsCheckpoints.made


@pytest.mark.parametrize("key", ["task.checkpoint.system", "job.default.system"])
def test_a_kind_of_system_that_keeps_none_is_refused_with_the_choices(tmp_path: Path, key: str) -> None:
    plugged = config(
        tmp_path,
        systems__broker__samza__factory=f"{__name__}:KeepsNothing",
        systems__store__samza__factory="log",
    )
    with pytest.raises(
        ConfigError, match="keeps no checkpoints; set .*=file, or name a log system: store"
    ) as raised:
        checkpoint_manager(plugged.with_values({key: "broker"}), "counts-1")
    assert raised.value.key == key


def test_a_factory_that_returns_something_else_is_refused(tmp_path: Path) -> None:
    plugged = config(
        tmp_path,
        systems__broker__samza__factory=f"{__name__}:KeepsSomethingElse",
        task__checkpoint__system="broker",
    )
    with pytest.raises(ConfigError, match="no CheckpointManager"):
        checkpoint_manager(plugged, "counts-1")


def test_a_system_that_is_not_there_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no system 'stor'; did you mean store") as raised:
        checkpoint_manager(
            config(tmp_path, systems__store__samza__factory="log", task__checkpoint__system="stor"),
            "counts-1",
        )
    assert raised.value.key == "task.checkpoint.system"


def test_a_log_system_without_a_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"systems\.store\.path"):
        checkpoint_manager(config(tmp_path, systems__store__samza__factory="log"), "counts-1")


def test_at_least_one_commit_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task\.checkpoint\.history.*give 1 or more"):
        checkpoint_manager(config(tmp_path, task__checkpoint__history=0), "counts-1")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"task__checkpoint__system": "file", "task__checkpoint__path": "taken"}, "task.checkpoint.path"),
        ({"systems__log__samza__factory": "log", "systems__log__path": "taken"}, "systems.log.path"),
    ],
)
def test_a_file_in_the_place_of_the_directory_is_told_by_its_key(
    values: dict[str, str], key: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(ConfigError, match="taken is a file, and this takes a directory") as caught:
        checkpoint_manager(config(tmp_path, **values), "counts-1")
    assert caught.value.key == key
