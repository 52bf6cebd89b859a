"""The class data archive: made once, mapped afterwards, and never in the way of a JVM."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from streambench import Config
from streambench.spark.class_archive import ClassArchive, cache
from streambench.spark.own_session import _class_archive

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MAIN = "org.apache.spark.launcher.Main"


class Environment:
    """A Java, and a Spark of one jar whose program ends at once."""

    def __init__(self, directory: Path) -> None:
        home = os.environ.get("JAVA_HOME")
        self.java = Path(shutil.which("java", path=f"{home}/bin" if home else None) or "java")
        self.spark = directory / "spark"
        self.session = directory / "session"
        (self.spark / "jars").mkdir(parents=True)
        self.session.mkdir()
        (launcher,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
        self.jar = Path(shutil.copy(launcher, self.spark / "jars"))

    def archive(self, options: str = QUICK) -> ClassArchive:
        return ClassArchive(self.java, self.spark, options, self.session)

    def start(self, archive: ClassArchive) -> tuple[str, bool]:
        """Run the program on a JVM as a session's is run; what it printed, and True where classes were taken
        from an archive of the cache."""
        trace = self.session / "trace"
        command = [self.java, *QUICK.split(), *archive.options.split(), f"-Xlog:class+load:file={trace}"]
        ran = subprocess.run([*command, "-cp", self.jar, MAIN], capture_output=True, text=True, timeout=120)
        archive.keep(is_complete=True)
        archive.close()
        return ran.stdout + ran.stderr, "shared objects file (top)" in trace.read_text()


@pytest.fixture
def environment(spark_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """One that a session has been in before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Environment(tmp_path)
    assert found.archive().options == ""
    return found


def archives() -> list[Path]:
    return list(cache().glob("*.jsa"))


def test_the_next_jvm_takes_its_classes_from_the_archive(environment: Environment) -> None:
    first = environment.archive()
    assert first.is_in_the_making
    said, mapped = environment.start(first)
    assert not mapped
    assert len(archives()) == 1
    second = environment.archive()
    assert not second.is_in_the_making
    assert second.executor_options == second.options
    assert environment.start(second) == (said, True)


@pytest.mark.parametrize("left", [0, 4096, 0.5])
def test_a_truncated_archive_is_made_again(environment: Environment, left: float) -> None:
    environment.start(environment.archive())
    (path,) = archives()
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content)) if left < 1 else int(left)])
    again = environment.archive()
    assert again.is_in_the_making
    assert not archives()
    environment.start(again)
    assert environment.start(environment.archive())[1]


def test_another_spark_or_other_options_have_another_archive(environment: Environment) -> None:
    environment.start(environment.archive())
    assert "SharedArchiveFile" in environment.archive().options
    assert environment.archive("-XX:+UseSerialGC").options == ""
    os.utime(environment.jar, (1, 1))
    assert environment.archive().options == ""
    assert environment.archive().is_in_the_making


def test_one_session_at_a_time_makes_the_archive(environment: Environment) -> None:
    making = environment.archive()
    assert making.is_in_the_making
    assert environment.archive().options == ""
    making.close()
    assert environment.archive().is_in_the_making


def test_an_archive_of_another_class_path_does_no_harm(environment: Environment) -> None:
    said, _ = environment.start(environment.archive())
    archive = environment.archive()
    environment.jar = Path(shutil.copy(environment.jar, environment.session))
    assert environment.start(archive) == (said, False)


def test_a_java_that_can_write_none_is_asked_once(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xshare:off")
    asked: list[object] = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *what, **how: asked.append(what) or run(*what, **how))
    for _ in range(4):
        archive = environment.archive()
        assert (archive.options, archive.is_in_the_making) == ("", False)
        archive.close()
    assert len(asked) == 1
    assert not archives()


def test_a_jvm_that_was_killed_as_it_wrote_leaves_no_archive(environment: Environment) -> None:
    archive = environment.archive()
    (environment.session / "classes.jsa").write_text("a part")
    archive.keep(is_complete=False)
    archive.close()
    assert not archives()
    assert environment.archive().options == ""
    (note,) = cache().glob("*.none")
    os.utime(note, (time.time() - 2 * 24 * 3600,) * 2)
    assert environment.archive().is_in_the_making


def test_a_jvm_that_wrote_for_too_long_gets_more_time_next(environment: Environment) -> None:
    given = []
    for _ in range(3):
        archive = environment.archive()
        assert archive.is_in_the_making
        given.append(archive.written_within_s)
        archive.keep(is_complete=False, is_late=True)
        archive.close()
    assert given == [120, 240, 480]
    assert environment.archive().options == ""
    (note,) = cache().glob("*.none")
    note.unlink()
    assert environment.archive().written_within_s == 120


def test_no_archive_where_none_can_be_kept(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert environment.archive().options == ""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with space"))
    assert [environment.archive().options for _ in range(2)] == ["", ""]


def test_an_archive_that_was_not_used_for_a_month_goes(environment: Environment) -> None:
    environment.start(environment.archive())
    (old,) = archives()
    os.utime(old, (time.time() - 40 * 24 * 3600,) * 2)
    environment.archive("-XX:+UseSerialGC")
    environment.start(environment.archive("-XX:+UseSerialGC"))
    assert old not in archives()


@pytest.mark.parametrize(
    ("master", "settings", "has_one"),
    [
        ("local[2]", {}, True),
        ("spark://127.0.0.1:7077", {"spark.executor.memory": "1g"}, True),
        ("local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, False),
        ("local[2]", {"spark.driver.extraClassPath": "/x"}, False),
        ("local-cluster[2,1,1024]", {}, False),
        ("yarn", {}, False),
    ],
)
def test_a_driver_with_options_or_a_class_path_of_its_own_has_no_archive(
    environment: Environment, master: str, settings: dict[str, str], has_one: bool
) -> None:
    found = _class_archive(environment.java, master, Config(settings), environment.session)
    assert (found is not None) == has_one
