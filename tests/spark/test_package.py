"""A job as one archive: what is in it, that it runs anywhere, and the lines that submit it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from streambench import Config, ConfigError, StreambenchError
from streambench.spark.history import runs
from streambench.spark.own_code import own_code
from streambench.spark.package import is_package, opened, package
from streambench.spark.submit_lines import submit_command
from streambench.testing.spark_cluster import SparkCluster
from tests.spark.conftest import CHECKOUT, Job, environment_of_programs, jvm_options
from tests.surroundings import only_soak

TASK = """
import json
import streambench as sb
from squares import squared

class Square(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        from helping import tools
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), squared(envelope.message)))
"""

SQUARED = """
import msgspec

def squared(number):
    return number**2
"""


@pytest.fixture
def squares(job: Job) -> Job:
    """A job whose task imports a file and a package that lie beside it."""
    return with_code(job)


def with_code(job: Job, **settings: str) -> Job:
    (job.directory / "task.py").write_text(TASK)
    (job.directory / "squares.py").write_text(SQUARED)
    (job.directory / "helping" / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "tools.py", "words.txt", "__pycache__/tools.pyc"):
        (job.directory / "helping" / name).write_text("")
    job.config = job.config.with_values({"task.class": "task.py:Square", **settings})
    text = "".join(f"{key}={value}\n" for key, value in job.config.items())
    (job.directory / "job.properties").write_text(text)
    return job


def written(job: Job, path: str = "job.zip") -> Path:
    archive, *_ = package(Config.from_file(job.directory / "job.properties")).write(job.directory / path)
    return archive


def code_in(archive: Path) -> list[str]:
    names = zipfile.ZipFile(archive).namelist()
    return [name for name in names if not name.startswith("streambench_job/")]


def test_the_code_of_a_job_is_all_that_its_task_imports(squares: Job) -> None:
    assert code_in(written(squares)) == ["helping/__init__.py", "helping/tools.py", "squares.py", "task.py"]


def test_files_that_are_no_python_are_left_out_and_named(squares: Job) -> None:
    helping = squares.directory / "helping"
    (helping / "prod.properties").write_text("sasl.password=brunhilde")
    (helping / "key.pem").write_text("brunhilde")
    made = package(squares.config)
    assert made.left_out == ("helping/key.pem", "helping/prod.properties", "helping/words.txt")
    assert b"brunhilde" not in b"".join(made.files.values())


def test_other_files_are_taken_where_they_are_included(squares: Job) -> None:
    (squares.directory / "names.txt").write_text("brunhilde")
    made = package(squares.config, include=["helping/*.txt", "names.txt"])
    assert {"helping/words.txt", "names.txt"} <= made.files.keys()
    assert made.left_out == ()


def test_a_file_that_may_hold_a_secret_is_included_by_its_name(squares: Job) -> None:
    (squares.directory / "helping" / "key.pem").write_text("brunhilde")
    with pytest.raises(ConfigError, match=r"helping/key\.pem may hold a secret: narrow the pattern"):
        package(squares.config, include=["helping/*"])
    assert "helping/key.pem" in package(squares.config, include=["helping/key.pem"]).files


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("", "give a name or a pattern relative to the directory of the job"),
        ("../*.txt", "give a name or a pattern relative to the directory of the job"),
        ("/etc/passwd", "give a name or a pattern relative to the directory of the job"),
        ("helping/**.txt", r"--include 'helping/\*\*\.txt': "),
        ("helping/*.csv", r"--include 'helping/\*\.csv': there is no such file in "),
    ],
)
def test_a_pattern_that_names_no_file_of_the_job_is_refused(squares: Job, pattern: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        package(squares.config, include=[pattern])


def test_code_that_is_linked_from_elsewhere_keeps_its_name(
    squares: Job, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (squares.directory / "squares.py").rename(elsewhere / "shared.py")
    (squares.directory / "squares.py").symlink_to(elsewhere / "shared.py")
    (squares.directory / "helping").rename(elsewhere / "helping")
    (squares.directory / "helping").symlink_to(elsewhere / "helping")
    assert code_in(written(squares)) == ["helping/__init__.py", "helping/tools.py", "squares.py", "task.py"]


def test_an_archive_is_replaced_in_one_step(squares: Job) -> None:
    archive = written(squares)
    before = archive.read_bytes()
    os.link(archive, squares.directory / "reader")
    (squares.directory / "task.py").write_text(f"{TASK}# changed\n")
    assert written(squares).read_bytes() != before
    assert (squares.directory / "reader").read_bytes() == before
    assert not list(squares.directory.glob(".*"))


def test_two_secrets_never_share_an_environment_variable(job: Job) -> None:
    own = {f"systems.{name}.token": name for name in ("a-b", "a_b")}
    with pytest.raises(ConfigError, match=r"SYSTEMS_A_B_TOKEN would stand") as raised:
        package(job.config.with_values(own))
    assert all(key in str(raised.value) for key in own)


def test_a_setting_that_a_deployment_refuses_is_not_packed(squares: Job) -> None:
    with pytest.raises(ConfigError, match=r"systems\.log\.password: is not a setting of this kind of system"):
        package(squares.config.with_values({"systems.log.password": "x"}))
    with pytest.raises(ConfigError, match=r"spark\.speculation: is true"):
        package(squares.config.with_values({"spark.speculation": "true"}))
    own = {"samza.factory": "webhook", "token": "${env:STREAMBENCH_IS_NOT_SET}"}
    package(squares.config.with_values({f"systems.out.{key}": value for key, value in own.items()}))


def test_the_same_job_gives_the_same_bytes(squares: Job) -> None:
    first = written(squares).read_bytes()
    os.utime(squares.directory / "task.py", (1, 1))
    (squares.directory / "task.py").chmod(0o700)
    assert written(squares, "again.zip").read_bytes() == first


def test_packages_are_pinned_in_the_versions_of_here(squares: Job) -> None:
    needs = package(squares.config).files["streambench_job/requirements.txt"].decode().splitlines()
    import msgspec

    assert f"msgspec=={msgspec.__version__}" in needs
    assert any(line.startswith("streambench[spark]==") for line in needs)
    (squares.directory / "requirements.txt").write_text("mine==1\n")
    assert package(squares.config).files["streambench_job/requirements.txt"] == b"mine==1\n"


def test_no_secret_is_in_the_archive(job: Job) -> None:
    own = {"samza.factory": "webhook", "token": "brunhilde", "streams.x.url": "https://u:grani@host/x"}
    found = with_code(job, **{f"systems.out.{key}": value for key, value in own.items()})
    made = package(found.config)
    everything = b"".join(made.files.values())
    assert b"brunhilde" not in everything
    assert b"grani" not in everything
    assert made.secrets["systems.out.token"] == "SYSTEMS_OUT_TOKEN"
    assert b"${env\\:SYSTEMS_OUT_TOKEN}" in everything


def test_a_file_outside_the_directory_of_the_job_is_packed_by_its_name(
    job: Job, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.py").write_text("class Task:\n    def process(self, e, c, k):\n        pass\n")
    config = job.config.with_values({"task.class": f"{elsewhere}/far.py:Task"})
    made = package(config)
    assert own_code(config).named == {"task.class": "far.py:Task"}
    assert b"task.class=far.py" in made.files["streambench_job/job.properties"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def broken(:", r"task\.py, line 1: invalid syntax"),
        (None, r"task\.class.*: there is no file .*task\.py"),
    ],
)
def test_code_that_cannot_be_packed_is_an_error(squares: Job, text: str | None, error: str) -> None:
    task = squares.directory / "task.py"
    task.unlink() if text is None else task.write_text(text)
    with pytest.raises(StreambenchError, match=error):
        package(squares.config)


def test_a_file_with_the_name_of_a_module_of_python_is_refused(squares: Job) -> None:
    (squares.directory / "json.py").write_text("")
    config = squares.config.with_values({"task.class": "json.py:Square"})
    with pytest.raises(StreambenchError, match=r"json\.py has the name of Python's own module json"):
        package(config)


def test_a_module_that_is_not_installed_is_named(squares: Job) -> None:
    (squares.directory / "task.py").write_text(f"import no_such_module\n{TASK}")
    assert package(squares.config).absent == ("no_such_module",)


def test_pyspark_below_spark_home_is_not_packed(squares: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (squares.directory / "task.py").write_text("import pyspark")
    monkeypatch.setattr("streambench.spark.own_code.installation", lambda: ("/usr/lib/python3/",))
    found = own_code(squares.config)
    assert (list(found.files), found.installed) == (["task.py"], {"pyspark"})


def test_no_file_of_another_kind_is_written_over(squares: Job) -> None:
    (squares.directory / "job.zip").write_text("mine")
    with pytest.raises(StreambenchError, match="no packaged job: name another file with --output"):
        written(squares)
    (squares.directory / "submit_job.py").write_text("mine")
    with pytest.raises(StreambenchError, match=r"submit_job\.py is a file of another kind"):
        written(squares, "other.zip")


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("x", "y")
    assert not is_package(tmp_path / "other.zip")
    with pytest.raises(StreambenchError, match=r"no packaged job: make one with streambench package"):
        opened(tmp_path / "other.zip")


def test_an_archive_that_would_write_elsewhere_is_refused(squares: Job) -> None:
    archive = written(squares)
    with zipfile.ZipFile(archive, "a") as changed:
        changed.writestr("../outside.py", "")
    with pytest.raises(StreambenchError, match="no packaged job"):
        opened(archive)


def run(job: Job, *words: str | Path) -> str:
    """A command in another directory, where nothing of the job lies, after the code of the job is gone."""
    elsewhere = job.directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    ran = subprocess.run(
        [*words],
        cwd=elsewhere,
        env=environment_of_programs(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def without_code(job: Job) -> None:
    for name in ("task.py", "squares.py", "helping/__init__.py", "helping/tools.py"):
        (job.directory / name).unlink()


def test_commands_take_an_archive_in_place_of_a_properties_file(squares: Job) -> None:
    squares.send(0, 10)
    archive = written(squares)
    without_code(squares)
    run(squares, sys.executable, "-m", "streambench", "run", archive, "--until", "caught-up")
    assert squares.numbers() == [number**2 for number in range(10)]


SUBMITTED = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from streambench.spark.__main__ import main
main()
"""


