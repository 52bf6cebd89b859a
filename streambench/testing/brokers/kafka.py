"""A Kafka cluster of one's own: one or three nodes on this machine, for trying things out and for tests.

The nodes listen on 127.0.0.1 only and run in KRaft mode, each as controller and broker. Everything is in one
directory: ``cluster.json`` (what the cluster is), and per node its data, its properties, its log
(``kafka.log``) and its process id (``pid``). Ports stay as they are over restarts, so that clients find a
node again. It is set up to be small, and to start, fail over and compact within seconds. Nothing here is
meant for data that must survive the loss of a disk. ``KAFKA_OPTS`` in the environment has further options of
the nodes' JVMs, as with Kafka's own scripts.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import javaproperties
import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

from streambench.errors import StreambenchError
from streambench.testing.brokers.kafka_jars import Report, jars, java
from streambench.testing.owned import dying_with_parent

_HOST = "127.0.0.1"
_READY_S = 120.0
_GRACE_S = 15.0
_QUORUM_GRACE_S = 3.0
# Below those that the system hands out by itself: a node that is down keeps its port.
_PORTS = range(20_000, 32_000)

_LOGGING = """status=warn
rootLogger.level=info
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""

Adjust = Callable[[int, dict[str, object]], None]


class Cluster(Struct, frozen=True):
    """The description of a cluster in its directory."""

    id: str
    ports: list[int]
    controllers: list[int]

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return ",".join(f"{_HOST}:{port}" for port in self.ports)


