"""Checkpoint managers of both kinds, each with a way to get another one of the same job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streambench.checkpoint.api import CheckpointManager
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.checkpoint.memory import memory_checkpoints
from streambench.config import Config
from streambench.system.kafka.checkpoints import KafkaCheckpointManager
from streambench.system.kafka.exactly_once import TransactionalCheckpointManager
from streambench.system.kafka.settings import Settings
from streambench.testing.brokers.kafka import KafkaNodes
from tests.checkpoint.job import Job

Another = Callable[[], CheckpointManager]


@pytest.fixture(params=["journal", "memory", "kafka", "kafka-transactions"])
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Another]:
    """Makes a manager of one and the same job, as another process would have it."""
    made: list[CheckpointManager] = []

    def make() -> CheckpointManager:
        manager: CheckpointManager
        if request.param.startswith("kafka"):
            kind = KafkaCheckpointManager if request.param == "kafka" else TransactionalCheckpointManager
            manager = kind(
                kafka_settings(request.getfixturevalue("kafka")), tmp_path.name, keep=10, trim_every=10
            )
        elif request.param == "journal":
            manager = JournalCheckpointManager(tmp_path / "job-1", "job-1", keep=10)
        else:
            manager = memory_checkpoints(str(tmp_path), "job-1", keep=10)
        made.append(manager)
        return manager

    yield make
    for manager in made:
        manager.close()


def kafka_settings(nodes: KafkaNodes) -> Settings:
    assert nodes.cluster is not None
    return Settings.from_config("k", Config({"systems.k.bootstrap.servers": nodes.cluster.servers}))


@pytest.fixture
def starts_until_forgotten(another: Another) -> int:
    """After so many generations nothing is left of the first one."""
    return 8 if isinstance(another(), KafkaCheckpointManager) else 40


@pytest.fixture
def manager(another: Another) -> CheckpointManager:
    return another()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job with a journal of its own."""
    job = Job(tmp_path / "job-1")
    yield job
    for manager in job.managers:
        manager.close()


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test loses power it brings its own disk; for all others what was written is there, synced or
    not."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