def test_a_submitted_archive_takes_configurations_wherever_they_stand(squares: Job) -> None:
    squares.send(0, 10)
    archive = written(squares)
    other = (squares.directory / "job.properties").rename(squares.directory / "other.properties")
    other.write_text(other.read_text() + "job.id=2\n")
    without_code(squares)
    program = [sys.executable, "-c", SUBMITTED, archive, "--dry-run", "--containers", "1"]
    for place in ([], ["-c"]):
        said = run(squares, *program, *place, other)
        assert said.count("job-2") == 1 and "job-1" not in said


QUIET = ("spark.ui.enabled=false", "spark.log.level=ERROR", "spark.driver.host=127.0.0.1")


@only_soak("test_dependencies.py submits an archive with another configuration")
@pytest.mark.usefixtures("spark_installed")
def test_spark_submit_runs_an_archive_with_another_configuration(squares: Job) -> None:
    squares.send(0, 12)
    archive = written(squares)
    made = package(squares.config)
    (squares.directory / "job.properties").rename(squares.directory / "other.properties")
    without_code(squares)
    command = submit_command(made, archive, "local", "local[2]")
    command[0] = str(Path(sys.executable).with_name("spark-submit"))
    command[1:1] = [word for each in QUIET for word in ("--conf", each)]
    said = run(squares, *command, squares.directory / "other.properties", "--json")
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(each["messages"] for each in found) == 12
    assert squares.numbers() == [number**2 for number in range(12)]


