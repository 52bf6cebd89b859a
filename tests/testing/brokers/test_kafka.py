"""A Kafka of one's own: streambench kafka start, stop and status."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from streambench.cli.app import app
from streambench.errors import StreambenchError
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.conftest import kafka_nodes
from tests.surroundings import only_soak
from tests.system.kafka.cluster import all_of, config, new_stream, sent


def streambench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streambench", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def told(*arguments: str) -> tuple[int, str]:
    """What a command ends with and says, run in this process."""
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout


def test_it_starts_tells_its_servers_keeps_its_data_and_stops(tmp_path: Path) -> None:
    kafka_nodes(tmp_path)  # whether there can be one
    here = tmp_path / "josé a,b\\c ☃"
    there, nodes = ("--dir", str(here)), KafkaNodes(here)
    assert told("kafka", "status", *there)[0] == 1
    try:
        options = f"{os.environ.get('KAFKA_OPTS', '')} -Dgiven=here"
        started = streambench("kafka", "start", *there, "--port", "0", KAFKA_OPTS=options)
        assert started.returncode == 0, started.stderr
        assert nodes.cluster is not None
        assert started.stdout.split()[-1] == nodes.cluster.servers
        assert list(nodes.running()) == [1]
        assert "-Dgiven=here" in psutil.Process(nodes.running()[1]).cmdline()
        code, again = told("kafka", "start", *there)
        assert (code, "is running already" in again, again.split()[-1]) == (0, True, nodes.cluster.servers)
        with pytest.raises(StreambenchError, match="holds a cluster of 1, not of 3"):
            nodes.start(3)
        assert told("kafka", "status", *there)[0] == 0
        stream, systems = new_stream(), Systems(config(nodes))
        systems.admin("k").create(stream, 1)
        sent(systems, stream, [(0, None, b"kept")])
        systems.close()
        assert told("kafka", "stop", *there) == (0, "Kafka has stopped (1 node)\n")
        assert nodes.running() == {}
        assert nodes.start() == nodes.cluster
        systems = Systems(config(nodes))
        assert [e.message for e in all_of(systems, stream)[0]] == [b"kept"]
        systems.close()
    finally:
        nodes.stop()


def test_a_port_that_is_taken_is_named_and_nothing_is_left_running(tmp_path: Path) -> None:
    nodes = kafka_nodes(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StreambenchError, match=rf"port {port} cannot be had.*--port"):
            nodes.start(1, port)
    assert nodes.running() == {}
    assert nodes.cluster is None


def test_where_nothing_could_be_started_no_directory_is_left(tmp_path: Path) -> None:
    kafka_nodes(tmp_path)  # whether there can be one
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _ = told(
            "kafka", "start", "--dir", str(tmp_path / "new" / "er"), "--port", str(taken.getsockname()[1])
        )
    assert code == 1
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(StreambenchError, match="port 70000"):
        KafkaNodes(tmp_path / "mine").start(1, 70_000)
    assert (tmp_path / "mine").is_dir()


def test_a_node_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    nodes = kafka_nodes(tmp_path)
    (tmp_path / "node1" / "data").mkdir(parents=True)
    (tmp_path / "node1" / "data" / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=7\n")
    with pytest.raises(
        StreambenchError, match=r"node 1 of Kafka has ended; .*kafka\.log says: .*Stored node id 7"
    ):
        nodes.start(1, 0)
    assert nodes.running() == {}


def test_without_java_or_maven_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = shutil.which("java")
    for name in ("JAVA_HOME", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    nodes = KafkaNodes(tmp_path / "here")
    with pytest.raises(StreambenchError, match="Kafka needs Java"):
        nodes.start(1, 0)
    if java is None:
        return
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    with pytest.raises(StreambenchError, match=r"install it \(apt install maven\)"):
        nodes.start(1, 0)
    monkeypatch.setenv("KAFKA_HOME", "/nowhere")
    with pytest.raises(StreambenchError, match="KAFKA_HOME=/nowhere holds no Kafka"):
        nodes.start(1, 0)


@only_soak("tests/system/kafka has one node")
def test_three_nodes_outlive_the_loss_of_one(tmp_path: Path) -> None:
    nodes = kafka_nodes(tmp_path)
    nodes.start(3, 0)
    try:
        stream, systems = new_stream(), Systems(config(nodes))
        systems.admin("k").create(stream, 3)
        sent(systems, stream, [(number % 3, None, b"%d" % number) for number in range(300)])
        nodes.kill(2)
        sent(systems, stream, [(number % 3, None, b"%d" % number) for number in range(300, 600)])
        assert sum(map(len, all_of(systems, stream).values())) == 600
        nodes.start()
        assert list(nodes.running()) == [1, 2, 3]
        systems.close()
    finally:
        nodes.stop()
