"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import tests.left_out  # noqa: F401
from streambench import redaction
from streambench.config import Config
from streambench.errors import StreambenchError
from tests import kafka_archive
from tests.order import Scheduling, is_needed_again, rank, share_a_session, share_imports
from tests.progress import progress, pytest_timeout_set_timer  # noqa: F401 (a fixture and a hook)
from tests.quick import (  # noqa: F401 (an option and hooks)
    forbid_when_quick,
    pytest_addoption,
    pytest_ignore_collect,
    pytest_sessionstart,
    select_quick,
)
from tests.reaper import (  # noqa: F401 (hooks)
    pytest_configure,
    pytest_keyboard_interrupt,
    pytest_testnodeready,
    pytest_unconfigure,
)
from tests.spark import archive
from tests.surroundings import CI, SOAK, demand_packages, keep_temporary_files_in_memory, missing

if TYPE_CHECKING:
    from streambench.spark.session_handle import SessionHandle
    from streambench.testing.brokers.kafka import Adjust, KafkaNodes
    from streambench.testing.brokers.rabbitmq import RabbitServer

# A shell starts what it puts into the background deaf to Ctrl-C; the tests of Ctrl-C, and the processes they
# start, must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

keep_temporary_files_in_memory()
demand_packages()
kafka_archive.use()

# For each pytest that a test starts: to import this plug-in takes two seconds of CPU.
os.environ["PYTEST_ADDOPTS"] = f"{os.environ.get('PYTEST_ADDOPTS', '')} -p no:nbval".strip()

# For each process that a test starts: numpy begins a thread per core, which takes 6 % of a short command.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

CHECKOUT = Path(__file__).resolve().parent.parent

# No deadline: how long one example takes says nothing on a machine that does other things at the same time.
settings.register_profile(
    "default", max_examples=15, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("default"), max_examples=5_000)
settings.register_profile("quick", settings.get_profile("default"), max_examples=10)
settings.load_profile("soak" if SOAK else "default")


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's configuration calls a secret may be a plain word in the next."""
    monkeypatch.setattr(redaction, "_known", set())
    monkeypatch.setattr(redaction, "_pattern", None)


@pytest.fixture
def one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history never begins another block, as it does from time to time."""
    monkeypatch.setattr("streambench.debug.history.block_log._SHORTEST_NS", 1 << 62)


@pytest.fixture(scope="session")
def real_streams() -> Path:
    """The folder of real streams: flights, airports, weather, a web log. Its README names sources and
    licences."""
    return CHECKOUT / "tests" / "data" / "streams"


@pytest.fixture(scope="session")
def spark_installed() -> None:
    """Everything that a test with a real Spark needs."""
    forbid_when_quick("Spark")
    for needed in ("pyspark", "pandas", "grpc"):
        if find_spec(needed) is None:
            missing(f"pyspark[connect] with pandas ({needed})", remedy="make setup")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        missing("Java 17 or newer", remedy="apt-get install openjdk-17-jre-headless, or set JAVA_HOME")
    archive.await_made()


_kept_sessions: list[SessionHandle] = []

#: The brokers of this worker that run, by their fixtures.
_running: dict[str, Any] = {}


@pytest.fixture(scope="session")
def kept_sessions(spark_installed: None) -> list[SessionHandle]:
    """The Spark session of the modules that this worker is at, while there is one."""
    return _kept_sessions


@pytest.fixture(scope="module")
def spark(kept_sessions: list[SessionHandle]) -> Any:
    """A session on two threads for the tests of one module, and of the next one if its first test asks for
    it, or if both share a session (tests/order.py): a start takes ten seconds of CPU."""
    from streambench.spark.session import session_for

    if not kept_sessions:
        kept_sessions.append(session_for(None, "local[2]", Config()))
    return kept_sessions[0].spark


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Stop the Spark session and the brokers behind the last test that is to have them."""
    yield
    for name in [each for each in _running if not is_needed_again(each, item, nextitem)]:
        _running.pop(name).stop()
    goes_on = nextitem is not None and (
        nextitem.path == item.path
        or "kept_sessions" in getattr(nextitem, "fixturenames", ())
        or share_a_session(item, nextitem)
    )
    if _kept_sessions and not goes_on:
        _kept_sessions.pop().close()


def pytest_sessionfinish() -> None:
    """Stop what an end before the last test has left running."""
    while _running:
        _running.popitem()[1].stop()


KAFKA_DOORS = 6

#: Those of the Kafka that runs.
_doors: list[tuple[int, int]] = []


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> KafkaNodes:
    """A real Kafka of one node. It runs on for the next module where that needs it."""
    if "kafka" not in _running:
        nodes = kafka_nodes(tmp_path_factory.mktemp("kafka"), _add_doors)
        _choose_doors()
        nodes.start(1, 0)
        _running["kafka"] = nodes
    return _running["kafka"]


