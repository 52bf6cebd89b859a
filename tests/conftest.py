"""What all tests share."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from streambench.config import Config
from streambench.errors import StreambenchError
from tests.order import Scheduling, rank
from tests.surroundings import CI, SOAK, missing

if TYPE_CHECKING:
    from streambench.system.kafka.nodes import Adjust, KafkaNodes
    from streambench.testing.rabbitmq import RabbitServer

# A shell starts what it puts into the background deaf to Ctrl-C; the tests of Ctrl-C, and the processes they start, must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

CHECKOUT = Path(__file__).resolve().parent.parent

# No deadline: how long one example takes says nothing on a machine that does other things at the same time.
settings.register_profile("default", max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("default"), max_examples=5_000)
settings.load_profile("soak" if SOAK else "default")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real streams (flights, weather, a web log). It is kept beside the checkout, not in it."""
    folder = Path(os.environ.get("STREAMBENCH_SHARED_DATA") or CHECKOUT.parent / "shared" / "data")
    if not folder.is_dir():
        missing(f"the folder of real streams ({folder})", remedy="set STREAMBENCH_SHARED_DATA to where it is")
    return folder


@pytest.fixture(scope="session")
def spark_installed() -> None:
    """What every test with a real Spark needs."""
    for needed in ("pyspark", "pandas", "grpc"):
        if find_spec(needed) is None:
            missing(f"pyspark[connect] with pandas ({needed})", remedy="make setup")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        missing("Java 17 or newer", remedy="apt-get install openjdk-17-jre-headless, or set JAVA_HOME")


@pytest.fixture(scope="module")
def spark(spark_installed: None) -> Iterator[Any]:
    """A session on two threads for the tests of one module."""
    yield from session_on_two_threads()


def session_on_two_threads() -> Iterator[Any]:
    from streambench.spark.session import lease

    leased = lease(None, "local[2]", Config())
    yield leased.spark
    leased.close()


KAFKA_DOORS = 6


@pytest.fixture(scope="session")
def kafka_doors() -> list[tuple[int, int]]:
    """Further ways to the Kafka of the tests, each as two ports: one that it listens on, and one that it sends those to who come there, on
    which somebody may stand between them and it."""
    kafka_here()
    from streambench.system.kafka.nodes import free_ports

    ports = free_ports(2 * KAFKA_DOORS + 2, set())[2:]  # the node takes the first two
    return list(zip(ports[:KAFKA_DOORS], ports[KAFKA_DOORS:], strict=True))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_doors: list[tuple[int, int]]) -> Iterator[KafkaNodes]:
    """A real Kafka of one node. It ends with the session, however that ends."""

    def add_doors(number: int, settings: dict[str, object]) -> None:
        protocols = "listener.security.protocol.map"
        for at, (inside, outside) in enumerate(kafka_doors):
            settings["listeners"] = f"{settings['listeners']},DOOR{at}://127.0.0.1:{inside}"
            settings["advertised.listeners"] = f"{settings['advertised.listeners']},DOOR{at}://127.0.0.1:{outside}"
            settings[protocols] = f"{settings[protocols]},DOOR{at}:PLAINTEXT"
            settings[f"listener.name.door{at}.num.network.threads"] = 1

    nodes = kafka_nodes(tmp_path_factory.mktemp("kafka"), add_doors)
    nodes.start(1, 0)
    yield nodes
    nodes.stop()


def kafka_here() -> None:
    """What every test with a real Kafka needs."""
    if find_spec("kafka") is None:
        missing("kafka-python", remedy="make setup")
    from streambench.system.kafka.jars import jars, java

    try:
        java(), jars(print)
    except StreambenchError as error:
        missing(f"a Kafka to run ({error})", remedy="apt-get install openjdk-17-jre-headless maven")


def kafka_nodes(directory: Path, adjust: Adjust | None = None) -> KafkaNodes:
    """A Kafka that is not started yet, if this machine can have one. ``adjust``: see KafkaNodes."""
    kafka_here()
    from streambench.system.kafka.nodes import KafkaNodes

    return KafkaNodes(directory, owned=True, adjust=adjust)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A real RabbitMQ. It ends with the session, however that ends."""
    server = rabbit_server(tmp_path_factory.mktemp("rabbitmq"))
    server.start()
    yield server
    server.stop()


def rabbitmq_here() -> None:
    """What every test with a real RabbitMQ needs."""
    if find_spec("pika") is None:
        missing("pika", remedy="make setup")
    from streambench.testing.rabbitmq import find_server

    try:
        find_server()
    except StreambenchError as error:
        missing(f"a RabbitMQ to run ({error})", remedy="make rabbitmq")


def rabbit_server(directory: Path) -> RabbitServer:
    """A RabbitMQ that is not started yet, if this machine can have one."""
    rabbitmq_here()
    from streambench.testing.rabbitmq import RabbitServer

    return RabbitServer.installed(directory)


NEEDS_OF_NOTEBOOKS: dict[str, Callable[[], None]] = {"04-kafka": kafka_here, "05-messaging": rabbitmq_here}
"""What a notebook needs beyond Python packages; like ``missing``, it ends a test where that is not there."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests come first.

    The cells of notebooks, which nbval runs, are skipped as tests are; under ``CI=true`` they fail by themselves."""
    items.sort(key=rank)
    for name, need in NEEDS_OF_NOTEBOOKS.items():
        cells = [item for item in items if item.path.name == f"{name}.ipynb"]
        if cells and not CI:
            try:
                need()
            except pytest.skip.Exception as skipped:
                for cell in cells:
                    cell.add_marker(pytest.mark.skip(reason=str(skipped)))
