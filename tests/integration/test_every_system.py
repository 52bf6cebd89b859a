"""Listing, sending, looking, running, checkpoints and the tab key, for streams of every kind of system: in
the shell and in a notebook."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import Struct

from streambench.errors import StreamSystemError
from tests.job.conftest import project
from tests.job.project import Project
from tests.magics.conftest import Shell, ip, ip_empty, ip_no_magics
from tests.ports import free_port, free_ports
from tests.system import listed

__all__ = ["ip", "ip_empty", "ip_no_magics", "project"]

MESSAGES = [{"n": number} for number in range(3)]
LINES = "".join(json.dumps(each) + "\n" for each in MESSAGES)
OUTSIDE = (OSError, httpx.HTTPError)


class Kind(Struct, frozen=True):
    """One kind of system, as ``x`` with one stream. ``settings``: below ``systems.x.``. ``arrive``: sends the
    messages from outside, which may fail without a listener; None where streambench sends them."""

    settings: dict[str, Any]
    stream: str
    is_made: bool = True
    is_looked_into: bool = True
    arrive: Callable[[], None] | None = None


Make = Callable[[pytest.FixtureRequest, Path, str], Kind]


def _plain(factory: str, **settings: str) -> Make:
    def make(_: pytest.FixtureRequest, directory: Path, name: str) -> Kind:
        own = {key: value.replace("HERE", str(directory)) for key, value in settings.items()}
        return Kind({"samza.factory": factory, **own}, f"x.{name}")

    return make


def _kafka(request: pytest.FixtureRequest, _: Path, name: str) -> Kind:
    return Kind(
        {"samza.factory": "kafka", "bootstrap.servers": request.getfixturevalue("kafka").cluster.servers},
        f"x.{name}",
    )


def _amqp(kind: str) -> Make:
    def make(request: pytest.FixtureRequest, _: Path, name: str) -> Kind:
        return Kind(
            {"samza.factory": "amqp", "url": request.getfixturevalue("rabbitmq").url, "queue.type": kind},
            f"x.{name}",
        )

    return make


def _tcp(_: pytest.FixtureRequest, __: Path, name: str) -> Kind:
    port = free_port()

    def arrive() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(LINES.encode())

    return Kind({"samza.factory": "tcp", f"streams.{name}.listen": port}, f"x.{name}", False, False, arrive)


def _udp(_: pytest.FixtureRequest, __: Path, name: str) -> Kind:
    port = free_ports(1, "udp")

    def arrive() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for line in LINES.splitlines():
                sender.sendto(line.encode(), ("127.0.0.1", port))

    return Kind({"samza.factory": "udp", f"streams.{name}.listen": port}, f"x.{name}", False, False, arrive)


def _webhook(_: pytest.FixtureRequest, __: Path, name: str) -> Kind:
    port = free_port()

    def arrive() -> None:
        url, headers = f"http://127.0.0.1:{port}/{name}", {"content-type": "application/x-ndjson"}
        httpx.post(url, content=LINES, headers=headers, timeout=60).raise_for_status()

    return Kind({"samza.factory": "webhook", "port": port}, f"x.{name}", False, False, arrive)


def _landed(request: pytest.FixtureRequest, directory: Path, name: str) -> Kind:
    kind = _webhook(request, directory, name)
    return Kind({**kind.settings, "samza.landing": "log"}, kind.stream, False, True, kind.arrive)


KINDS: dict[str, Make] = {
    "memory": _plain("memory"),
    "file": _plain("file", path="HERE/files"),
    "log": _plain("log", path="HERE/x"),
    "kafka": _kafka,
    "amqp-queue": _amqp("quorum"),
    "amqp-stream": _amqp("stream"),
    "tcp": _tcp,
    "udp": _udp,
    "webhook": _webhook,
    "landed": _landed,
    "plug-in": _plain("tests.system.listed.Numbered"),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    yield KINDS[request.param](request, tmp_path, f"s{uuid.uuid4().hex[:8]}")
    listed.streams.clear()


def settings(kind: Kind) -> dict[str, Any]:
    more = {"samza.msg.serde": "json", "samza.offset.default": "oldest"}
    values = {f"systems.x.{key}": value for key, value in {**kind.settings, **more}.items()}
    return {"task.inputs": kind.stream, "task.checkpoint.system": "log", **values}


def test_the_command_line_works_with_it(project: Project, kind: Kind) -> None:
    project.configure(settings(kind))
    project.ok("streams", "create", "log.up", "-c", "job.properties")
    if kind.is_made:
        project.ok("streams", "create", kind.stream, "-c", "job.properties")
    assert kind.stream in {row["stream"] for row in project.rows("streams", "list")}
    # A completion waits for no broker for long: on a slow machine the key is pressed again.
    assert [kind.stream] in (
        project.completes(f"streambench peek -c job.properties {kind.stream[:4]}") for _ in range(10)
    )
    if kind.arrive is None:
        project.ok("send", kind.stream, "-c", "job.properties", stdin=LINES)
        assert [row["message"] for row in project.rows("peek", kind.stream)] == MESSAGES
        project.ok("run", "job.properties", "--until", "caught-up")
    else:
        job = project.start("run", "job.properties", "--messages", "3", "--quiet")
        while job.poll() is None:
            with contextlib.suppress(*OUTSIDE):
                kind.arrive()
            threading.Event().wait(0.2)
        out, errors = job.communicate()
        assert job.returncode == 0, out + errors
        if kind.is_looked_into:
            assert [row["message"] for row in project.rows("peek", kind.stream, "--limit", "3")] == MESSAGES
        else:
            assert "'x' keeps nothing that could be looked at" in project.fails(
                "peek", kind.stream, "-c", "job.properties"
            )
    assert project.outputs() == [1, 2, 3]
    (row,) = project.rows("checkpoints")
    assert row["stream"] == kind.stream and row["processed"] is not None


def test_a_notebook_works_with_it(ip: Shell, kind: Kind) -> None:
    ip.names["messages"] = MESSAGES
    ip.names["config"] = {**settings(kind), "systems.log.samza.factory": "log", "systems.log.path": "log"}
    del ip.names["config"]["task.inputs"]
    ip.run("%stream create it --task Count --config config")
    if kind.is_made:
        ip.run(f"%stream streams create {kind.stream}")
    ip.run(f"%stream attach it {kind.stream}")
    assert kind.stream in ip.completions(f"%stream peek {kind.stream[:4]}")
    assert kind.stream in ip.run("%stream streams x")
    if kind.arrive is None:
        ip.run(f"%stream send {kind.stream} --from messages")
        ip.run(f"%stream peek {kind.stream}")
        assert [row["message"] for row in ip.value] == MESSAGES
        ip.run("%stream run it --until caught-up")
        ip.run("%stream wait it")
    else:
        ip.run("%stream run it")
        _once_it_listens(kind.arrive)
    (task,) = ip.magics.bench.jobs["it"].session.container.tasks
    while len(task.task.seen) < 3:
        assert ip.magics.bench.jobs["it"].alive
        threading.Event().wait(0.02)
    ip.run("%stream stop it")
    assert task.task.seen == MESSAGES
    if kind.arrive is not None and kind.is_looked_into:
        ip.run(f"%stream peek {kind.stream}")
        assert [row["message"] for row in ip.value] == MESSAGES
    elif kind.arrive is not None:
        with pytest.raises(StreamSystemError, match="keeps nothing that could be looked at"):
            ip.run(f"%stream peek {kind.stream}")
    ip.run("%stream checkpoints it")
    assert [row["partition"] for row in ip.value] == [f"{kind.stream}.0"]


def _once_it_listens(arrive: Callable[[], None]) -> None:
    """A receiver that lands has a thread of its own, which begins after the job."""
    while True:
        try:
            return arrive()
        except (ConnectionRefusedError, httpx.ConnectError):
            threading.Event().wait(0.05)


@pytest.fixture
def silent() -> Iterator[dict[str, Any]]:
    """A broker that is reached, and never answers; beside it a system that is well."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield {
            "systems.k.samza.factory": "kafka",
            "systems.k.bootstrap.servers": f"127.0.0.1:{listening.getsockname()[1]}",
            "task.inputs": "log.numbers",
        }


def test_a_broker_that_does_not_answer_hides_nothing_of_the_others(
    project: Project, silent: dict[str, Any]
) -> None:
    project.configure(silent)
    project.fill(2)
    done = project.run("streams", "list", "-c", "job.properties")
    assert done.returncode == 1 and "log.numbers" in done.stdout
    *before, told = done.stderr.splitlines()
    assert told.startswith("error: ") and "no Kafka broker answers" in told
    assert all("seconds so far" in each for each in before)
    assert project.completes("streambench peek -c job.properties log.") == ["log.numbers"]


def test_a_notebook_does_not_wait_for_a_broker_either(ip: Shell, silent: dict[str, Any]) -> None:
    ip.names["config"] = {**silent, "systems.mem.samza.factory": "memory"}
    ip.run("%stream create it --task Count --config config")
    assert ip.completions("%stream peek mem.") == ["mem.clicks"]
    assert "no Kafka broker answers" in ip.run("%stream streams k")
