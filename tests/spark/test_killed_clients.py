"""A Spark Connect client that is killed while its containers run on a server elsewhere, with all in Kafka."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from streambench import SystemStream
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from streambench.testing.owned import dying_with_parent
from tests.ports import free_port
from tests.spark.conftest import environment_of_programs
from tests.spark.source.streams import everything
from tests.surroundings import only_soak
from tests.system.kafka.cluster import config as kafka_config
from tests.system.kafka.cluster import new_stream, sent

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
MESSAGES = 20_000

CLIENT = """
import json, sys, time
from streambench import Config, OutgoingMessageEnvelope, SystemStream
from streambench.spark import deploy
from pyspark.sql import SparkSession

OUT = SystemStream("k", sys.argv[3])
PAUSE_S = float(sys.argv[4])

class Copy:
    def process(self, envelope, collector, coordinator):
        time.sleep(PAUSE_S)
        message = OutgoingMessageEnvelope(OUT, envelope.message, partition=envelope.ssp.partition)
        collector.send(message)

def show(progress):
    print(progress.messages, flush=True)

if __name__ == "__main__":
    config = Config(json.loads(sys.argv[1]))
    spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
    result = deploy(config, Copy, spark=spark, progress=show)
    print("ended", result.messages, flush=True)
"""


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """The address of a Spark Connect server in a process of its own."""
    port = free_port()
    command: list[Any] = [Path(sys.executable).with_name("spark-submit"), "--class", SERVER]
    settings = ["spark.master=local[2]", "spark.ui.enabled=false", f"spark.local.dir={directory}"]
    settings += [f"spark.connect.grpc.binding.port={port}", "spark.connect.grpc.binding.address=127.0.0.1"]
    for each in settings:
        command += ["--conf", each]
    log = directory / "server.log"
    with ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        server = subprocess.Popen(
            [*command, "spark-internal"], cwd=directory, env=environment_of_programs(), stdout=output,
            stderr=output, start_new_session=True, preexec_fn=dying_with_parent(),
        )  # fmt: skip
        stack.callback(server.wait)
        stack.callback(os.killpg, server.pid, signal.SIGKILL)
        while True:
            assert server.poll() is None, log.read_text()
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"


@only_soak("it waits for a minute; test_all_in_kafka.py ends leases of killed holders")
@pytest.mark.usefixtures("spark_installed")
def test_containers_of_a_killed_client_stop_and_nothing_is_doubled(
    kafka: KafkaNodes, tmp_path: Path, report: Callable[[str], None]
) -> None:
    source, target = new_stream(), new_stream()
    values = {
        "job.name": f"job-{source.stream}", "task.inputs": str(source), "job.container.count": 2,
        "systems.k.samza.offset.default": "oldest", "task.processing.guarantee": "exactly-once",
        "task.commit.ms": 500,
    }  # fmt: skip
    config = kafka_config(kafka).with_values(values)
    given = [(number % 2, None, b"%d" % number) for number in range(MESSAGES)]
    with closing(Systems(config)) as systems:
        for stream in (source, target):
            systems.admin("k").create(stream, 2)
        sent(systems, source, given)
    with connect_server(tmp_path) as address:

        def start(pause_s: float) -> subprocess.Popen[str]:
            settings = json.dumps({key: str(value) for key, value in config.items()})
            arguments = [settings, address, target.stream, str(pause_s)]
            return subprocess.Popen(
                [sys.executable, "-c", CLIENT, *arguments], cwd=tmp_path, env=environment_of_programs(),
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip

        client = start(0.02)  # 200 s
        assert client.stdout is not None
        while int(client.stdout.readline() or -1) < MESSAGES // 20:
            assert client.poll() is None
        client.kill()
        client.communicate()
        killed = changed = time.monotonic()
        ends = ends_of(config, target)
        while time.monotonic() - changed < 15:
            if (now := ends_of(config, target)) != ends:
                ends, changed = now, time.monotonic()
            time.sleep(0.2)
        report(f"containers went on for {changed - killed:.1f} s after the death of their client")
        assert changed - killed < 60
        stopped_at = len(read_back(config, target))
        report(f"{stopped_at} of {MESSAGES} messages were committed")
        assert MESSAGES // 20 <= stopped_at < MESSAGES
        said, _ = start(0).communicate()
        assert said.splitlines()[-1] == f"ended {MESSAGES - stopped_at}"
    found = everything(config, str(target))
    for partition in (0, 1):
        wanted = [message for number, _, message in given if number == partition]
        assert [each.message for each in found[partition]] == wanted


def ends_of(config: Any, stream: SystemStream) -> list[str | None]:
    with closing(Systems(config)) as systems:
        return [each.upcoming for each in systems.metadata([stream])[stream].values()]


def read_back(config: Any, stream: SystemStream) -> list[Any]:
    return [each for envelopes in everything(config, str(stream)).values() for each in envelopes]
