"""Streams that have a purpose in a job already, and that are named for another one as well."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import streambench as sb
from streambench.container.container import Container
from streambench.errors import ConfigError
from streambench.job.run import run
from streambench.planning.reserved_streams import reserved_streams
from streambench.system.systems import Systems
from tests.container.jobs import ignore

IN = sb.SystemStream("log", "in")
STORE = {"stores.s.factory": "memory"}
REPORTER = {"metrics.reporters": "m", "metrics.reporter.m.class": "snapshot"}


def job(directory: Path, values: Mapping[str, str]) -> sb.Config:
    config = sb.Config(
        {
            "job.name": "job",
            "task.inputs": "log.in",
            "systems.log.samza.factory": "log",
            "systems.log.path": directory / "log",
            **values,
        }
    )
    systems = Systems(config)
    systems.create(IN, 4)
    systems.close()
    return config


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


WRONG = [
    (STORE | {"stores.s.changelog": "log.in"}, "stores.s.changelog", "log.in is an input of this job"),
    (
        STORE | {"stores.s.changelog": "log.b", "task.broadcast.inputs": "log.b#0"},
        "stores.s.changelog",
        "log.b is an input",
    ),
    (
        STORE | {"stores.s.changelog": "log.bad", "task.dead.letter.stream": "log.bad"},
        "stores.s.changelog",
        "the dead-letter stream",
    ),
    (
        STORE | {"stores.s.changelog": "log.x", "stores.a.changelog": "log.x"},
        "stores.s.changelog",
        "changelog of the store 'a'",
    ),
    (
        STORE
        | {
            "stores.s.changelog": "log.tcp.t",
            "task.inputs": "log.in,tcp.t",
            "systems.tcp.samza.factory": "tcp",
            "systems.tcp.samza.landing": "log",
            "systems.tcp.streams.t.listen": "127.0.0.1:0",
        },
        "stores.s.changelog",
        "log.tcp.t is where tcp.t is landed",
    ),
]
WRONG_REPORTS = [
    (
        REPORTER | {"metrics.reporter.m.stream": "log.in"},
        "metrics.reporter.m.stream",
        "log.in is an input of this job",
    ),
    (
        REPORTER | STORE | {"metrics.reporter.m.stream": "log.job-1-s-changelog"},
        "metrics.reporter.m.stream",
        "is the changelog of the store 's'",
    ),
]


@pytest.mark.parametrize(("values", "key", "why"), [*WRONG, *WRONG_REPORTS])
def test_a_stream_with_a_purpose_gets_no_second_one_and_nothing_is_written(
    values: dict[str, str], key: str, why: str, tmp_path: Path
) -> None:
    config = job(tmp_path, values)
    before = files(tmp_path)
    with pytest.raises(ConfigError, match=why) as caught:
        Container(config, ignore).start()
    assert caught.value.key == key and "\n" not in str(caught.value)
    assert files(tmp_path) == before


@pytest.mark.parametrize(("values", "key", "why"), WRONG[:3])
def test_several_containers_are_refused_before_a_generation_is_opened(
    values: dict[str, str], key: str, why: str, tmp_path: Path
) -> None:
    config = job(tmp_path, values | {"job.container.count": "2"})
    before = files(tmp_path)
    with pytest.raises(ConfigError, match=why):
        run(config, task=ignore)
    assert files(tmp_path) == before


def test_the_topic_of_checkpoints_is_no_changelog() -> None:
    config = sb.Config(
        {
            **STORE,
            "task.inputs": "kafka.in",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.bootstrap.servers": "localhost:1",
            "stores.s.changelog": "kafka.__streambench_checkpoints_job-1",
        }
    )
    with pytest.raises(ConfigError, match=r"stores\.s\.changelog: .* is for the checkpoints of a job"):
        reserved_streams(config, "job-1", Systems(config))
