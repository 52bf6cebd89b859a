"""The Spark session of a deployment: the one that is there, the one of ``spark-submit``, or one of its own.

A session of its own is quiet, and keeps to the loopback interface where the master is on this machine. It
writes only below a temporary directory. It is gone with all its processes when the deployment is over.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import streambench
from streambench.config import Config, masked
from streambench.errors import ConfigError, MissingExtraError, StreambenchError
from streambench.spark.class_archive import ClassArchive
from streambench.spark.jvm import Jvm, required_java
from streambench.spark.shipment import installation
from streambench.temporary import TemporaryDirectory

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_MASTER = re.compile(
    r"local(\[\s*(\*|\d+)\s*(,\s*\d+\s*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s|mesos|sc)://.+"
)
_LOCAL = re.compile(r"local(\[(?P<threads>\*|\d+)(?P<failures>,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(?P<memory>\d+)\s*\]")
_LOOPBACK = re.compile(r"(spark|sc)://(localhost|127\.[\d.]+|\[::1\])(:|/|$)")

_UI = "spark.ui.enabled"
_EVENT_LOG = "spark.eventLog.enabled"
_SPECULATION = "speculation"
_SHUT_OUT = "two attempts at one container would fence each other"
_DEFAULT_MASTER = "local[*]"
_ATTEMPTS = 4
_CONNECT_PORT = 15002
_CONNECT_S = 10
_EXIT_S = 20

# Short-lived: what the second compiler would gain, it costs.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# What gives the driver's JVM options or a class path of its own.
_OWN_JVM = ("driver.extraJavaOptions", "driver.defaultJavaOptions", "driver.extraClassPath")

# WARN and below say nothing to a user who deploys a job, and ERROR is in the exception anyhow.
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class Lease:
    """A session for the time of a deployment. ``close`` stops it if it was made for it, and leaves it alone
    if it was not."""

    def __init__(self, spark: SparkSession | None, master: str) -> None:
        """``spark``: None where it is made when it is asked for."""
        self._spark = spark
        self.master = master

    @property
    def spark(self) -> SparkSession:
        """The session itself."""
        assert self._spark is not None
        return self._spark

    @property
    def context(self) -> SparkContext | None:
        """The session's SparkContext; None where its driver is another process."""
        return None if is_connect(self.spark) else self.spark.sparkContext

    @property
    def keeps_logs(self) -> bool:
        """True where what tasks print is shown, or still there when the session has ended."""
        return True

    @property
    def shows_metrics(self) -> bool:
        """True where the metrics of tasks can be looked at: it has a UI, or writes an event log."""
        if self.context is None:
            has_ui, writes = (_setting(self.spark, key) for key in (_UI, _EVENT_LOG))
            return has_ui != "false" or writes == "true"
        return self.context.uiWebUrl is not None or self.context.getConf().get(_EVENT_LOG) == "true"

    def host(self) -> str:
        """The address at which the executors reach this process; the loopback one where nothing better can be
        found out."""
        if is_connect(self.spark):
            # The executors are near the server, or reach this machine by the same way.
            return _address_towards(str(getattr(self.spark.client, "host", "")))
        if self.master.startswith("local"):
            return "127.0.0.1"
        return _setting(self.spark, "spark.driver.host") or "127.0.0.1"

    def close(self, *, quickly: bool = False) -> None:
        """Release the session; may be called more than once. ``quickly``: only what has to be done."""


def check_master(master: str | None) -> None:
    """Raise ConfigError for what is no address of a Spark, whether or not there is anything to do for it."""
    if master is not None and not _MASTER.fullmatch(master):
        raise ConfigError(
            f"'{masked('master', master)}' is not a Spark master: give local[4] or local[*], "
            "spark://HOST:7077, yarn, "
            "k8s://https://HOST:PORT or sc://HOST"
        )


def lease(spark: SparkSession | None, master: str | None, config: Config) -> Lease:
    """The given session, else the active one, else that of ``spark-submit``, else a new one.

    The new one is on ``master``, ``SPARK_REMOTE`` or the configuration's ``spark.master`` (``local[*]`` if
    none is given).

    Raises MissingExtraError, and StreambenchError where Spark does not start or another session is there than
    ``master`` names."""
    require()
    if spark is None:
        spark = active_session()
        if spark is not None:
            _check_same(master, _master(spark), f"there is an active Spark session on {_master(spark)}")
    if spark is None and _is_submitted():
        spark = _submitted(master, config)
    if spark is not None:
        _refuse_speculation(spark, "the session")
        return Lease(spark, _master(spark))
    master = master or chosen_master(config)
    if master.startswith("sc://"):
        leased = _ConnectLease(master)
        try:
            _refuse_speculation(leased.spark, "the Spark Connect server")
        except BaseException:
            leased.close()
            raise
        return leased
    return _OwnLease(master, config)


