"""The class data archive of Kafka: a broker that maps its classes starts with two thirds of the CPU.

A broker makes it as it ends, unless it is there already (tests/spark/archive.py). Java ignores an archive of
other jars or of another Java, so that its name needs no key.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from streambench.errors import StreambenchError
from streambench.testing.brokers.kafka import KafkaNodes

OPTIONS = "KAFKA_OPTS"
PATIENCE_S = 120

_FILE = Path(__file__).resolve().parent.parent / ".tools" / "kafka.jsa"
_SILENT = "-Xlog:disable"
_BY_ITSELF = 128 + signal.SIGTERM
"""The exit code of a JVM that has ended in order after this signal."""


def use() -> None:
    """Have all brokers map the archive that this process, or one that it starts, will start."""
    if _FILE.exists():
        os.environ.setdefault(OPTIONS, f"-XX:SharedArchiveFile={_FILE} {_SILENT}")


def make() -> None:
    """Have a broker write the archive, where this machine can run one and there is none."""
    if _FILE.exists() or OPTIONS in os.environ or " " in str(_FILE):
        return
    _FILE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_FILE.parent) as directory:
        written = Path(directory) / _FILE.name
        os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={written} {_SILENT}"
        # What is missing, the tests that need Kafka say. An archive that was not written whole is none.
        with suppress(StreambenchError, psutil.TimeoutExpired):
            if _used_and_ended(Path(directory) / "kafka") == _BY_ITSELF and written.exists():
                os.replace(written, _FILE)
        del os.environ[OPTIONS]


def _used_and_ended(directory: Path) -> int | None:
    """The exit code of a broker that has done what most do."""
    nodes = KafkaNodes(directory, owned=True)
    nodes.start(1, 0)
    try:
        _use(nodes)
        broker = psutil.Process(nodes.running()[1])
        broker.terminate()
        return broker.wait(PATIENCE_S)
    finally:
        nodes.stop()


def _use(nodes: KafkaNodes) -> None:
    from streambench.system.systems import Systems
    from tests.system.kafka.cluster import all_of, config, new_stream, sent

    stream, systems = new_stream(), Systems(config(nodes))
    systems.admin("k").create(stream, 1)
    sent(systems, stream, [(0, None, b"message")])
    all_of(systems, stream)
    systems.close()
