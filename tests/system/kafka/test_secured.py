"""A broker that wants TLS and a password: reading, writing and administering with them, and what is said
where one of them is wrong."""

from __future__ import annotations

import gc
import os
import shutil
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streambench.cli.app import app
from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.system.kafka.settings import Settings
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes, free_ports
from tests.conftest import kafka_nodes
from tests.surroundings import SOAK, missing
from tests.system.kafka.cluster import all_of, new_stream, sent

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER, PASSWORD, STORE_PASSWORD = "alice", "alice's-Secret-7", "store-Secret-8"
SECONDS = 60.0  # far more than it takes, far less than patience.ms


@dataclass(frozen=True)
class Secured:
    nodes: KafkaNodes
    port: int
    authority: Path

    def config(self, **changes: str) -> Config:
        """The configuration of the system; ``changes``: with __ for dots."""
        values = {
            "samza.factory": "kafka",
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "samza.offset.default": "oldest",
            "consumer.security.protocol": "SASL_SSL",
            "consumer.ssl.cafile": str(self.authority),
            "consumer.sasl.mechanism": "PLAIN",
            "consumer.sasl.plain.username": USER,
            "consumer.sasl.plain.password": PASSWORD,
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
        return Config(
            {"job.default.system": "k", **{f"systems.k.{key}": value for key, value in values.items()}}
        )


def made_store(directory: Path) -> Path:
    """A key store with a key for 127.0.0.1 whose certificate is its own authority, made by Java's keytool:
    whoever has a Kafka has that."""
    tool = shutil.which("keytool")
    if tool is None:
        missing("keytool", remedy="apt-get install openjdk-17-jre-headless")
    store = directory / "broker.p12"
    subject = ("-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-keyalg", "EC", "-validity", "30")
    options = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass", STORE_PASSWORD)
    done = subprocess.run(
        [tool, "-genkeypair", "-alias", "broker", *subject, *options], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return store


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    keys, authority = made_store(directory), directory / "authority.pem"
    port = free_ports(3, set())[-1]  # the node takes the others
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"

    def add_listener(number: int, settings: dict[str, object]) -> None:
        settings["listeners"] = f"{settings['listeners']},SECURED://127.0.0.1:{port}"
        settings["advertised.listeners"] = f"{settings['advertised.listeners']},SECURED://127.0.0.1:{port}"
        settings["listener.security.protocol.map"] = (
            f"{settings['listener.security.protocol.map']},SECURED:SASL_SSL"
        )
        settings.update(
            {
                "listener.name.secured.ssl.keystore.type": "PKCS12",
                "listener.name.secured.ssl.keystore.location": keys,
                "listener.name.secured.ssl.keystore.password": STORE_PASSWORD,
                "listener.name.secured.ssl.key.password": STORE_PASSWORD,
                "listener.name.secured.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.secured.plain.sasl.jaas.config": f'{login} required user_{USER}="{PASSWORD}";',
                "listener.name.secured.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            }
        )

    nodes = kafka_nodes(directory / "nodes", add_listener)
    nodes.start(1, 0)
    authority.write_text(ssl.get_server_certificate(("127.0.0.1", port)))
    yield Secured(nodes, port, authority)
    nodes.stop()


def without_secrets(text: str) -> str:
    assert PASSWORD not in text
    assert "wrong-Secret" not in text
    return text


def all_that_is_said(error: BaseException) -> str:
    """The error and everything it came of."""
    said, each = "", error
    while each is not None:
        said += f"{each!r} {each}\n"
        each = each.__cause__ or each.__context__  # type: ignore[assignment]
    return said


def test_streams_are_made_written_and_read(secured: Secured) -> None:
    systems, stream = Systems(secured.config()), new_stream()
    assert systems.admin("k").create(stream, 2)
    sent(systems, stream, [(1, b"key", b"%d" % number) for number in range(100)])
    assert [each.message for each in all_of(systems, stream)[1]] == [b"%d" % number for number in range(100)]
    assert stream in systems.admin("k").streams()
    systems.admin("k").delete(stream)
    systems.close()


def test_the_settings_may_stand_under_the_producer_and_as_in_java(secured: Secured) -> None:
    login = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" '
        f'password="{PASSWORD}";'
    )
    values = {key.replace(".consumer.", ".producer."): value for key, value in secured.config().items()}
    values = {key: value for key, value in values.items() if ".sasl.plain." not in key}
    systems, stream = Systems(Config({**values, "systems.k.producer.sasl.jaas.config": login})), new_stream()
    systems.admin("k").create(stream, 1)
    sent(systems, stream, [(0, None, b"here")])
    assert [each.message for each in all_of(systems, stream)[0]] == [b"here"]
    systems.close()


def test_scram(secured: Secured) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

    assert secured.nodes.cluster is not None
    admin = KafkaAdminClient(bootstrap_servers=secured.nodes.cluster.servers)
    try:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_256, "bob's-Secret")]
        )
    finally:
        admin.close()
    scram = {"consumer__sasl__mechanism": "SCRAM-SHA-256", "consumer__sasl__plain__username": "bob"}
    systems, stream = (
        Systems(secured.config(**scram, consumer__sasl__plain__password="bob's-Secret")),
        new_stream(),
    )
    systems.admin("k").create(stream, 1)
    sent(systems, stream, [(0, None, b"scrambled")])
    assert [each.message for each in all_of(systems, stream)[0]] == [b"scrambled"]
    systems.close()


