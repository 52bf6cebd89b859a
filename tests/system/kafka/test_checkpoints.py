"""Checkpoints in Kafka: what is special to them. What holds for all checkpoint managers is tested with these.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from streambench.checkpoint.api import Checkpoint
from streambench.errors import CheckpointError, ReplacedError
from streambench.model import SystemStreamPartition
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.checkpoint_topic import Entry
from streambench.system.kafka.checkpoints import KafkaCheckpointManager
from streambench.system.kafka.settings import Settings
from streambench.testing.brokers.kafka import KafkaNodes
from tests.system.kafka.cluster import config

SSP = SystemStreamPartition("k", "clicks", 0)


@pytest.fixture
def job() -> str:
    return f"job/ü {uuid.uuid4().hex[:8]}"


@pytest.fixture
def another(kafka: KafkaNodes, job: str) -> Iterator[Callable[[], KafkaCheckpointManager]]:
    made: list[KafkaCheckpointManager] = []

    def make() -> KafkaCheckpointManager:
        made.append(
            KafkaCheckpointManager(Settings.from_config("k", config(kafka)), job, keep=5, trim_every=20)
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def at(offset: int) -> Checkpoint:
    return Checkpoint({SSP: str(offset)}, sequence=offset)


def test_old_records_go_and_nobody_notices(
    kafka: KafkaNodes, another: Callable[[], KafkaCheckpointManager]
) -> None:
    writer, early = another(), another()
    writer.open_generation({0: ["a"], 1: ["b"]}, now_ms=0)
    writer.claim(1, 0, now_ms=0)
    other = another()
    other.claim(1, 1, now_ms=0)
    other.write({"b": at(7)})
    assert early.read_last() == {"b": at(7)}
    for number in range(100):
        writer.write({"a": at(number)})
    admin = KafkaAdmin(Settings.from_config("k", config(kafka)))
    stream = writer._stream
    assert int(admin.metadata([stream])[stream][0].oldest or 0) >= 80
    admin.close()
    kept = {"a": [at(number) for number in range(95, 100)], "b": [at(7)]}
    assert early.history() == another().history() == kept
    other.write({"b": at(8)})
    assert another().read_last() == {"a": at(99), "b": at(8)}


def test_a_replaced_holder_is_still_fenced_when_its_claim_is_forgotten(
    another: Callable[[], KafkaCheckpointManager],
) -> None:
    zombie, holder = another(), another()
    zombie.open_generation({0: ["a"]}, now_ms=0)
    zombie.claim(1, 0, now_ms=0)
    zombie.write({"a": at(1)})
    holder.claim(1, 0, now_ms=0)
    for number in range(2, 50):
        holder.write({"a": at(number)})
    with pytest.raises(ReplacedError):
        zombie.write({"a": at(1000)})
    assert another().read_last() == {"a": at(49)}


def test_who_falls_behind_what_is_deleted_reads_anew_before_he_judges(
    another: Callable[[], KafkaCheckpointManager],
) -> None:
    other, slow = another(), another()
    other.open_generation({0: ["a"], 1: ["b"]}, now_ms=0)
    other.claim(1, 0, now_ms=0)
    slow.claim(1, 1, now_ms=0)
    real = slow._write

    def overtaken(entry: Entry) -> int:
        """What was written stands behind a snapshot, and is gone, before it is read back."""
        offset = real(entry)
        for number in range(30):
            other.write({"a": at(number)})
        return offset

    slow._write = overtaken  # type: ignore[method-assign]
    slow.write({"b": at(7)})
    slow.check()
    assert another().read_last() == {"a": at(29), "b": at(7)}


def test_a_topic_that_was_deleted_is_told_as_that(
    kafka: KafkaNodes,
    job: str,
    monkeypatch: pytest.MonkeyPatch,
    another: Callable[[], KafkaCheckpointManager],
) -> None:
    settings = Settings.from_config("k", config(kafka, patience__ms=1000, producer__max__block__ms=500))
    writer = KafkaCheckpointManager(settings, job, keep=5)
    writer.open_generation({0: ["a"]}, now_ms=0)
    writer.claim(1, 0, now_ms=0)
    admin = KafkaAdmin(settings)
    admin.delete(writer._stream)
    admin.close()
    with pytest.raises(CheckpointError, match="its checkpoints are gone: the topic .* was deleted"):
        writer.write({"a": at(1)})
    writer.close()


def test_a_topic_with_a_deleted_beginning_is_not_mistaken_for_a_new_job(
    kafka: KafkaNodes, another: Callable[[], KafkaCheckpointManager]
) -> None:
    writer = another()
    writer.open_generation({0: ["a"]}, now_ms=0)
    writer.claim(1, 0, now_ms=0)
    for number in range(5):
        writer.write({"a": at(number)})
    admin = KafkaAdmin(Settings.from_config("k", config(kafka)))
    admin.delete_before(writer._stream, 0, 3)
    admin.close()
    with pytest.raises(CheckpointError, match="the records before offset 3 are gone"):
        another().read_last()
