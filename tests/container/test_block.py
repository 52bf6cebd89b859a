"""A container in a ``with`` block, and the short form of ``send``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.system.systems import Systems
from streambench.testing import run_job

LATE = sb.SystemStream("mem", "late")


class Copy(sb.StreamTask):
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message == b"bad":
            raise ValueError("bad")
        collector.send("log.out", envelope.message)


@pytest.fixture
def config(tmp_path: Path) -> sb.Config:
    """Three messages, the last of which is bad."""
    keys = {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "systems.log.samza.offset.default": "oldest",
    }
    config = sb.Config({**keys, "task.inputs": "log.in", "job.name": "copy"})
    systems = Systems(config)
    stream = sb.SystemStream("log", "in")
    systems.create(stream, 1)
    with writing(systems, stream, 1, "test") as writer:
        writer.send(sb.OutgoingMessageEnvelope(stream, text) for text in (b"a", b"b", b"bad"))
    systems.close()
    return config


def committed(config: sb.Config) -> int:
    """How many messages the next start does not read again."""
    with sb.Container(config, Copy) as container:
        return 3 - (container.snapshot().lag or 0)


def test_a_block_starts_its_container_and_stops_it_with_a_commit(config: sb.Config) -> None:
    with sb.Container(config, Copy) as container:
        assert container.state == "running"
        assert container.step(2) == 2
    assert container.state == "stopped"
    assert committed(config) == 2


def test_an_exception_in_a_block_leaves_nothing_committed(config: sb.Config) -> None:
    with pytest.raises(RuntimeError, match="mine"), sb.Container(config, Copy) as container:
        container.step(2)
        raise RuntimeError("mine")
    assert (container.state, container.reason) == ("failed", "abandoned")
    assert committed(config) == 0


def test_a_failing_task_ends_a_block_with_its_own_error(config: sb.Config) -> None:
    with pytest.raises(sb.TaskError, match="log.in.0@2"), sb.Container(config, Copy) as container:
        container.run("caught-up")
    assert container.state == "failed"
    assert committed(config) == 0


def test_in_a_block_a_container_may_be_started_and_stopped_as_ever(config: sb.Config) -> None:
    with sb.Container.from_config(config, Copy) as container:
        container.start()
        container.step()
        container.stop()
    container = sb.Container(config, Copy)
    container.start()
    with container:
        assert container.step() == 1
    with pytest.raises(sb.ContainerStateError, match="stopped"), container:
        pass


def sent(*forms: Any) -> dict[int, list[tuple[Any, Any]]]:
    def process(envelope: Any, collector: Any, coordinator: Any) -> None:
        for arguments, fields in forms:
            collector.send(*arguments, **fields)

    config = {"systems.mem.streams.late.partitions": 4}
    return run_job(process, config, {"mem.in": {0: [1]}}).outputs.get("mem.late", {})


FIELDS = {"key": "k", "partition_key": "p", "timestamp": 5, "headers": {"a": b"1"}}


@pytest.mark.parametrize("message", [b"x", {"delay": 66}, None])
@pytest.mark.parametrize("stream", [LATE, "mem.late"])
@pytest.mark.parametrize("fields", [{}, {"key": b"k"}, FIELDS, {**FIELDS, "partition": 3}])
def test_the_short_form_sends_what_the_envelope_does(
    message: Any, stream: Any, fields: dict[str, Any]
) -> None:
    long = sent(((sb.OutgoingMessageEnvelope(LATE, message, **fields),), {}))
    assert sent(((stream, message), fields)) == long != {}


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ((("late", 1), {}), "'late' is not a stream: write it as system.stream"),
        ((("mem.late",), {}), r"collector.send\(\"system.stream\", message, key=...\)"),
        (((5, 1), {}), "sent to 5, which is no stream"),
        (((LATE, 1), {"partition": 9}), "partition"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(form: Any, says: str) -> None:
    with pytest.raises(sb.StreambenchError, match=says) as caught:
        sent(form)
    assert "mem.in.0@0" in str(caught.value)
