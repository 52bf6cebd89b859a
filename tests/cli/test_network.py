"""Streams that come over the network, as the commands show them."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.job.project import Project
from tests.ports import free_ports


@pytest.fixture
def receiver(project: Project) -> Project:
    project.configure(
        {
            "task.inputs": "t.numbers",
            "task.class": "task.py:Up",
            "systems.t.samza.factory": "tcp",
            "systems.t.samza.msg.serde": "json",
            "systems.t.listen.timeout.ms": "0",
            "systems.t.acknowledge.within.ms": "20",
            "systems.t.connect.timeout.ms": "60000",
            "systems.t.streams.numbers.listen": f"127.0.0.1:{free_ports(2)}",
            "systems.t.streams.numbers.partitions": "2",
        }
    )
    return project


def test_what_is_sent_to_a_job_is_processed_when_send_returns(receiver: Project) -> None:
    job = receiver.start("run", "job.properties", "--quiet")
    try:
        receiver.ok("send", "t.numbers", "-c", "job.properties", stdin='{"n": 1}\n{"n": 2}\n{"n": 3}\n')
        assert sorted(row["message"]["n"] for row in receiver.rows("peek", "log.up")) == [2, 3, 4]
        refused = receiver.fails("peek", "t.numbers", "--follow", "-c", "job.properties")
        assert "systems.t.streams.numbers.listen" in refused and "the job may run already" in refused
    finally:
        job.terminate()
        job.communicate()


def test_streams_are_listed_and_nothing_is_said_to_be_in_them(receiver: Project) -> None:
    rows = receiver.rows("streams", "list")
    assert [
        (row["stream"], row["partition"], row["upcoming"]) for row in rows if row["stream"] == "t.numbers"
    ] == [
        ("t.numbers", 0, None),
        ("t.numbers", 1, None),
    ]
    looked = receiver.fails("peek", "t.numbers", "-c", "job.properties")
    assert "'t' keeps nothing that could be looked at" in looked and "peek --follow" in looked
    assert "systems.t.streams.other.listen" in receiver.fails("peek", "t.other", "-c", "job.properties")


def test_peek_can_listen(receiver: Project) -> None:
    listening = receiver.start(
        "peek", "t.numbers", "-c", "job.properties", "--follow", "--limit", "1", "--json"
    )
    address = receiver.config["systems.t.streams.numbers.listen"].rpartition(":")
    while True:
        try:
            sender = socket.create_connection((address[0], int(address[2])))
            break
        except ConnectionRefusedError:
            assert listening.poll() is None
            threading.Event().wait(0.05)
    with sender:
        sender.sendall(b'{"n": 7}\n')
        shown, _ = listening.communicate()
    assert '"n":7' in shown.replace(" ", "")


def test_nobody_listens_is_told_with_the_key(receiver: Project) -> None:
    receiver.configure(
        {
            "systems.t.samza.factory": "tcp",
            "systems.t.streams.numbers.connect": f"127.0.0.1:{free_ports(1)}",
            "systems.t.connect.timeout.ms": "100",
        }
    )
    told = receiver.fails("send", "t.numbers", "-c", "job.properties", stdin="x\n")
    assert (
        "no receiver listens at 127.0.0.1" in told
        and "systems.t.streams.numbers.connect" in told
    )


def test_where_nothing_was_sent_nothing_is_said_to_have_been(project: Project) -> None:
    port = str(free_ports(1))
    project.configure(
        {
            "systems.t.samza.factory": "tcp",
            "systems.t.streams.s.connect": port,
            "systems.t.connect.timeout.ms": "100",
        }
    )
    error = project.fails("send", "t.s", "-c", "job.properties", stdin="1\n")
    assert "no receiver listens" in error and "have been sent" not in error


def test_that_a_stream_to_be_landed_is_not_there_is_all_that_is_said(project: Project) -> None:
    project.configure({"systems.t.samza.factory": "tcp", "systems.t.samza.landing": "log"})
    result = project.run("land", "job.properties", "t.nothing")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ") and "systems.t.streams.nothing.listen" in result.stderr


def test_run_says_where_it_listens_and_that_nothing_has_come(project: Project) -> None:
    ports = [free_ports(1) for _ in range(3)]
    project.configure(
        {
            "task.inputs": "hook.orders,lines.in,pings.in", "task.checkpoint.system": "file",
            "systems.hook.samza.factory": "webhook", "systems.hook.port": ports[0],
            "systems.lines.samza.factory": "tcp", "systems.lines.streams.in.listen": f"127.0.0.1:{ports[1]}",
            "systems.pings.samza.factory": "udp", "systems.pings.streams.in.listen": f"127.0.0.1:{ports[2]}",
        }
    )  # fmt: skip
    job = project.start("run", "job.properties", "--messages", "1")
    assert job.stderr is not None
    said = []
    try:
        for line in job.stderr:
            said.append(line.strip())
            if line.startswith("nothing to read"):
                break
    finally:
        job.terminate()
        job.communicate()
    assert f"info: hook.orders listens on http://127.0.0.1:{ports[0]}/orders" in said
    assert f"info: lines.in.0 listens on tcp://127.0.0.1:{ports[1]}" in said
    assert any(line.startswith(f"info: pings.in.0 listens on udp://127.0.0.1:{ports[2]}, ") for line in said)
    assert "hook.orders has received nothing yet" in said[-1]


def test_a_run_that_waits_for_an_empty_stream_says_how_to_send_to_it(project: Project) -> None:
    project.fill(0)
    job = project.start("run", "job.properties", "--messages", "2")
    assert job.stderr is not None
    hint = next((line.strip() for line in job.stderr if line.startswith("nothing to read")), "")
    send = "streambench send log.numbers -c job.properties"
    assert hint == f"nothing to read: log.numbers is empty; to send to it: {send} (Ctrl-C stops this cleanly)"
    project.ok(*send.split()[1:], stdin='{"n": 1}\n{"n": 2}\n')
    assert "reached the number of messages; 2 messages" in job.communicate()[0]
    assert job.returncode == 0
