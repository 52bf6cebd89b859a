"""The process of the JVM that a session of its own has."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from streambench.errors import StreambenchError

if TYPE_CHECKING:
    from pyspark import SparkConf


class Jvm:
    """The process of the JVM, known from its first moment on.

    PySpark hands it out only when it answers. Interrupted before that, the JVM cannot report itself any more,
    and stays for ever. It does not even look whether its standard input has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_interrupted = False
        self.is_late = False
        """It was killed because it did not exit in time."""

    @property
    def is_running(self) -> bool:
        """True from its launch until its process has ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self, conf: SparkConf, output: BinaryIO) -> Any:
        """Start it; the gateway to it. What it prints goes to ``output``. Ctrl-C ends it before it raises
        KeyboardInterrupt."""
        from pyspark import java_gateway

        module: Any = java_gateway
        former: dict[signal.Signals, Any] = {}
        popen = module.Popen
        try:
            if threading.current_thread() is threading.main_thread():
                for each in (signal.SIGTERM, signal.SIGINT):
                    if signal.getsignal(each) is signal.default_int_handler:
                        former[each] = signal.default_int_handler
                        signal.signal(each, self._interrupt)
            module.Popen = self._popen
            return module.launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})
        finally:
            module.Popen = popen
            for each, handler in former.items():
                signal.signal(each, handler)
            if self._is_interrupted:
                raise KeyboardInterrupt

    def end(self, seconds: float) -> bool:
        """It exits when its standard input ends; if it does not within these seconds, it is killed. Return
        True where it has exited well, by itself."""
        if self._process is None:
            return False
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.is_late = True
            return False
        else:
            return self._process.returncode == 0
        finally:  # at Ctrl-C, too
            if self._process.returncode is None:
                self._process.kill()
                self._process.wait()

    def _popen(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(*arguments, **options)
        if self._is_interrupted:
            self._process.terminate()
        return self._process

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """``launch_gateway`` gives up when the process ends."""
        if self._process is not None and self._is_interrupted:
            self._process.kill()
        elif self._process is not None:
            self._process.terminate()
        self._is_interrupted = True


def required_java() -> Path:
    """The program that Spark starts; StreambenchError where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        where = (
            f"JAVA_HOME is {home}, which holds no bin/java"
            if home
            else "there is no java on the PATH, and JAVA_HOME is not set"
        )
        raise StreambenchError(
            f"Spark needs Java 17 or newer, and {where}. Install one (Debian: apt-get install "
            "openjdk-17-jre-headless; conda: openjdk=17)"
        )
    return Path(found)
