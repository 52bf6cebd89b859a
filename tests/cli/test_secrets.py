"""A job whose secrets are references: they are used, and stand nowhere: not on a disk, a command line, a
screen, or in an error."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import psutil
import pytest

from streambench.config import Config
from tests.job.project import Project
from tests.system.webhook.receiving import TAKEN, Answer, Receiver, Request

TOKEN = "m4rk3r-T0ken"
PLACE = "m4rk3r-Place"

TASK = """\
import streambench as sb


class Posts(sb.StreamTask):
    def init(self, context):
        self.store = context.store("seen")

    def process(self, envelope, collector, coordinator):
        self.store.put(envelope.key, envelope.message)
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("out", "alarms"), envelope.message))
        collector.send(
            sb.OutgoingMessageEnvelope(sb.SystemStream("log", "up"), envelope.message, key=envelope.key)
        )
"""


class Hook(Receiver):
    """Receives posts, looks at the processes that post meanwhile, and repeats what it was given when it
    refuses."""

    def __init__(self, directory: Path) -> None:
        super().__init__(self._answered)
        self.refuses = False
        self.posting: psutil.Process | None = None
        self.processes: set[str] = set()
        self._ready = threading.Event()

    def posted_by(self, pid: int) -> None:
        self.posting = psutil.Process(pid)
        self._ready.set()

    def _answered(self, request: Request) -> Answer:
        self._ready.wait(60)
        if self.posting is not None:
            for process in (self.posting, *self.posting.children(recursive=True)):
                self.processes.add(f"{process.cmdline()} {process.environ()}")
        if self.refuses:
            return 401, {}, f"{request.headers['authorization']} may not post to {request.path}".encode()
        return TAKEN


@pytest.fixture
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("secrets")
    (directory / "token").write_text(f"{TOKEN}\n")
    (directory / "all.properties").write_text(f"place={PLACE}\n")
    return directory


def everywhere(directory: Path) -> str:
    """All files below a directory, as text."""
    return "\n".join(path.read_bytes().decode("latin-1") for path in directory.rglob("*") if path.is_file())


def assert_nowhere(*texts: str) -> None:
    for text in texts:
        assert TOKEN not in text
        assert PLACE not in text


def test_secrets_are_used_and_stand_nowhere(
    project: Project, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.directory / "task.py").write_text(TASK)
    with Hook(project.directory) as hook:
        project.configure(
            {
                "task.class": "task.py:Posts",
                "job.container.count": 2,
                "stores.seen.msg.serde": "json",
                "metrics.reporters": "m,l",
                "metrics.reporter.m.class": "snapshot",
                "metrics.reporter.m.stream": "log.metrics",
                "metrics.reporter.l.class": "log",
                "metrics.reporter.l.interval": "0.1",
                "systems.out.samza.factory": "webhook",
                "systems.out.samza.msg.serde": "json",
                "systems.out.token": f"${{file:{secrets}/token}}",
                "systems.out.streams.alarms.url": f"{hook.url}/${{file:{secrets}/all.properties:place}}",
                "systems.k.samza.factory": "kafka",
                "systems.k.bootstrap.servers": "127.0.0.1:1",
                "systems.k.consumer.sasl.plain.password": f"${{file:{secrets}/token}}",
            }
        )
        project.fill(20)
        running = project.start("run", "job.properties", "--until", "caught-up")
        hook.posted_by(running.pid)
        said = "".join(running.communicate())
        assert running.returncode == 0, said
        assert {each.path for each in hook.requests} == {f"/{PLACE}"}
        assert {each.headers["authorization"] for each in hook.requests} == {f"Bearer {TOKEN}"}
        assert len(hook.processes) == 3, hook.processes  # the command and its two containers
        assert_nowhere(said, *hook.processes)

        hook.refuses, hook.posting = True, None
        project.fill_more(20, 40)
        for options, environment in ((["--json"], {}), ([], {"STREAMBENCH_TRACEBACK": "1"})):
            with monkeypatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                refused = project.run("run", "job.properties", "--until", "caught-up", *options)
            assert refused.returncode == 1
            assert "401" in refused.stderr
            assert "***" in refused.stderr
            assert_nowhere(refused.stdout, refused.stderr)
    for command in (
        ["streams", "job.properties"],
        ["checkpoints", "job.properties", "--json"],
        ["peek", "log.up", "-c", "job.properties"],
    ):
        shown = project.run(*command)
        assert_nowhere(shown.stdout, shown.stderr)
    assert_nowhere(repr(project.config), json.dumps(dict(project.config)), everywhere(project.directory))


@pytest.mark.parametrize(
    "command", [["run", "--until", "caught-up"], ["streams"], ["checkpoints"], ["deploy", "--dry-run"]]
)
def test_an_unresolvable_reference_ends_every_command_with_its_key(
    project: Project, command: list[str]
) -> None:
    kafka = {"systems.k.samza.factory": "kafka", "systems.k.bootstrap.servers": "127.0.0.1:1"}
    project.configure({**kafka, "systems.k.consumer.sasl.plain.password": "${KPW}"})
    project.fill(2)
    said = project.fails(command[0], "job.properties", *command[1:])
    assert "systems.k.consumer.sasl.plain.password (job.properties:" in said
    assert "${KPW} is no reference: write ${env:KPW}" in said


def test_the_token_of_a_mistyped_master_is_not_told(project: Project) -> None:
    said = project.fails("deploy", "job.properties", "--master", f"sx://host:15002/;token={TOKEN}")
    assert "'sx://host:15002/;token=***' is not a Spark master" in said


@pytest.mark.parametrize("system", ["kafka", "amqp"])
def test_a_broker_that_is_not_there_is_told_without_the_password(
    system: str, monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", TOKEN)
    own = {
        "kafka": {
            "bootstrap.servers": "127.0.0.1:1",
            "consumer.bootstrap.timeout.ms": 300,
            "consumer.security.protocol": "SASL_PLAINTEXT",
            "consumer.sasl.mechanism": "PLAIN",
            "consumer.sasl.plain.username": "me",
            "consumer.sasl.plain.password": "${env:BROKER_PASSWORD}",
        },
        "amqp": {
            "url": "amqp://me:${env:BROKER_PASSWORD}@127.0.0.1:1/",
            "patience.ms": 300,
            "streams.a.queue": "a",
        },
    }[system]
    settings = {
        "systems.b.samza.factory": system,
        **{f"systems.b.{key}": value for key, value in own.items()},
    }
    project.configure(settings)
    for traceback in ("0", "1"):
        with monkeypatch.context() as patch:
            patch.setenv("STREAMBENCH_TRACEBACK", traceback)
            said = project.run("peek", "b.a", "-c", "job.properties")
        assert said.returncode == 1
        assert "127.0.0.1:1" in said.stderr
        assert_nowhere(said.stdout, said.stderr)
    assert Config(project.config).text(
        f"systems.b.{list(own)[0] if system == 'amqp' else 'consumer.sasl.plain.password'}"
    )
    assert os.environ["BROKER_PASSWORD"] in str(Config(project.config).below("systems.b."))
