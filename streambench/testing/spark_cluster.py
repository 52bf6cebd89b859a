"""A Spark standalone cluster of one's own: a master and workers, as processes on this machine, for tests and
tutorials.

They listen on 127.0.0.1 only, on ports that are free. Executors, their logs and what they write lie below one
directory. Only the installed PySpark and Java are needed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import weakref
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from streambench.errors import MissingExtraError, StreambenchError
from streambench.testing.owned import dying_with_parent

_HOST = "127.0.0.1"
_READY_S = 120.0
_GRACE_S = 10.0
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false"
_CLASSES = "org.apache.spark.deploy"


class SparkCluster:
    """A standalone cluster in ``directory``, with one executor on each worker.

    ``start`` it and ``stop`` it, or use it in a ``with`` statement. Its processes end with this object, and
    with the thread that has started them, however that ends (on Linux)."""

    def __init__(
        self,
        directory: str | Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory_mb: int = 1024,
        java_options: str = "",
    ) -> None:
        """``java_options``: further ones of the master's and the workers' JVMs."""
        self.directory = Path(directory).absolute()
        self.master = ""
        """The master's address, ``spark://127.0.0.1:PORT``; empty until it is started."""
        self.page = ""
        """The address of the master's web page."""
        self._workers = workers
        self._java_options = f"{_JAVA_OPTIONS} {java_options}".strip()
        self._options = ["--cores", str(cores), "--memory", f"{memory_mb}m"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._finalizer = weakref.finalize(self, _end, self._processes)

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> SparkCluster:
        """Start the master and the workers, and return when all of them are ready. Raises MissingExtraError,
        and StreambenchError with the last lines of a log."""
        self.stop()
        (self.directory / "work").mkdir(parents=True, exist_ok=True)
        try:
            self._launch("master", "master.Master", "--port", "0")
            self.master = self._found("master", r"Starting Spark master at (spark://\S+)")
            self.page = self._found("master", r"MasterWebUI to \S+, and started at (http://\S+)")
            for number in range(1, self._workers + 1):
                work = str(self.directory / "work" / str(number))
                self._launch(
                    f"worker-{number}", "worker.Worker", *self._options, "--work-dir", work, self.master
                )
            for number in range(1, self._workers + 1):
                self._found(f"worker-{number}", r"Successfully registered with master (\S+)")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all processes; may be called more than once."""
        _end(self._processes)
        self.master = self.page = ""

    def kill(self, name: str) -> None:
        """Kill ``master``, ``worker-1`` and so on at once, as a crash would. Executors of a worker end by
        themselves a moment later."""
        os.kill(self._processes[name].pid, signal.SIGKILL)

    def log(self, name: str) -> Path:
        """The log file of ``master``, ``worker-1`` and so on."""
        return self.directory / f"{name}.log"

    def _launch(self, name: str, kind: str, *arguments: str) -> None:
        home = _spark_home()
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": self._java_options,
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), f"{_CLASSES}.{kind}", "--host", _HOST]
        command += ["--webui-port", "0", *arguments]
        with self.log(name).open("wb") as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=environment,
                start_new_session=True,
                preexec_fn=dying_with_parent(),
            )

    def _found(self, name: str, pattern: str) -> str:
        """The part of a log that a pattern names, as soon as it is there."""
        until = time.monotonic() + _READY_S
        while True:
            text = self.log(name).read_text(errors="replace")
            found = re.search(pattern, text)
            if found:
                return found[1]
            if any(_has_ended(each) for each in self._processes.values()):
                problem = "has ended"
            elif time.monotonic() > until:
                problem = f"was not ready within {_READY_S:.0f} seconds"
            else:
                time.sleep(0.05)
                continue
            last = "".join(f"\n  {line}" for line in text.strip().splitlines()[-5:])
            raise StreambenchError(f"the {name} of a Spark cluster {problem}; {self.log(name)} says:{last}")


def _spark_home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingExtraError("a Spark cluster", "spark")
    return Path(found.origin).parent


def _end(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """End processes in the reverse order of their start, with all that they have started, and forget them.
    The workers' executors are in their groups."""
    ending = list(processes.values())[::-1]
    for each in ending:
        if each.returncode is None:
            os.kill(each.pid, signal.SIGTERM)
    until = time.monotonic() + _GRACE_S
    try:
        while not all(_has_ended(each) for each in ending) and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        for each in ending:
            # Before it is reaped: from then on another process may get its number.
            if each.returncode is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
        processes.clear()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return True for a process that has ended; it is not reaped."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # on macOS
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
