"""Stores that a run leaves out, brings back, or reads with other serdes: nothing of them is deleted, and what
is wrong is told."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streambench as sb
from streambench.errors import ConfigError, StoreError
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.serde.api import Serde
from streambench.system.log import open_log
from tests.container.stateful import Counts

GUARANTEES = ("at-least-once", "exactly-once")
STORES = ("memory", "rocksdb")
BOTH = ("a", "b")


class Reversed(Serde):
    """A serde of the tests' own."""

    def to_bytes(self, value: Any) -> bytes:
        return str(value).encode()[::-1]

    def from_bytes(self, data: bytes) -> Any:
        return int(data[::-1])


class Order(msgspec.Struct):
    n: int


class Job:
    """A job over a log, of which each run counts one more message. ``factory``: the kind of its stores."""

    def __init__(self, directory: Path, guarantee: str = "at-least-once", factory: str = "memory") -> None:
        self.log = open_log(directory / "log")
        self.log.create("in", 1)
        self.factory = factory
        self.values = {
            "job.name": "counts",
            "task.inputs": "log.in",
            "task.processing.guarantee": guarantee,
            "systems.log.samza.factory": "log",
            "systems.log.path": directory / "log",
            "systems.log.samza.offset.default": "oldest",
        }

    def config(self, stores: tuple[str, ...], more: Mapping[str, Any]) -> sb.Config:
        return sb.Config(
            {**self.values, **{f"stores.{store}.factory": self.factory for store in stores}, **more}
        )

    def start(self, *stores: str, **more: Any) -> sb.Container:
        container = sb.Container.from_config(self.config(stores, more), Counts)
        container.start()
        return container

    def run(
        self, *stores: str, messages: int = 1, crash: bool = False, more: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        for _ in range(messages):
            self.log.partition("in", 0).append(None, [b"x"])
        container = self.start(*stores, **(more or {}))
        container.run("caught-up")
        counts = {store: container.tasks[0].context.store(store).get("n") for store in stores}
        if crash:
            container.abandon()
        else:
            container.stop()
        return counts

    def changelog(self, store: str) -> list[bytes | None]:
        partition = self.log.partition(f"counts-1-{store}-changelog", 0)
        return [value for batch in partition.read(0) for value in batch["value"].to_pylist()]

    def manager(self) -> Any:
        return checkpoint_manager(self.config((), {}), "counts-1")


@pytest.fixture(params=GUARANTEES)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    return Job(tmp_path, request.param)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


@pytest.mark.parametrize("factory", STORES)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_store_that_runs_do_not_name_is_left_as_it_is(
    tmp_path: Path, guarantee: str, factory: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tmp_path, guarantee, factory)
    assert job.run("a") == {"a": 1}
    assert warnings(caplog) == []
    job.run()
    [told] = warnings(caplog)
    assert told.startswith(
        "counts-1: the store 'a' of earlier runs has no changelog in this configuration (stores.a.*)"
    )
    job.run()
    assert warnings(caplog) == []
    assert job.run("a") == {"a": 2}
    [told] = warnings(caplog)
    assert (
        "the store 'a' is back, with its state as of commit 1." in told and "checkpoints --rewind 1." in told
    )
    assert job.run("a") == {"a": 3}
    assert warnings(caplog) == []
    assert job.changelog("a") == [b"1", b"2", b"3"]


def test_the_commit_that_a_store_was_left_at_can_be_gone_back_to(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.run("a", messages=2)
    job.run(messages=3)
    container = job.start("a")
    commit = re.search(r"--rewind (\S+) -c JOB.properties$", warnings(caplog)[-1])[1]  # type: ignore[index]
    container.abandon()
    manager = job.manager()
    [(task, kept)] = manager.history().items()
    manager.rewind(
        {task: next(each for each in kept if f"{each.generation}.{each.sequence}" == commit)}, now_ms=0
    )
    manager.close()
    assert job.run("a", messages=0) == {"a": 5}
    assert warnings(caplog) == []


def test_of_two_stores_one_may_be_left_out_for_a_while(job: Job) -> None:
    assert job.run("a", "b") == {"a": 1, "b": 1}
    assert job.run("a") == {"a": 2}
    assert job.run("b") == {"b": 2}
    assert job.run("a", "b") == {"a": 3, "b": 3}
    assert job.changelog("a") == job.changelog("b") == [b"1", b"2", b"3"]


def test_a_store_whose_changelog_was_switched_off_for_a_while_is_as_it_was(job: Job) -> None:
    assert job.run("a") == {"a": 1}
    assert job.run("a", more={"stores.a.changelog": "none"}) == {"a": 1}
    assert job.run("a") == {"a": 2}


def test_a_store_that_is_renamed_begins_empty_and_the_former_one_stays(job: Job) -> None:
    assert job.run("a") == {"a": 1}
    assert job.run("b") == {"b": 1}
    assert job.run("a", "b") == {"a": 2, "b": 2}


def test_another_stores_changelog_is_refused_and_stays_as_it_is(job: Job) -> None:
    job.run("a")
    with pytest.raises(
        StoreError, match=r"holds state, but no checkpoint of Partition 0 knows of the store 'b'"
    ):
        job.run("b", more={"stores.b.changelog": "log.counts-1-a-changelog"})
    assert job.changelog("a") == [b"1"]
    assert job.run("a") == {"a": 3}


def test_an_older_checkpoint_that_forgot_a_store_is_an_error_and_no_loss(job: Job) -> None:
    job.run("a")
    manager = job.manager()
    [(task, last)] = manager.read_last().items()
    generation = manager.open_generation({0: [task]}, now_ms=1)
    manager.claim(generation.number, 0, now_ms=1)
    manager.write(
        {task: msgspec.structs.replace(last, changelogs={}, formats={}, generation=generation.number)}
    )
    manager.close()
    with pytest.raises(StoreError, match="no checkpoint of Partition 0 knows of the store 'a'"):
        job.run("a")
    assert job.changelog("a") == [b"1"]


def test_a_rewind_to_before_a_store_was_added_begins_with_it_empty(job: Job) -> None:
    job.run(messages=2)
    manager = job.manager()
    [(task, before)] = manager.read_last().items()
    assert job.run("a", messages=2) == {"a": 2}
    manager.rewind({task: before}, now_ms=0)
    manager.close()
    assert job.run("a", messages=0, crash=True) == {"a": 2}
    assert job.run("a", messages=1) == {"a": 3}
    assert job.run("a", messages=1) == {"a": 4}


def test_a_store_that_is_added_survives_a_crash_before_its_first_commit(job: Job) -> None:
    job.run()
    job.run("a", crash=True)
    assert job.run("a") == {"a": 2}


def test_a_left_out_stores_state_comes_back_after_crashes_too(job: Job) -> None:
    job.run("a")
    job.run(crash=True)
    assert job.run("a", crash=True) == {"a": 3}
    assert job.run("a") == {"a": 4}


def test_checkpoints_without_a_record_of_serdes_are_accepted(job: Job) -> None:
    job.run("a")
    manager = job.manager()
    [(task, last)] = manager.read_last().items()
    assert last.formats == {"a": ("string", "json")}
    generation = manager.open_generation({0: [task]}, now_ms=1)
    manager.claim(generation.number, 0, now_ms=1)
    manager.write({task: msgspec.structs.replace(last, formats={}, generation=generation.number)})
    manager.close()
    assert job.run("a") == {"a": 2}
    manager = job.manager()
    assert manager.read_last()[task].formats == {"a": ("string", "json")}
    manager.close()


REGISTRY = "serializers.registry."
AVRO = '{"type":"record","name":"R","fields":[{"name":"%s","type":"int"}]}'


@pytest.mark.parametrize(
    ("more", "key", "told"),
    [
        (
            {"stores.a.msg.serde": "msgpack"},
            "stores.a.msg.serde",
            "the serde json, and would be read with msgpack",
        ),
        (
            {"stores.a.key.serde": "json"},
            "stores.a.key.serde",
            "the serde string, and would be read with json",
        ),
        (
            {"stores.a.msg.serde": "own", REGISTRY + "own.class": f"{__name__}.Reversed"},
            "stores.a.msg.serde",
            f"the serde json, and would be read with {__name__}.Reversed",
        ),
        (
            {
                "stores.a.msg.serde": "orders",
                REGISTRY + "orders.class": "json",
                REGISTRY + "orders.type": f"{__name__}:Order",
            },
            "stores.a.msg.serde",
            r"the serde json, and would be read with json \(Order\)",
        ),
        (
            {"stores.a.msg.serde": "r", REGISTRY + "r.class": "avro", REGISTRY + "r.schema": AVRO % "n"},
            "stores.a.msg.serde",
            r"the serde json, and would be read with avro \(schema [0-9a-f]{16}\)",
        ),
    ],
)
def test_state_that_was_written_with_another_serde_is_refused(
    tmp_path: Path, more: dict[str, str], key: str, told: str
) -> None:
    job = Job(tmp_path)
    job.run("a")
    for _ in range(2):
        with pytest.raises(ConfigError, match=told) as raised:
            job.run("a", messages=0, more=more)
        assert raised.value.key == key
        assert "the store 'a'" in str(raised.value) and "--rewind oldest" in str(raised.value)
    assert job.changelog("a") == [b"1"]
    assert job.run("a") == {"a": 2}


def test_a_serde_by_another_name_is_the_same_serde(job: Job) -> None:
    job.run("a")
    assert job.run("a", more={"stores.a.msg.serde": "json", "stores.a.key.serde": "string"}) == {"a": 2}
    assert job.run("a", more={"stores.a.msg.serde": "mine", REGISTRY + "mine.class": "json"}) == {"a": 3}


def test_who_says_that_the_new_serde_reads_the_old_bytes_is_believed(job: Job) -> None:
    job.run("a")
    own = {"stores.a.msg.serde": "own", REGISTRY + "own.class": f"{__name__}.Reversed"}
    assert job.run("a", more={**own, "stores.a.serde.check": "false"}) == {"a": 2}
    assert job.run("a", more=own) == {"a": 3}
    with pytest.raises(ConfigError, match=r"Reversed, and would be read with json"):
        job.run("a")


def test_after_a_rewind_to_the_beginning_any_serde_will_do(job: Job) -> None:
    job.run("a")
    manager = job.manager()
    [(task, last)] = manager.read_last().items()
    manager.rewind({task: sb.Checkpoint({}, dict.fromkeys(last.partitions, "0"))}, now_ms=0)
    manager.close()
    packed = {"stores.a.msg.serde": "msgpack"}
    assert job.run("a", more=packed) == {"a": 2}
    assert job.run("a", more=packed) == {"a": 3}


def test_a_left_out_stores_serdes_are_remembered(job: Job) -> None:
    job.run("a")
    job.run()
    with pytest.raises(ConfigError, match="the serde json, and would be read with msgpack"):
        job.run("a", more={"stores.a.msg.serde": "msgpack"})


def test_an_empty_store_may_change_its_serde(job: Job) -> None:
    job.run("a", messages=0)
    assert job.run("a", more={"stores.a.msg.serde": "msgpack"}) == {"a": 1}


def test_a_start_that_is_refused_stops_no_other_run(job: Job) -> None:
    job.run("a")
    running = job.start("a")
    packed = {"stores.a.msg.serde": "msgpack"}
    with pytest.raises(ConfigError, match="would be read with msgpack"):
        job.start("a", **packed)
    with pytest.raises(ConfigError, match="would be read with msgpack"):
        sb.run(job.config(("a",), {**packed, "job.container.count": 1}), until="caught-up", task=Counts)
    job.log.partition("in", 0).append(None, [b"x"])
    running.run("caught-up")
    running.stop()
    assert job.run("a") == {"a": 3}