@pytest.fixture(scope="module")
def kafka_doors(kafka: KafkaNodes) -> list[tuple[int, int]]:
    """Further ways to the Kafka of the tests, each as two ports: one that it listens on, and one that it
    sends those to who come there, on which somebody may stand between them and it."""
    return _doors


def _choose_doors() -> None:
    from streambench.testing.brokers.kafka import free_ports

    ports = free_ports(2 * KAFKA_DOORS + 2, set())[2:]  # the node takes the first two
    _doors[:] = zip(ports[:KAFKA_DOORS], ports[KAFKA_DOORS:], strict=True)


def _add_doors(number: int, settings: dict[str, object]) -> None:
    if not SOAK:  # only there it is killed: elsewhere it need not say four times a second that it lives
        settings["broker.heartbeat.interval.ms"] = 1_000
        settings["broker.session.timeout.ms"] = 6_000
        settings["metadata.max.idle.interval.ms"] = 0
    protocols = "listener.security.protocol.map"
    for at, (inside, outside) in enumerate(_doors):
        settings["listeners"] = f"{settings['listeners']},DOOR{at}://127.0.0.1:{inside}"
        settings["advertised.listeners"] = (
            f"{settings['advertised.listeners']},DOOR{at}://127.0.0.1:{outside}"
        )
        settings[protocols] = f"{settings[protocols]},DOOR{at}:PLAINTEXT"
        settings[f"listener.name.door{at}.num.network.threads"] = 1


def kafka_here() -> None:
    """Require everything that a test with a real Kafka needs."""
    forbid_when_quick("Kafka")
    if find_spec("kafka") is None:
        missing("kafka-python", remedy="make setup")
    from streambench.testing.brokers.kafka_jars import jars, java

    try:
        java(), jars(print)
    except StreambenchError as error:
        missing(f"a Kafka to run ({error})", remedy="apt-get install openjdk-17-jre-headless maven")


def kafka_nodes(directory: Path, adjust: Adjust | None = None) -> KafkaNodes:
    """A Kafka that is not started yet, if this machine can have one. ``adjust``: see KafkaNodes."""
    kafka_here()
    from streambench.testing.brokers.kafka import KafkaNodes

    return KafkaNodes(directory, owned=True, adjust=adjust)


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> RabbitServer:
    """A real RabbitMQ. It runs on for the next module where that needs it."""
    if "rabbitmq" not in _running:
        server = rabbit_server(tmp_path_factory.mktemp("rabbitmq"))
        server.start()
        _running["rabbitmq"] = server
    return _running["rabbitmq"]


def rabbitmq_here() -> None:
    """Require everything that a test with a real RabbitMQ needs."""
    forbid_when_quick("RabbitMQ")
    if find_spec("pika") is None:
        missing("pika", remedy="make setup")
    from streambench.testing.brokers.rabbitmq import find_server

    try:
        find_server()
    except StreambenchError as error:
        missing(f"a RabbitMQ to run ({error})", remedy="make rabbitmq")


def rabbit_server(directory: Path) -> RabbitServer:
    """A RabbitMQ that is not started yet, if this machine can have one."""
    rabbitmq_here()
    from streambench.testing.brokers.rabbitmq import RabbitServer

    return RabbitServer.installed(directory)


NEEDS_OF_NOTEBOOKS: dict[str, Callable[[], None]] = {"04-kafka": kafka_here, "05-messaging": rabbitmq_here}
"""What a notebook needs beyond Python packages; like ``missing``, it ends a test where that is not there."""

ON_A_CLUSTER = "08-spark.ipynb"
"""The notebook that starts a master and workers of Spark."""

IN_THE_BROWSER = ("02-choosers",)
"""Notebooks with panels that make test runs in JupyterLab; SOAK=1 runs others there as well."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests without the garbage collector, and never have it look at them again.

    A million objects come, and all of them stay: every look at them would be in vain."""
    gc.disable()
    try:
        share_imports(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the JVMs of a notebook's cluster map the archive of Spark's classes, before its kernel starts."""
    if item.path.name == ON_A_CLUSTER and find_spec("pyspark") is not None:
        from tests.spark.conftest import jvm_options

        archive.await_made()
        for kind in ("MASTER", "WORKER"):
            os.environ.setdefault(f"SPARK_{kind}_OPTS", jvm_options())


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Begin the archive where all tests run. The first ones need no Spark; most later JVMs share it."""
    if not (config.getoption("quick") or config.getoption("keyword")):
        archive.begin()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long tests come first.

    The cells of notebooks, which nbval runs, are skipped as tests are; under ``CI=true`` they fail by
    themselves."""
    select_quick(config, items)
    items.sort(key=rank)
    for name, need in NEEDS_OF_NOTEBOOKS.items():
        cells = [item for item in items if item.path.name == f"{name}.ipynb"]
        if cells and not CI:
            try:
                need()
            except pytest.skip.Exception as skipped:
                for cell in cells:
                    cell.add_marker(pytest.mark.skip(reason=str(skipped)))
