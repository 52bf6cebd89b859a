"""A Kafka of one's own: streambench kafka start, stop and status."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streambench.errors import StreambenchError
from streambench.system.kafka.nodes import KafkaNodes
from streambench.system.systems import Systems
from tests.conftest import kafka_nodes
from tests.surroundings import SOAK
from tests.system.kafka.cluster import all_of, config, new_stream, sent


def streambench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streambench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_it_starts_tells_its_servers_keeps_its_data_and_stops(tmp_path: Path) -> None:
    kafka_nodes(tmp_path)  # whether there can be one
    there, nodes = ("--dir", str(tmp_path / "here")), KafkaNodes(tmp_path / "here")
    assert streambench("kafka", "status", *there).returncode == 1
    try:
        started = streambench("kafka", "start", *there, "--port", "0")
        assert started.returncode == 0, started.stderr
        assert nodes.cluster is not None
        assert started.stdout.split()[-1] == nodes.cluster.servers
        assert list(nodes.running()) == [1]
        again = streambench("kafka", "start", *there)
        assert "is running already" in again.stdout
        assert again.stdout.split()[-1] == nodes.cluster.servers
        with pytest.raises(StreambenchError, match="holds a cluster of 1, not of 3"):
            nodes.start(3)
        assert streambench("kafka", "status", *there).returncode == 0
        stream, systems = new_stream(), Systems(config(nodes))
        systems.admin("k").create(stream, 1)
        sent(systems, stream, [(0, None, b"kept")])
        systems.close()
        assert streambench("kafka", "stop", *there).returncode == 0
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


def test_a_node_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    nodes = kafka_nodes(tmp_path)
    (tmp_path / "node1" / "data").mkdir(parents=True)
    (tmp_path / "node1" / "data" / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=7\n")
    with pytest.raises(StreambenchError, match=r"node 1 of Kafka has ended; .*kafka\.log says:\n(.*\n)*.*Stored node id 7"):
        nodes.start(1, 0)
    assert nodes.running() == {}


def test_without_java_or_maven_the_error_says_what_to_install(tmp_path: Path) -> None:
    home = {"PATH": "/nowhere", "JAVA_HOME": "", "KAFKA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    no_java = streambench("kafka", "start", "--dir", str(tmp_path), **home)
    assert (no_java.returncode, "Kafka needs Java" in no_java.stderr) == (1, True), no_java.stderr
    java = shutil.which("java")
    if java is None:
        return
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    no_maven = streambench("kafka", "start", "--dir", str(tmp_path), **{**home, "PATH": str(tmp_path / "bin")})
    assert (no_maven.returncode, "install it (apt install maven)" in no_maven.stderr) == (1, True), no_maven.stderr
    no_kafka = streambench("kafka", "start", "--dir", str(tmp_path), **{**home, "PATH": str(tmp_path / "bin"), "KAFKA_HOME": "/nowhere"})
    assert (no_kafka.returncode, "KAFKA_HOME=/nowhere holds no Kafka" in no_kafka.stderr) == (1, True), no_kafka.stderr


@pytest.mark.skipif(not SOAK, reason="three nodes take half a minute: SOAK=1")
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