@pytest.mark.parametrize("guarantee", ["exactly-once", *(["at-least-once"] if SOAK else [])])
def test_a_job_runs_and_shows_no_secret(secured: Secured, tmp_path: Path, guarantee: str) -> None:
    systems, source, target = Systems(secured.config()), new_stream(), new_stream()
    for stream in (source, target):
        systems.admin("k").create(stream, 1)
    sent(systems, source, [(0, None, b"%d" % number) for number in range(50)])
    job = write_job(tmp_path, secured, source, target, guarantee)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    job.write_text(job.read_text().replace(f"password={PASSWORD}", f"password=${{file:{tmp_path}/password}}"))
    ran = streambench("run", str(job), "--until", "caught-up")
    assert ran.returncode == 0, ran.stderr
    assert [each.message for each in all_of(systems, target)[0]] == [b"%d" % number for number in range(50)]
    shown = CliRunner().invoke(app, ["checkpoints", str(job)])
    assert shown.exit_code == 0, shown.output
    without_secrets(shown.output)
    without_secrets(ran.stdout + ran.stderr)
    systems.close()


WRONG = {
    "password": ({"consumer__sasl__plain__password": "wrong-Secret"}, "sasl"),
    "reference": ({"consumer__sasl__plain__password": "${env:WRONG_PASSWORD}"}, "sasl"),
    "user": ({"consumer__sasl__plain__username": "mallory"}, "sasl"),
    "mechanism": ({"consumer__sasl__mechanism": "SCRAM-SHA-512"}, "sasl"),
    "no TLS": ({"consumer__security__protocol": "SASL_PLAINTEXT"}, "security.protocol"),
    "authority": ({"consumer__ssl__cafile": ""}, "certificate"),
}


# What kafka-python leaves open where TLS fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "wrong,part",
    [
        *((each, "admin") for each in WRONG if SOAK or each != "user"),
        *(("password", each) for each in ("consumer", "producer") if SOAK),
    ],
)
def test_what_is_wrong_is_told_soon_and_without_secrets(
    secured: Secured,
    wrong: str,
    part: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WRONG_PASSWORD", "wrong-Secret")
    changes, named = WRONG[wrong]
    quick = {f"{each}__bootstrap__timeout__ms": "1500" for each in ("consumer", "producer")}
    systems = Systems(secured.config(**quick, **changes))
    began = time.monotonic()
    with pytest.raises(StreambenchError) as raised:
        use(systems, part)
    assert time.monotonic() - began < SECONDS
    assert named in str(raised.value).lower(), raised.value
    assert "systems.k." in str(raised.value)
    without_secrets(all_that_is_said(raised.value))
    without_secrets(caplog.text + "".join(capfd.readouterr()))
    systems.close()
    del raised
    gc.collect()


def use(systems: Systems, part: str) -> Any:
    if part == "admin":
        return systems.admin("k").streams()
    if part == "consumer":
        consumer = systems.consumer("k", MetricsRegistry())
        consumer.register(SystemStreamPartition("k", "any", 0), "0")
        return consumer.start()
    producer = systems.producer("k", MetricsRegistry())
    producer.register("test")
    return producer.start()


def test_nothing_that_is_shown_of_settings_holds_a_secret(secured: Secured) -> None:
    config = secured.config()
    without_secrets(
        repr(config)
        + str(config)
        + repr(Settings.from_config("k", config))
        + str(Settings.from_config("k", config))
    )


def write_job(
    directory: Path, secured: Secured, source: SystemStream, target: SystemStream, guarantee: str
) -> Path:
    (directory / "copy_task.py").write_text(
        "import streambench as sb\n\n\n"
        "def process(envelope, collector, coordinator):\n"
        f"    collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream('k', {target.stream!r}), "
        "envelope.message))\n"
    )
    values = {
        **secured.config(),
        "job.name": f"secured-{uuid.uuid4().hex[:8]}",
        "task.class": "copy_task.py:process",
        "task.inputs": source,
        "task.processing.guarantee": guarantee,
    }
    path = directory / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def streambench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streambench", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