def open_session(master: str | None = None, config: Config | Mapping[str, Any] | None = None) -> SparkSession:
    """A quiet session for a notebook or a program, on ``master`` (as ``deploy`` chooses it if none is given).

    Deployments and DataFrames then use it as the active one.

    It ends with this process, or with ``stop()``; what it has written to temporary files goes with the
    process. ``config``: a job's, whose keys under ``spark.`` it takes. Raises what ``lease`` raises."""
    leased = lease(None, master, Config.of(config or {}))
    atexit.register(leased.close, quickly=True)  # Jupyter kills a kernel that takes long to end
    return leased.spark


def check_settings(config: Config) -> None:
    """Raise ConfigError for settings of the configuration under ``spark.`` that a deployment cannot live
    with."""
    if config.below("spark.").get(_SPECULATION, "").strip().lower() == "true":
        raise config.error(f"spark.{_SPECULATION}", f"is true: {_SHUT_OUT}; leave it out")


def _refuse_speculation(spark: SparkSession, which: str) -> None:
    if _setting(spark, f"spark.{_SPECULATION}").strip().lower() == "true":
        raise ConfigError(
            f"spark.{_SPECULATION} is true: {_SHUT_OUT}; start {which} without it",
            key=f"spark.{_SPECULATION}",
        )


def likely_master(config: Config) -> str:
    """The master that a deployment uses if it names none; for displays, before anything is started."""
    active = active_session()
    if active is not None:
        return _master(active)
    return "the master of spark-submit" if _is_submitted() else chosen_master(config)


def chosen_master(config: Config) -> str:
    """The master of a session that a deployment starts by itself and for which none is named."""
    given = config.below("spark.").get("master")
    master = os.environ.get("SPARK_REMOTE") or given or _DEFAULT_MASTER
    check_master(master)
    return master


def is_connect(spark: SparkSession) -> bool:
    """True where a session is a Spark Connect client, whose driver is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require() -> None:
    """Raise MissingExtraError unless everything that DataFrame.mapInArrow needs is installed."""
    if find_spec("pyspark") is None or find_spec("pandas") is None:
        raise MissingExtraError("deploying on Spark", "spark")


def active_session() -> SparkSession | None:
    """The active session of this process; None where it has none."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        pass
    # A context alone is that of another deployment: a process can have only one.
    classic = sys.modules.get("pyspark.core.context")
    context = None if classic is None else classic.SparkContext._active_spark_context
    return None if context is None or context._jsc is None else SparkSession(context)


def _is_submitted() -> bool:
    """True where ``spark-submit`` has started this program, and its JVM waits for a session."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted(master: str | None, config: Config) -> SparkSession:
    """The session of ``spark-submit``, which ends with the program: a JVM that has stopped one starts no
    other on some masters. It takes the keys of the configuration under ``spark.`` that were not submitted."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    conf = SparkConf()
    submitted = conf.get("spark.master", "") or ""
    if submitted:
        _check_same(master, submitted, f"spark-submit has started this program on {submitted}")
    else:
        conf.set("spark.master", _with_attempts(master or chosen_master(config)))
    for key, value in config.below("spark.").items():
        if not conf.contains(f"spark.{key}"):
            conf.set(f"spark.{key}", value)
    with _signals_untouched():
        return SparkSession.builder.config(conf=conf).getOrCreate()


def _check_same(master: str | None, present: str, there: str) -> None:
    if master is not None and _with_attempts(master) != _with_attempts(present):
        raise StreambenchError(
            f"{there}, and this process can have only one: stop it (spark.stop()), or name no master"
        )


def _master(spark: SparkSession) -> str:
    return _setting(spark, "spark.master")


def _setting(spark: SparkSession, key: str) -> str:
    """A setting of a session; empty where it has none, or does not show it."""
    try:
        return spark.conf.get(key, "") or ""
    except Exception as error:
        log.debug("no %s: %s", key, error)
        return ""