@only_soak("test_dependencies.py submits an archive to a standalone cluster")
@pytest.mark.usefixtures("spark_installed")
def test_spark_submit_runs_an_archive_on_a_standalone_cluster(squares: Job, tmp_path: Path) -> None:
    squares.send(0, 10)
    archive = written(squares)
    made = package(squares.config)
    without_code(squares)
    with SparkCluster(tmp_path / "cluster", workers=1, cores=2, java_options=jvm_options()) as cluster:
        master = cluster.master
        command = submit_command(made, archive, "standalone", master)
        command[0] = str(Path(sys.executable).with_name("spark-submit"))
        own = (
            "spark.executor.memory=512m",
            f"spark.executor.extraJavaOptions={jvm_options()}",
            f"spark.executorEnv.PYTHONPATH={CHECKOUT}",
        )
        command[1:1] = [word for each in (*QUIET, *own) for word in ("--conf", each)]
        run(squares, *command)
    assert squares.numbers() == [number**2 for number in range(10)]
    assert [each.master for each in runs(squares.config)] == [master]


def test_a_master_of_another_cluster_is_refused(squares: Job) -> None:
    with pytest.raises(ConfigError, match=r"'yarn' is no master of standalone: give one such as spark://"):
        submit_command(package(squares.config), Path("a.zip"), "standalone", "yarn")
