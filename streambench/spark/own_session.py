"""A session with a JVM of its own: quiet, and gone with all its processes when its last user closes it.

It keeps to the loopback interface where the master is on this machine, and writes only below a temporary
directory.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import streambench
from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.masking import masked
from streambench.spark.class_archive import ClassArchive
from streambench.spark.jvm import Jvm, required_java
from streambench.spark.master import is_here, is_local, is_local_cluster, with_attempts, worker_memory_mb
from streambench.spark.session_handle import UI, SessionHandle, first_line
from streambench.spark.shipment import installation
from streambench.temporary import TemporaryDirectory

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CHANGES = threading.RLock()
"""Held while a session starts or ends: PySpark keeps its gateway and its context once for the process."""

_EXIT_S = 20

# Short-lived: what the second compiler would gain, it costs. Spark goes over the rows that a batch has, and
# Arrow would check each access to a value once more.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Darrow.enable_unsafe_memory_access=true"

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


class OwnSession(SessionHandle):
    """A classic session with a JVM of its own. A process can have only one: all who use it at the same time
    share it, and the last one that closes it ends it."""

    _present: ClassVar[OwnSession | None] = None

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
            with _environment(self._variables(master)), output.open("wb") as stream, signals_untouched():
                self._gateway = self._jvm.launch(conf, stream)
                self._context = SparkContext(conf=conf, gateway=self._gateway)
        except BaseException as error:
            # An exception of the JVM has no text any more when that has ended.
            raised = _raised_in_jvm(error)
            said = raised or f"{first_line(error)}{self._last_words()}"
            self._release()
            if isinstance(error, Exception):
                raise StreambenchError(f"Spark does not start on {masked('master', master)}: {said}") from (
                    None if raised else error
                )
            raise
        super().__init__(None, master)
        self._users = 1
        OwnSession._present = self

    @classmethod
    def present(cls) -> OwnSession | None:
        """The one that this process has. One that was stopped from outside, or whose JVM has died, ends."""
        found = cls._present
        if found is None or found._is_usable:
            return found
        found.end(quickly=True)
        return None

    @property
    def _is_usable(self) -> bool:
        return self._jvm.is_running and self._context is not None and self._context._jsc is not None

    def is_of(self, spark: SparkSession) -> bool:
        """True where it is the one that a user has got."""
        return getattr(spark, "sparkContext", None) is self._context

    def joined(self) -> JoinedSession:
        """It, for one more user."""
        self._users += 1
        return JoinedSession(self)

    def handed_out(self) -> SparkSession:
        """The session for a user of this process, who ends it with its ``stop``; the end of the process does,
        too."""
        spark: Any = self.spark
        spark.stop = partial(self.end, quickly=True)
        atexit.register(self.end, quickly=True)  # Jupyter kills a kernel that takes long to end
        return self.spark

    @property
    def spark(self) -> SparkSession:
        """The session itself. The JVM needs seconds for it, and containers do without."""
        with CHANGES:
            if self._spark is None:
                from pyspark.sql import SparkSession

                assert self._context is not None
                self._spark = SparkSession(self._context)
            return self._spark

    @property
    def context(self) -> SparkContext | None:
        return self._context

    def host(self) -> str:
        if is_local(self.master) or self._context is None:
            return "127.0.0.1"
        return self._context.getConf().get("spark.driver.host") or "127.0.0.1"

    @property
    def keeps_logs(self) -> bool:
        return not is_local(self.master)

    def close(self, *, quickly: bool = False) -> None:
        with CHANGES:
            self._users -= 1
            if self._users <= 0:
                self.end(quickly=quickly)

    def end(self, *, quickly: bool = False) -> None:
        """End it for all who use it; may be called more than once. ``quickly``: as for ``close``."""
        with CHANGES:
            if OwnSession._present is self:
                OwnSession._present = None
            atexit.unregister(self.end)
            if self._directory.exists():
                try:
                    if self._spark is not None:
                        type(self._spark).stop(self._spark)
                except Exception as error:
                    # A JVM that has died by itself: what led here says more.
                    log.debug("while stopping the session: %s", error)
                finally:
                    self._release(keeps_archive=not quickly)

    def _settings(self, master: str, config: Config) -> dict[str, str]:
        """Spark's configuration: ours, then what the job's says under ``spark.``."""
        logging_file = self._directory / "log4j2.properties"
        logging_file.write_text(_LOG4J)
        settings = {
            "spark.master": with_attempts(master),
            "spark.app.name": "streambench",
            UI: "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.speculation": "false",
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
            "spark.python.worker.faulthandler.enabled": "true",
            "spark.python.task.killTimeout": "100ms",
            "spark.python.daemon.module": "streambench.spark.daemon",
        }
        logging_option = f"-Dlog4j2.configurationFile={logging_file.as_uri()}"
        if is_here(master):
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
        memory_mb = worker_memory_mb(master)
        if memory_mb is not None and memory_mb < 1024:
            # An executor that is larger than its worker would never start.
            settings["spark.executor.memory"] = f"{memory_mb}m"
        given = {f"spark.{key}": value for key, value in config.below("spark.").items() if key != "master"}
        return settings | given

    def _variables(self, master: str) -> dict[str, str]:
        """Environment variables for the JVM."""
        variables = {
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
            "PYSPARK_PIN_THREAD": "true",
        }
        if is_here(master):
            variables |= {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LAUNCHER_OPTS": _JAVA_OPTIONS,
                "PYSPARK_PYTHON": sys.executable,
            }
        if is_local_cluster(master):
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


class JoinedSession(SessionHandle):
    """A session with a JVM of its own that another user of this process has started. Its master is shown as
    Spark has it."""

    def __init__(self, own: OwnSession) -> None:
        super().__init__(None, with_attempts(own.master))
        self._own = own

    @property
    def spark(self) -> SparkSession:
        return self._own.spark

    @property
    def context(self) -> SparkContext | None:
        return self._own.context

    @property
    def keeps_logs(self) -> bool:
        return self._own.keeps_logs

    def host(self) -> str:
        return self._own.host()

    def close(self, *, quickly: bool = False) -> None:
        self._own.close(quickly=quickly)


def _is_watched() -> bool:
    """True where a person waits at a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _class_archive(java: Path, master: str, config: Config, directory: Path) -> ClassArchive | None:
    """The archive for the driver's JVM; None where its class path or options are not those of this
    environment. ``directory``: the session's."""
    from pyspark.find_spark_home import _find_spark_home

    given = config.below("spark.")
    if not is_here(master) or is_local_cluster(master) or any(key in given for key in _OWN_JVM):
        return None
    return ClassArchive(java, Path(_find_spark_home()), _JAVA_OPTIONS, directory)


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
def signals_untouched() -> Iterator[None]:
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


def _raised_in_jvm(error: BaseException) -> str:
    """The message of an exception that was raised in the JVM; empty for others. The text that Py4J gives it
    begins with a line that names only the call."""
    raised = getattr(error, "java_exception", None)
    if raised is None:
        return ""
    try:
        return first_line(Exception(raised.getMessage() or raised.toString()))
    except Exception as unread:
        log.debug("the JVM has ended with its exception: %s", unread)
        return ""
