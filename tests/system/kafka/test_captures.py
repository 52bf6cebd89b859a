"""The capture of a job that reads and writes Kafka: it is opened without a Kafka."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import TaskError
from streambench.recording import Recording
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.system.kafka.cluster import new_stream, sent

TASK = """
class Count:
    def init(self, context):
        self.counts = context.store("counts")
        self.output = context.config["test.output"]

    def process(self, envelope, collector, coordinator):
        key = envelope.key
        self.counts.put(key, (self.counts.get(key) or 0) + 1)
        if envelope.message == 13:
            raise ValueError("thirteen")
        if envelope.message == 5:
            coordinator.commit()
        collector.send("k." + self.output, self.counts.get(key))
"""
OPENED = """
import json, sys
from streambench import debug

session = debug.open(sys.argv[1])
seen = [session.position, session.message.message, session.stores()]
session.back(2)
seen.append(session.stores())
session.go_live()
session.swap(type("Mended", (), {"process": lambda self, envelope, collector, coordinator: None}))
seen += [session.step(), "kafka" in sys.modules]
print(json.dumps(seen))
"""


def test_a_capture_of_a_job_on_kafka_is_opened_without_kafka(kafka: KafkaNodes, tmp_path: Path) -> None:
    assert kafka.cluster is not None
    source, output = new_stream(), new_stream()
    (tmp_path / "count.py").write_text(TASK)
    values = {
        "job.name": source.stream, "task.class": "count.py:Count", "task.inputs": str(source),
        "task.capture.path": "captures",
        "test.output": output.stream, "task.commit.ms": -1,
        "stores.counts.factory": "memory", "stores.counts.key.serde": "string",
        "stores.counts.msg.serde": "integer", "systems.k.samza.factory": "kafka",
        "systems.k.samza.offset.default": "oldest", "systems.k.samza.key.serde": "string",
        "systems.k.samza.msg.serde": "json", "systems.k.bootstrap.servers": kafka.cluster.servers,
    }  # fmt: skip
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    config = Config.from_text(text, directory=tmp_path)
    systems = Systems(config)
    for stream in (source, output):
        systems.admin("k").create(stream, 1)
    sent(systems, source, [(0, b"ab"[n % 2 : n % 2 + 1], b"%d" % n) for n in range(20)])
    systems.close()
    with pytest.raises(TaskError) as raised, Container.from_config(config) as container:
        container.run("caught-up")
    named = re.search(r"captured: streambench replay (\S+)", str(raised.value))
    assert named is not None, raised.value
    # From the commit on, in which the first six messages are.
    recording = Recording.read(named[1])
    assert [each.message for each in recording.decoded()] == list(range(6, 14))
    assert recording.size_limits == {output: (1 << 20) + 12}  # as the broker has it
    done = subprocess.run(
        [sys.executable, "-c", OPENED, named[1]], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [
        7, 13, {"Partition 0": {"counts": {"a": 7, "b": 6}}},
        {"Partition 0": {"counts": {"a": 6, "b": 5}}}, 1, False,
    ]  # fmt: skip
