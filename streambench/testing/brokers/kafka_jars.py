"""The programs that a Kafka node of one's own needs: a Java, and the jars of Apache Kafka."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from streambench.errors import StreambenchError

VERSION = "4.3.1"
"""The version of Kafka that is fetched; it stands in pom.xml as well."""

_JAVA = 17
_POM = Path(__file__).with_name("pom.xml")
_EVERY_S = 2.0
_PATIENCE_S = 900

Report = Callable[[str], None]


def java() -> str:
    """The Java to run Kafka with: that of JAVA_HOME, else the one on the PATH. Raises StreambenchError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    remedy = f"install Java {_JAVA} or newer (apt install openjdk-17-jre-headless), or set JAVA_HOME to it"
    if found is None:
        raise StreambenchError(
            f"Kafka needs Java, and there is none {f'in JAVA_HOME={home}' if home else 'on the PATH'}: "
            f"{remedy}"
        )
    done = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if done.returncode or version is None:
        raise StreambenchError(
            f"{found} does not name its version ({(done.stderr or done.stdout).strip()[:200]}): {remedy}"
        )
    if int(version[1]) < _JAVA:
        raise StreambenchError(f"{found} is Java {version[1]}, and Kafka {VERSION} needs {_JAVA}: {remedy}")
    return found


def jars(report: Report) -> Path:
    """The directory with the jars of Kafka.

    It is that of an installed Kafka (KAFKA_HOME), else what was fetched from Maven Central, once for all
    clusters of this user. ``report`` is called with progress. Raises StreambenchError."""
    home = os.environ.get("KAFKA_HOME")
    if home:
        libs = Path(home).expanduser() / "libs"
        if not any(libs.glob("kafka_2*.jar")):
            raise StreambenchError(
                f"KAFKA_HOME={home} holds no Kafka: there is no {libs}/kafka_2*.jar; set it to an installed "
                "Kafka, or unset it"
            )
        return libs
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streambench"
    libs = cache / f"kafka-{VERSION}"
    if libs.is_dir():
        return libs
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f"kafka-{VERSION}.lock", timeout=_PATIENCE_S):
            if not libs.is_dir():
                _fetch(libs, report)
    except OSError as error:
        raise StreambenchError(
            f"cannot keep Kafka in {cache}: {error.strerror}; set XDG_CACHE_HOME to a directory of yours"
        ) from error
    except Timeout as error:
        raise StreambenchError(
            f"another process has been fetching Kafka to {cache} for {_PATIENCE_S // 60} minutes; try again"
        ) from error
    return libs


def _fetch(libs: Path, report: Report) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise StreambenchError(
            "Kafka is fetched with Maven, and there is no mvn on the PATH: install it (apt install maven), "
            "or set KAFKA_HOME to a Kafka"
        )
    report(f"fetching Apache Kafka {VERSION} with Maven (43 MB, only this once)")
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix=".fetching-") as scratch:
        work = Path(scratch)
        shutil.copy(_POM, work / "pom.xml")
        command = [
            maven,
            "-B",
            "-f",
            str(work / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={work / 'libs'}",
            "-DincludeScope=runtime",
        ]
        said: deque[str] = deque(maxlen=30)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        ) as process:
            try:
                _follow(process, said, report)
            except BaseException:
                process.kill()
                raise
        if process.returncode or not any((work / "libs").glob("kafka_2*.jar")):
            wrong = [line for line in said if "ERROR" in line] or list(said)
            raise StreambenchError(
                "Maven could not fetch Kafka (is Maven Central to be reached? else set KAFKA_HOME to an "
                "installed Kafka): " + " | ".join(line.strip() for line in wrong[:5])
            )
        (work / "libs").rename(libs)
    report(f"Kafka {VERSION} is in {libs}")


def _follow(process: subprocess.Popen[str], said: deque[str], report: Report) -> None:
    assert process.stdout is not None
    fetched, reported = 0, time.monotonic()
    for line in process.stdout:
        said.append(line.rstrip())
        fetched += "Downloaded from" in line
        if fetched and time.monotonic() - reported > _EVERY_S:
            reported = time.monotonic()
            report(f"{fetched} files fetched")