class KafkaNodes:
    """The nodes of the cluster in ``directory``, numbered from 1.

    ``owned``: they die with the thread that starts them, however it ends (on Linux): for tests. Otherwise
    they run on by themselves until they are stopped. ``adjust`` is given the number of a node and its
    settings, and may change these (another listener, say).
    """

    def __init__(
        self,
        directory: Path,
        *,
        report: Report | None = None,
        owned: bool = False,
        adjust: Adjust | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self._report: Report = report or (lambda text: None)
        self._owned = owned
        self._adjust = adjust
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def cluster(self) -> Cluster | None:
        """The description in the directory; None where no cluster was ever started there.

        Raises StreambenchError
        where it cannot be read."""
        path = self.directory / "cluster.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Cluster)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, OSError) as error:
            raise StreambenchError(
                f"{path} cannot be read: {error}; delete {self.directory} to begin again"
            ) from error

    def running(self) -> dict[int, int]:
        """The nodes whose processes are alive, with their process ids."""
        cluster = self.cluster
        numbers = range(1, len(cluster.ports) + 1) if cluster is not None else ()
        return {number: pid for number in numbers if (pid := self._pid(number)) is not None}

    def start(self, nodes: int | None = None, port: int | None = None) -> Cluster:
        """Start what does not run yet, and return when all of it is ready. ``nodes``: 1 or 3; ``port``: that
        of the first node, 0 for any.

        None: as before, else one node on 9092. Raises StreambenchError; nothing runs then that did not run
        before."""
        if nodes not in (None, 1, 3):
            raise StreambenchError(
                f"a cluster of {nodes} nodes: there are those of 1 and of 3 (two are no safer than one)"
            )
        made = self._make_directory()
        with self._locked(), self._nothing_left_of(made):
            here = self.running()
            cluster = self._planned(nodes, port, here)
            number = len(cluster.ports)
            started = [each for each in range(1, number + 1) if each not in here]
            try:
                if started:
                    program, libs = java(), jars(self._report)
                    self._check_ports(cluster, here)
                    self._save(cluster)
                    self._report(f"starting {number} node{'s' * (number > 1)} of Kafka in {self.directory}")
                    for each in started:
                        self._start(each, cluster, program, libs)
                self._wait_until_ready(cluster)
            except BaseException:
                for each in started:
                    self.kill(each)
                raise
            return cluster

    def start_node(self, number: int) -> None:
        """Start one node again, and do not wait for it."""
        cluster = self.cluster
        assert cluster is not None
        self._start(number, cluster, java(), jars(self._report))

    def stop(self) -> list[int]:
        """Stop all nodes cleanly, those that take too long by force; which ones ran. Where none does, nothing
        happens."""
        if self.cluster is None:
            return []
        with self._locked():
            running = self.running()
            for pid in running.values():
                _signal(pid, signal.SIGTERM)
            # The last of three waits in vain for the other two.
            grace = _GRACE_S if len(running) == 1 else _QUORUM_GRACE_S
            end = time.monotonic() + grace
            for number, pid in running.items():
                if not self._wait_gone(number, pid, end - time.monotonic()):
                    self.kill(number)
                (self._node(number) / "pid").unlink(missing_ok=True)
            return list(running)

    def kill(self, number: int) -> None:
        """Kill a node at once, as a crash would."""
        pid = self._pid(number)
        if pid is not None:
            _signal(pid, signal.SIGKILL)
            self._wait_gone(number, pid, _GRACE_S)
        (self._node(number) / "pid").unlink(missing_ok=True)

    def log(self, number: int) -> Path:
        """The log file of a node."""
        return self._node(number) / "kafka.log"

    def _node(self, number: int) -> Path:
        return self.directory / f"node{number}"

    def _make_directory(self) -> list[Path]:
        """Make the directory; which ones that made, the innermost first."""
        missing = [each for each in (self.directory, *self.directory.parents) if not each.exists()]
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StreambenchError(f"cannot make {self.directory}: {error.strerror}") from error
        return missing

    @contextlib.contextmanager
    def _nothing_left_of(self, made: list[Path]) -> Iterator[None]:
        """Remove directories that were made for a cluster which was not, after all."""
        try:
            yield
        except BaseException:
            if made and self.cluster is None:
                (self.directory / ".lock").unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # another process has put something there
                    for each in made:
                        each.rmdir()
            raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self.directory / ".lock", timeout=_READY_S)
        try:
            lock.acquire()
        except Timeout as error:
            raise StreambenchError(
                f"another process is starting or stopping the cluster in {self.directory}; try again"
            ) from error
        except OSError as error:
            raise StreambenchError(f"cannot write to {self.directory}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()

    def _planned(self, nodes: int | None, port: int | None, here: dict[int, int]) -> Cluster:
        cluster = self.cluster
        if cluster is None:
            number = nodes or 1
            first = 9092 if port is None else port
            controllers = free_ports(number, set())
            ports = list(range(first, first + number)) if first else free_ports(number, set(controllers))
            return Cluster(
                "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22], ports, controllers
            )
        if nodes is not None and nodes != len(cluster.ports):
            raise StreambenchError(
                f"{self.directory} holds a cluster of {len(cluster.ports)}, not of {nodes}; give another "
                "--dir, or delete this one"
            )
        if port and port != cluster.ports[0]:
            if here:
                raise StreambenchError(
                    f"the cluster in {self.directory} runs on port {cluster.ports[0]}; stop it first to "
                    f"have it on {port}"
                )
            return Cluster(cluster.id, list(range(port, port + len(cluster.ports))), cluster.controllers)
        return cluster

    def _check_ports(self, cluster: Cluster, here: dict[int, int]) -> None:
        for number, (port, controller) in enumerate(zip(cluster.ports, cluster.controllers, strict=True), 1):
            if number not in here:
                for each in (port, controller):
                    if not 0 < each < 65536 or not _is_free(each):
                        hint = f"stop that program, or delete {self.directory} to begin again"
                        if each == port:
                            hint = "choose another with --port"
                        raise StreambenchError(
                            f"port {each} cannot be had on {_HOST} (another program may have it); {hint}"
                        )

    def _save(self, cluster: Cluster) -> None:
        path = self.directory / "cluster.json"
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(cluster)))
        new.replace(path)

    def _start(self, number: int, cluster: Cluster, program: str, libs: Path) -> None:
        node = self._node(number)
        (node / "data").mkdir(parents=True, exist_ok=True)
        properties = _properties(cluster, number)
        if self._adjust is not None:
            self._adjust(number, properties)
        settings = javaproperties.dumps({key: str(each) for key, each in properties.items()}, timestamp=None)
        (node / "server.properties").write_text(settings, encoding="ascii")
        (node / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        identity = node / "data" / "meta.properties"
        if not identity.exists():
            # What Kafka's own tool for formatting would write, without a second Java for it. Kafka adds to
            # it, and needs that again.
            identity.write_text(f"version=1\ncluster.id={cluster.id}\nnode.id={number}\n", encoding="utf-8")
        command = [
            program,
            "-Xms64m",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            *os.environ.get("KAFKA_OPTS", "").split(),
            "-Djava.awt.headless=true",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dkafka.logs.dir={node}",
            "-Dlog4j2.configurationFile=log4j2.properties",
            "-cp",
            f"{libs}/*",
            "kafka.Kafka",
            str(node / "server.properties"),
        ]
        with open(self.log(number), "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=node,
                start_new_session=True,
                env=_environment(),
                preexec_fn=dying_with_parent() if self._owned else None,
            )
        self._children[number] = process
        (node / "pid").write_text(f"{process.pid}\n", encoding="utf-8")

    def _pid(self, number: int) -> int | None:
        """The process of a node, if it is alive, and is that of this node and not another that has got its
        number since."""
        child = self._children.get(number)
        if child is not None:
            return child.pid if child.poll() is None else None
        try:
            pid = int((self._node(number) / "pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if str(self._node(number) / "server.properties") in _command(pid) else None

    def _wait_gone(self, number: int, pid: int, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self._pid(number) == pid:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _wait_until_ready(self, cluster: Cluster) -> None:
        end = time.monotonic() + _READY_S
        lasting: object = "no answer"
        while time.monotonic() < end:
            for number in range(1, len(cluster.ports) + 1):
                if self._pid(number) is None:
                    raise StreambenchError(
                        f"node {number} of Kafka has ended; {self.log(number)} says: "
                        f"{_last_words(self.log(number))}"
                    )
            try:
                for port in cluster.ports:  # costs less than a client
                    socket.create_connection((_HOST, port), 1).close()
                _try(cluster)
                return
            except StreambenchError:
                raise
            except Exception as error:
                lasting = error
            time.sleep(0.1)
        raise StreambenchError(
            f"Kafka was not ready within {_READY_S:.0f} seconds ({lasting}); its logs are {self.log(1)} and "
            "so on"
        )


def _properties(cluster: Cluster, number: int) -> dict[str, object]:
    nodes = len(cluster.ports)
    several = nodes > 1
    copies, in_step = min(3, nodes), 2 if several else 1
    port, controller = cluster.ports[number - 1], cluster.controllers[number - 1]
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": ",".join(
            f"{each}@{_HOST}:{there}" for each, there in enumerate(cluster.controllers, 1)
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": f"PLAINTEXT://{_HOST}:{port},CONTROLLER://{_HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{_HOST}:{port}",
        # In the node's directory, whose own name may have commas, which part directories here.
        "log.dirs": "data",
        # A broker that was killed is let in again only when its old session has expired: 12 seconds by
        # default.
        "broker.heartbeat.interval.ms": 500 if several else 250,
        "broker.session.timeout.ms": 3000 if several else 1500,
        "auto.create.topics.enable": "false",
        "num.partitions": 1,
        "default.replication.factor": copies,
        "min.insync.replicas": in_step,
        "group.initial.rebalance.delay.ms": 0,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.segment.bytes": 16 << 20,
        "log.index.size.max.bytes": 1 << 20,
        "log.cleaner.backoff.ms": 200,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "log.cleaner.io.buffer.size": 256 << 10,
        # By default what is older than a week is deleted, by its own timestamp: examples with messages of
        # years ago would lose them.
        "log.retention.ms": -1,
        "log.retention.check.interval.ms": 500,
        "file.delete.delay.ms": 100,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    for internal in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{internal}.num.partitions"] = 1
        settings[f"{internal}.replication.factor"] = copies
        if internal != "offsets.topic":
            settings[f"{internal}.min.isr"] = in_step
    if several:
        settings["replica.lag.time.max.ms"] = 3000
        settings["controller.quorum.election.timeout.ms"] = 500
        settings["controller.quorum.fetch.timeout.ms"] = 1000
    return settings


def _try(cluster: Cluster) -> None:
    """Raise unless all nodes are there and transactions can be had, which takes longest to come up."""
    from kafka import KafkaAdminClient, KafkaProducer

    servers = cluster.servers.split(",")
    with closing(KafkaAdminClient(bootstrap_servers=servers, bootstrap_timeout_ms=3000)) as admin:
        there = len(admin.describe_cluster()["brokers"])
    if there < len(servers):
        raise TimeoutError(f"{there} of {len(servers)} nodes are there")
    producer = KafkaProducer(
        bootstrap_servers=servers,
        transactional_id="streambench-ready",
        max_block_ms=15_000,
        bootstrap_timeout_ms=3000,
    )
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=5)


def _environment() -> dict[str, str]:
    """Java takes the names of files for what the locale says that they are."""
    return {**os.environ, "LC_ALL": "C.UTF-8"} if sys.platform.startswith("linux") else dict(os.environ)


def _command(pid: int) -> str:
    """The command line of a process; nothing where there is none."""
    proc = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        try:
            return proc.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    return subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def free_ports(number: int, taken: set[int]) -> list[int]:
    """Ports that are free now, other ones for each process that asks."""
    first = os.getpid() * 37 % len(_PORTS)
    candidates = (_PORTS[(first + at) % len(_PORTS)] for at in range(len(_PORTS)))
    free = (port for port in candidates if port not in taken and _is_free(port))
    return [next(free) for _ in range(number)]


def _last_words(log: Path) -> str:
    """The lines worth reading at the end of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
    wrong = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line]
    return " | ".join((wrong or lines)[-5:])
