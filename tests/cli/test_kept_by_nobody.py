"""Streams of systems that keep nothing, as the commands show them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.job.project import Project
from tests.system.queued import broker


@pytest.fixture
def queues(project: Project) -> Iterator[Project]:
    project.configure(
        {
            "task.inputs": "q.numbers",
            "systems.q.samza.factory": "tests.system.queued.QueueSystem",
            "systems.q.samza.msg.serde": "json",
            "task.class": "task.py:Up",
        }
    )
    broker.clear()
    broker.create("numbers", 1)
    project.ok("streams", "create", "log.up", "-c", "job.properties")
    yield project
    broker.clear()


def test_a_job_is_run_and_its_checkpoint_tells_no_lag(queues: Project) -> None:
    broker.put("numbers", *(b'{"n": %d}' % number for number in range(5)))
    queues.ok("run", "job.properties", "--until", "caught-up")
    assert [row["message"]["n"] for row in queues.rows("peek", "log.up")] == [1, 2, 3, 4, 5]
    assert broker.left("numbers") == []
    (row,) = queues.rows("checkpoints")
    assert (row["processed"], row["next"], row["upcoming"], row["lag"]) == ("4", "5", None, None)


def test_a_list_of_streams_shows_no_offsets(queues: Project) -> None:
    (row,) = queues.rows("streams", "list", "q.numbers")
    assert (row["oldest"], row["newest"], row["upcoming"]) == (None, None, None)


def test_a_look_takes_nothing_away_and_goes_nowhere_else(queues: Project) -> None:
    broker.put("numbers", b'{"n": 1}', b'{"n": 2}')
    assert [row["message"]["n"] for row in queues.rows("peek", "q.numbers")] == [1, 2]
    assert len(broker.left("numbers")) == 2
    assert "keeps nothing" in queues.fails("peek", "q.numbers", "--from", "3", "-c", "job.properties")


def test_nobody_goes_back_in_it(queues: Project) -> None:
    queues.ok("run", "job.properties", "--until", "caught-up")
    told = queues.fails("checkpoints", "-c", "job.properties", "--rewind", "oldest", "--yes")
    assert "systems.q.samza.landing" in told


def test_a_landed_stream_is_looked_at_like_any_other(queues: Project) -> None:
    queues.configure(
        {
            "task.inputs": "q.numbers",
            "systems.q.samza.factory": "tests.system.queued.QueueSystem",
            "systems.q.samza.msg.serde": "json",
            "systems.q.samza.landing": "log",
        }
    )
    broker.put("numbers", *(b'{"n": %d}' % number for number in range(3)))
    queues.ok("run", "job.properties", "--until", "caught-up")
    assert [row["message"]["n"] for row in queues.rows("peek", "q.numbers", "--from", "1")] == [1, 2]
    (row,) = queues.rows("streams", "list", "q.numbers")
    assert (row["oldest"], row["newest"], row["upcoming"]) == ("0", "2", "3")
    (row,) = queues.rows("checkpoints")
    assert (row["processed"], row["lag"]) == ("2", 0)
    queues.ok("checkpoints", "-c", "job.properties", "--rewind", "q.numbers@1", "--yes")
    queues.ok("run", "job.properties", "--until", "caught-up")
    assert [row["message"]["n"] for row in queues.rows("peek", "log.up")] == [1, 2, 3, 2, 3]


def test_only_what_is_landed_can_be_received(queues: Project) -> None:
    assert "systems.<s>.samza.landing" in queues.fails("land", "job.properties")
    assert "systems.q.samza.landing: is missing" in queues.fails("land", "job.properties", "q.numbers")