def _address_towards(host: str) -> str:
    """The address of this machine on the way to another one; the loopback one where there is no way."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, _CONNECT_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as way:
            way.connect(place)  # sends nothing
            return str(way.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _with_attempts(master: str) -> str:
    """A local master that starts a task again when its Python process dies, as all others do by
    themselves."""
    match = _LOCAL.fullmatch(master)
    if match is None or match["failures"]:
        return master
    return f"local[{match['threads'] or 1},{_ATTEMPTS}]"


class _ConnectLease(Lease):
    """A Spark Connect client."""

    def __init__(self, url: str) -> None:
        if find_spec("grpc") is None:
            raise MissingExtraError(f"deploying on {url}", "spark")
        from pyspark.sql.connect.session import SparkSession

        place = urlsplit(url)
        shown = f"sc://{place.hostname}:{place.port or _CONNECT_PORT}"  # what follows may hold a token
        try:
            # The client itself would go on trying for minutes.
            socket.create_connection((place.hostname or "", place.port or _CONNECT_PORT), _CONNECT_S).close()
            spark: Any = SparkSession.builder.remote(url).create()
        except Exception as error:
            raise StreambenchError(f"cannot reach Spark Connect at {shown}: {_first_line(error)}") from error
        super().__init__(spark, shown)

    def close(self, *, quickly: bool = False) -> None:
        self.spark.stop()


class _OwnLease(Lease):
    """A classic session with a JVM of its own."""

    def __init__(self, master: str, config: Config) -> None:
        from pyspark import SparkConf, SparkContext

        java = required_java()
        self._temporary = TemporaryDirectory("streambench-spark-")
        self._directory = self._temporary.path
        self._former = SparkContext._gateway, SparkContext._jvm
        self._jvm = Jvm()
        self._archive: ClassArchive | None = None
        self._gateway: Any = None
        self._context: SparkContext | None = None
        try:
            self._archive = _class_archive(java, master, config, self._directory)
            # A SparkConf would be kept in the JVM of the session before, which has ended or knows nothing of
            # this one.
            SparkContext._gateway = SparkContext._jvm = None
            conf = SparkConf().setAll(list(self._settings(master, config).items()))
            output = self._directory / "spark.log"
            with _environment(self._variables(master)), output.open("wb") as stream, _signals_untouched():
                self._gateway = self._jvm.launch(conf, stream)
                self._context = SparkContext(conf=conf, gateway=self._gateway)
        except BaseException as error:
            # An exception of the JVM has no text any more when that has ended.
            raised = _raised_in_jvm(error)
            said = raised or f"{_first_line(error)}{self._last_words()}"
            self._release()
            if isinstance(error, Exception):
                raise StreambenchError(
                    f"Spark does not start on {masked('master', master)}: {said}"
                ) from (None if raised else error)
            raise
        super().__init__(None, master)

    @property
    def spark(self) -> SparkSession:
        """The session itself. The JVM needs seconds for it, and containers do without."""
        if self._spark is None:
            from pyspark.sql import SparkSession

            assert self._context is not None
            self._spark = SparkSession(self._context)
        return self._spark

    @property
    def context(self) -> SparkContext | None:
        return self._context

    def host(self) -> str:
        if self.master.startswith("local") or self._context is None:
            return "127.0.0.1"
        return self._context.getConf().get("spark.driver.host") or "127.0.0.1"

    @property
    def keeps_logs(self) -> bool:
        return not any(kind.fullmatch(self.master) for kind in (_LOCAL, _LOCAL_CLUSTER))

    def close(self, *, quickly: bool = False) -> None:
        if self._directory.exists():
            try:
                if self._spark is not None:
                    self._spark.stop()
            except Exception as error:
                log.debug(
                    "while stopping the session: %s", error
                )  # a JVM that has died by itself: what led here says more
            finally:
                self._release(keeps_archive=not quickly)

    def _settings(self, master: str, config: Config) -> dict[str, str]:
        """Spark's configuration: ours, then what the job's says under ``spark.``."""
        logging_file = self._directory / "log4j2.properties"
        logging_file.write_text(_LOG4J)
        settings = {
            "spark.master": _with_attempts(master),
            "spark.app.name": "streambench",
            _UI: "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.speculation": "false",
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
            "spark.python.worker.faulthandler.enabled": "true",
            "spark.python.task.killTimeout": "100ms",
            "spark.python.daemon.module": "streambench.spark.daemon",
        }
        logging_option = f"-Dlog4j2.configurationFile={logging_file.as_uri()}"
        if _is_here(master):
            archived = self._archive.options if self._archive else ""
            mapped = self._archive.executor_options if self._archive else ""
            settings |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.local.dir": str(self._directory),
                "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {archived} {logging_option}",
                "spark.executor.extraJavaOptions": f"{_JAVA_OPTIONS} {mapped} {logging_option}",
                "spark.executorEnv.PYTHONPATH": os.pathsep.join(_import_path()),
            }
        else:
            settings["spark.driver.extraJavaOptions"] = logging_option
        cluster = _LOCAL_CLUSTER.fullmatch(master)
        if cluster and int(cluster["memory"]) < 1024:
            settings["spark.executor.memory"] = (
                f"{cluster['memory']}m"  # an executor that is larger than its worker would never start
            )
        given = {f"spark.{key}": value for key, value in config.below("spark.").items() if key != "master"}
        return settings | given

    def _variables(self, master: str) -> dict[str, str]:
        """Environment variables for the JVM."""
        variables = {
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
            "PYSPARK_PIN_THREAD": "true",
        }
        if _is_here(master):
            variables |= {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LAUNCHER_OPTS": _JAVA_OPTIONS,
                "PYSPARK_PYTHON": sys.executable,
            }
        if _LOCAL_CLUSTER.fullmatch(master):
            variables["SPARK_HOME"] = str(self._overlay())
        return variables

    def _overlay(self) -> Path:
        """A SPARK_HOME of links: the executors of a local cluster write into it, and it must not be the
        Python installation."""
        from pyspark.find_spark_home import _find_spark_home

        home = self._directory / "home"
        home.mkdir()
        for part in ("bin", "sbin", "jars", "python", "data"):
            real = Path(_find_spark_home(), part)
            if real.exists():
                (home / part).symlink_to(real)
        return home

    def _last_words(self) -> str:
        """Last output of the JVM, for an error."""
        try:
            lines = (self._directory / "spark.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        shown = [line for line in lines if not line.startswith("WARNING: Using incubator modules")][-10:]
        return "".join(f"; {line.strip()}" for line in shown)

    def _release(self, *, keeps_archive: bool = False) -> None:
        """End the JVM, which ends what it started, and put everything back as it was."""
        from pyspark import SparkContext

        # Where the JVM has died, the first attempt fails, and the second one forgets the context.
        for _ in range(2):
            try:
                if self._context is not None:
                    self._context.stop()
            except Exception as error:
                log.debug("while stopping Spark: %s", error)
        try:
            if self._gateway is not None:
                self._gateway.shutdown()
        except Exception as error:
            log.debug("while closing the way to the JVM: %s", error)
        try:
            if self._archive is None or not self._archive.is_in_the_making:
                self._jvm.end(_EXIT_S)
            elif keeps_archive:
                is_complete = self._wait_for_archive(self._archive.written_within_s)
                self._archive.keep(is_complete=is_complete, is_late=self._jvm.is_late)
            else:
                self._jvm.end(0)
        finally:
            if self._archive is not None:
                self._archive.close()
            SparkContext._gateway, SparkContext._jvm = self._former
            self._temporary.remove()

    def _wait_for_archive(self, seconds: float) -> bool:
        """End the JVM, which writes the archive of its classes; True where it has. Ctrl-C gives up the
        archive alone: the work of the session is done."""
        if _is_watched():
            log.warning(
                "Spark's classes are written to an archive, once, so that later sessions start sooner. This "
                "takes up to a minute; Ctrl-C skips it"
            )
        try:
            return self._jvm.end(seconds)
        except KeyboardInterrupt:
            return False


def _is_watched() -> bool:
    """True where a person waits at a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _class_archive(java: Path, master: str, config: Config, directory: Path) -> ClassArchive | None:
    """The archive for the driver's JVM; None where its class path or options are not those of this
    environment. ``directory``: the session's."""
    from pyspark.find_spark_home import _find_spark_home

    given = config.below("spark.")
    if not _is_here(master) or _LOCAL_CLUSTER.fullmatch(master) or any(key in given for key in _OWN_JVM):
        return None
    return ClassArchive(java, Path(_find_spark_home()), _JAVA_OPTIONS, directory)


