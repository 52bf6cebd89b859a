"""Changelogs in Kafka of stores that a run leaves out, or would read with another serde."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import streambench as sb
from streambench.errors import ConfigError
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.container.stateful import Counts
from tests.surroundings import only_soak
from tests.system.kafka.cluster import all_of, config, new_stream, sent

AT_LEAST_ONCE = pytest.param("at-least-once", marks=only_soak("the same stores, exactly once"))


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, "exactly-once"])
def test_a_store_that_a_run_leaves_out_keeps_its_state_and_serdes(
    kafka: KafkaNodes, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, stream = f"left-{uuid.uuid4().hex[:8]}", new_stream()
    values = {
        **config(kafka, samza__offset__default="oldest"),
        "job.name": name,
        "task.inputs": str(stream),
        "task.processing.guarantee": guarantee,
    }
    systems = Systems(sb.Config(values))
    systems.admin("k").create(stream, 1)

    def run(stores: tuple[str, ...], **more: str) -> dict[str, Any]:
        sent(systems, stream, [(0, None, b"x")])
        given = {**values, **{f"stores.{store}.factory": "memory" for store in stores}}
        given |= {key.replace("__", "."): value for key, value in more.items()}
        container = sb.Container.from_config(given, Counts)
        container.start()
        container.run("caught-up")
        counts = {store: container.tasks[0].context.store(store).get("n") for store in stores}
        container.stop()
        return counts

    try:
        assert run(("a", "b")) == {"a": 1, "b": 1}
        assert run(("b",)) == {"b": 2}
        assert run(("a", "b")) == {"a": 2, "b": 3}
        assert "the store 'a' is back" in caplog.text
        with pytest.raises(ConfigError, match="written with the serde json, and would be read with msgpack"):
            run(("a", "b"), stores__a__msg__serde="msgpack")
        assert run(("a", "b")) == {"a": 4, "b": 5}
        changelog = all_of(systems, sb.SystemStream("k", f"{name}-1-a-changelog"))
        assert [each.message for each in changelog[0]] == [b"1", b"2", b"4"]
    finally:
        systems.close()
