"""A job with state whose checkpoints were deleted: it is told, and how to go on."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import streambench as sb
from streambench.checkpoint.api import Checkpoint
from streambench.errors import FencedError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.systems import Systems

INPUT = sb.SystemStream("log", "in")


class Counts(sb.StreamTask):
    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("s")

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        self.store.put("count", (self.store.get("count") or 0) + 1)


@pytest.fixture
def config(tmp_path: Path) -> sb.Config:
    config = sb.Config(
        {
            "job.name": "counts",
            "task.inputs": "log.in",
            "systems.log.samza.factory": "log",
            "systems.log.path": tmp_path / "streams",
            "systems.log.samza.offset.default": "oldest",
            "stores.s.factory": "memory",
            "task.checkpoint.system": "file",
            "task.checkpoint.path": tmp_path / "checkpoints",
        }
    )
    systems = Systems(config)
    systems.create(INPUT, 1)
    producer = systems.producer("log", MetricsRegistry())
    producer.register("test")
    producer.start()
    producer.send("test", sb.OutgoingMessageEnvelope(INPUT, b"1"))
    producer.flush("test")
    producer.stop()
    systems.close()
    return config


def test_a_changelog_that_is_ahead_of_lost_checkpoints_says_what_to_do(
    config: sb.Config, tmp_path: Path
) -> None:
    sb.run(config, task=Counts)
    sb.run(config, task=Counts)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(FencedError, match="its checkpoints have been deleted or lie elsewhere"):
        sb.run(config, task=Counts)


def test_state_of_which_no_checkpoint_knows_is_not_left_out_in_silence(
    config: sb.Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sb.run(config, task=Counts)
    shutil.rmtree(tmp_path / "checkpoints")
    with caplog.at_level(logging.WARNING):
        sb.run(config, task=Counts)
    [told] = [record.getMessage() for record in caplog.records]
    assert (
        told
        == "Partition 0: no checkpoint knows of log.counts-1-s-changelog.0, which holds state; the store s "
           "begins empty"
    )


def test_a_rewind_to_the_beginning_does_not_warn_of_the_empty_stores(
    config: sb.Config, caplog: pytest.LogCaptureFixture
) -> None:
    sb.run(config, task=Counts)
    manager = checkpoint_manager(config, "counts-1")
    manager.rewind(
        {"Partition 0": Checkpoint({}, {SystemStreamPartition("log", INPUT.stream, 0): "0"})}, now_ms=1
    )
    manager.close()
    with caplog.at_level(logging.INFO):
        sb.run(config, task=Counts)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (
        "Partition 0 was rewound to before the state in log.counts-1-s-changelog.0: the store s begins empty"
        in caplog.text
    )


def test_state_of_which_no_checkpoint_knows_does_not_come_back_later(
    config: sb.Config, tmp_path: Path
) -> None:
    sb.run(config, task=Counts)
    shutil.rmtree(tmp_path / "checkpoints")
    for _ in range(2):
        container = sb.Container.from_config(
            config.with_values({"systems.log.samza.offset.default": "upcoming"}), Counts
        )
        container.start()
        assert list(container.tasks[0].context.store("s").all()) == []
        container.stop()