def _is_here(master: str) -> bool:
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master) or _LOOPBACK.match(master))


def _import_path() -> list[str]:
    """Paths from which this process imports modules that are not part of the installation. Python workers on
    the same machine find them there, too."""
    places = [
        str(Path(streambench.__file__).parent.parent),
        *(str(Path(entry or ".").resolve()) for entry in sys.path),
    ]
    return [
        place
        for place in dict.fromkeys(places)
        if not f"{place}{os.sep}".startswith(installation()) and Path(place).is_dir()
    ]


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables that the JVM and PySpark read once, at their start. Those that PySpark sets itself stay: it
    needs them later."""
    former = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _signals_untouched() -> Iterator[None]:
    """SparkContext takes over Ctrl-C for good; a notebook would lose its own way of being interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if former is not None:
            signal.signal(signal.SIGINT, former)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _raised_in_jvm(error: BaseException) -> str:
    """The message of an exception that was raised in the JVM; empty for others. The text that Py4J gives it
    begins with a line that names only the call."""
    raised = getattr(error, "java_exception", None)
    if raised is None:
        return ""
    try:
        return _first_line(Exception(raised.getMessage() or raised.toString()))
    except Exception as unread:
        log.debug("the JVM has ended with its exception: %s", unread)
        return ""
