"""What ``streambench deploy`` says of what came of a deployment; Spark itself is not started here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streambench.model import SystemStreamPartition
from streambench.spark import DeployedContainer, DeployResult
from tests.job.project import Project

IN = [SystemStreamPartition("log", "numbers", number) for number in range(4)]


def container(number: int, partitions: Mapping[SystemStreamPartition, int], **values: Any) -> DeployedContainer:
    """A container that has read so many offsets of these partitions."""
    return DeployedContainer(number=number, tasks=(), offsets={ssp: ("0", str(end)) for ssp, end in partitions.items()}, **values)


def table(project: Project, monkeypatch: pytest.MonkeyPatch, *containers: DeployedContainer) -> list[str]:
    """What is said of these, line by line."""
    result = DeployResult(job="up-1", containers=containers, seconds=9, generation=1, rounds=1)
    monkeypatch.setattr("streambench.spark.deploy", lambda *_, **__: result)
    return [line.rstrip() for line in project.ok("deploy", "job.properties").splitlines()]


def test_each_partition_has_its_own_number_of_messages_and_each_container_its_seconds_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {IN[1]: 9, IN[0]: 3}  # of the one some offsets hold no message, as in a log that was compacted
    first = container(0, {IN[0]: 8, IN[1]: 9}, messages=12, messages_by_partition=counts, seconds=3.25)
    assert table(project, monkeypatch, first, container(1, {IN[2]: 5}, messages=5, messages_by_partition={IN[2]: 5}, seconds=1)) == [
        "container  partition      from  to  messages  seconds",
        "        0  log.numbers.0     0   8         3      3.2",
        "        0  log.numbers.1     0   9         9",
        "        1  log.numbers.2     0   5         5      1.0",
        "up-1: 17 messages in 2 containers in 9.0 s",
    ]


def test_where_nobody_knows_of_which_partition_messages_are_their_number_stands_there_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table(project, monkeypatch, container(0, {IN[0]: 8, IN[1]: 9}, messages=12, seconds=3)) == [
        "container  partition      from  to  messages  seconds",
        "        0  log.numbers.0     0   8        12      3.0",
        "        0  log.numbers.1     0   9",
        "up-1: 12 messages in 1 container in 9.0 s",
    ]


def test_a_container_without_a_message_has_none_in_each_partition(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [line.split()[4] for line in table(project, monkeypatch, container(0, {IN[0]: 0, IN[1]: 0}))[1:3]] == ["0", "0"]
