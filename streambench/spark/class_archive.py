"""Class data archive of the driver's JVM: Spark's classes, loaded and verified once per environment.

The JVM of a session writes the archive as it exits, which costs more than a start; later ones map it into
memory. It is the second session that does: an environment that lives for one session would only pay for it.
An archive serves one Java, one Spark and one class path, all of which are in its name. The JVM checks that
once more, and starts as it always did with an archive that does not fit. A damaged archive kills the JVM, so
the name has size and checksum, too. A JVM that cannot write an archive is detected before Spark starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

from streambench.locks import Held

log = logging.getLogger(__name__)

# Each of these changes the class path of the driver or the options of its JVM.
_VARIABLES = (
    "CLASSPATH",
    "HADOOP_CONF_DIR",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "YARN_CONF_DIR",
    "_JAVA_OPTIONS",
)
_SILENT = "-Xlog:disable"
_ENDING, _NONE, _SEEN, _LATE = ".jsa", ".none", ".seen", ".late"
_PROBE_S = 60
_AGAIN_S = 24 * 3600
_UNUSED_S = 30 * 24 * 3600
_KEPT_S = {_ENDING: _UNUSED_S, _NONE: _UNUSED_S, _SEEN: _UNUSED_S, _LATE: _UNUSED_S, ".part": 3600}
# Some 10 s of CPU, of which a busy machine gives little: the next session waits twice as long.
_WRITTEN_WITHIN_S = 120
_TRIES = 3


class ClassArchive:
    """The archive of this environment, where there is one, or where one can be made.

    ``options``: of the driver's JVM. ``executor_options``: of executors that are started from the same Spark,
    which never write one."""

    def __init__(self, java: Path, spark_home: Path, jvm_options: str, directory: Path) -> None:
        """``directory``: it belongs to the session, and goes with it."""
        self.options = self.executor_options = ""
        self._written: Path | None = None
        self._making: Held | None = None
        try:
            self._cache = cache()
            self._key = _key(java, spark_home, jvm_options)
            self._choose([str(java), *jvm_options.split()], directory)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # no home directory, for example
            log.debug("no class data archive: %s", error)

    @property
    def is_in_the_making(self) -> bool:
        """True where the JVM writes the archive when it exits, which takes seconds."""
        return self._written is not None

    @property
    def written_within_s(self) -> int:
        """The seconds in which the JVM must have written the archive and ended."""
        return int(_WRITTEN_WITHIN_S * 2 ** self._tries())

    def keep(self, *, is_complete: bool, is_late: bool = False) -> None:
        """Put in place what the JVM has written as it exited. ``is_complete``: it has exited by itself.
        ``is_late``: it took too long. The next session tries again then, with more time, up to
        ``_TRIES`` times. Any other failure is noted, so that the next ones do not try again for a day."""
        if self._written is None:
            return
        try:
            if is_complete and self._written.exists():
                _sweep(self._cache)
                _copy(self._written, self._cache / f"{self._key}-{_checked(self._written)}{_ENDING}")
            elif is_late and self._tries() < _TRIES - 1:
                with self._late.open("a") as file:
                    file.write(".")
                return
            else:
                self._note_failure()
            self._late.unlink(missing_ok=True)
        except OSError as error:
            log.debug("the class data archive was not kept: %s", error)

    @property
    def _late(self) -> Path:
        return self._cache / f"{self._key}{_LATE}"

    def _tries(self) -> int:
        """The number of sessions, one after the other, whose JVM took too long."""
        try:
            return min(self._late.stat().st_size, _TRIES)
        except OSError:
            return 0

    def close(self) -> None:
        """Let other sessions make the archive, if this one has not."""
        if self._making is not None:
            self._making.release()
            self._making = None

    def _choose(self, java: list[str], directory: Path) -> None:
        if not (_is_plain(self._cache) and _is_plain(directory)):
            return
        self._cache.mkdir(parents=True, exist_ok=True)
        if path := self._found():
            self.options = self.executor_options = f"-XX:SharedArchiveFile={path} {_SILENT}"
        elif not self._has_failed() and self._is_second():
            self._prepare(java, directory / "classes.jsa")

    def _is_second(self) -> bool:
        """True where a session was here before, and no other one makes the archive now."""
        seen = self._cache / f"{self._key}{_SEEN}"
        if not seen.exists():
            seen.touch()
            return False
        try:
            self._making = Held.locked(seen)
        except BlockingIOError:
            return False
        return True

    def _found(self) -> Path | None:
        """An archive that is as it was written; another one is removed."""
        for path in self._cache.glob(f"{self._key}-*{_ENDING}"):
            if path.name == f"{self._key}-{_checked(path)}{_ENDING}":
                with contextlib.suppress(OSError):  # of a cache that is another user's
                    os.utime(path)
                return path
            path.unlink(missing_ok=True)
        return None

    def _prepare(self, java: list[str], written: Path) -> None:
        """Have the driver's JVM write an archive, if this Java can: one that cannot does not even start."""
        options = [f"-XX:ArchiveClassesAtExit={written}", _SILENT]
        subprocess.run(
            [*java, *options, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S
        )
        if written.exists():
            written.unlink()
            self._written, self.options = written, " ".join(options)
        else:
            self._note_failure()

    def _note_failure(self) -> None:
        (self._cache / f"{self._key}{_NONE}").touch()

    def _has_failed(self) -> bool:
        """True where making one failed within the last day."""
        try:
            noted = (self._cache / f"{self._key}{_NONE}").stat().st_mtime
        except OSError:
            return False
        return time.time() - noted < _AGAIN_S


def cache() -> Path:
    """The directory of what streambench keeps from one process to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "streambench" / "spark"


def _is_plain(path: Path) -> bool:
    """True where a path can stand among the options of a JVM, which spaces and quotes divide."""
    return not set(str(path)) & set(" \t\n\"'\\")


def _key(java: Path, spark_home: Path, jvm_options: str) -> str:
    """A name for one Java, one class path and one set of options. Raises OSError."""
    home = java.resolve().parent.parent
    parts = [*home.glob("lib/server/libjvm.so"), *home.glob("lib/server/classes*.jsa"), home / "release"]
    jars = spark_home / "jars"
    # The class path has the jars in the order of the directory, not in that of their names.
    listed = [jars / name for name in os.listdir(jars)]
    described = {
        "java": [_described(path) for path in [java.resolve(), *sorted(parts)]],
        "jars": [_described(path) for path in listed],
        "options": jvm_options,
        "variables": {name: os.environ.get(name) for name in _VARIABLES},
    }
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:32]


def _described(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), found.st_size, found.st_mtime_ns


def _checked(path: Path) -> str:
    """The size and the checksum of a file, as they stand in its name."""
    checksum = size = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            checksum, size = zlib.crc32(chunk, checksum), size + len(chunk)
    return f"{size}-{checksum:08x}"


def _copy(source: Path, target: Path) -> None:
    """A file that is complete under its name, or not there."""
    descriptor, part = tempfile.mkstemp(suffix=".part", dir=target.parent)
    os.close(descriptor)
    try:
        shutil.copyfile(source, part)
        os.replace(part, target)
    finally:
        Path(part).unlink(missing_ok=True)


def _sweep(directory: Path) -> None:
    """Remove archives that were not used for a month, and parts that a killed process has left."""
    now = time.time()
    for path in directory.iterdir():
        longest = _KEPT_S.get(path.suffix)
        with contextlib.suppress(OSError):
            if longest is not None and now - path.stat().st_mtime > longest:
                path.unlink()
