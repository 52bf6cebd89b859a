"""The packages of a job as an archive: what is in it, and executors that have them from nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from streambench import ConfigError, StreambenchError
from streambench.spark import dependencies
from streambench.spark.dependencies import FOLDER, stage_dependencies
from streambench.spark.history import runs
from streambench.spark.package import NEEDS, package
from streambench.spark.requirements import needed_by
from streambench.spark.staged_files import StagedFiles
from streambench.spark.submit_lines import submit_command, submit_lines
from streambench.testing.spark_cluster import SparkCluster
from tests.spark.conftest import Job, jvm_options
from tests.spark.test_package import QUIET, run, with_code, without_code, written

WHERE = """
import sys
import streambench as sb
from squares import squared

class Square(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        import msgspec
        with open({place!r}, "w") as file:
            print(sys.prefix, sb.__file__, msgspec.__file__, sep="\\n", file=file)
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), squared(envelope.message)))
"""


def packed(requirements: str, path: Path, *target: Any) -> int:
    with StagedFiles() as staged:
        count = stage_dependencies(requirements, path, staged, *target)
        staged.put_in_place()
    return count


@pytest.mark.usefixtures("spark_installed")
@pytest.mark.timeout(300)
def test_executors_without_any_package_run_a_job_with_its_dependencies(job: Job, tmp_path: Path) -> None:
    with_code(job)
    place = tmp_path / "where"
    (job.directory / "task.py").write_text(WHERE.format(place=str(place)))
    job.send(0, 10)
    archive, packages = written(job), job.directory / "job-packages.zip"
    made = package(job.config)
    packed(made.files[NEEDS].decode(), packages)
    other = (job.directory / "job.properties").rename(job.directory / "other.properties")
    without_code(job)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    lacking = [bare / "bin" / "python", "-c", "import streambench"]
    assert subprocess.run(lacking, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    with SparkCluster(tmp_path / "cluster", workers=1, cores=2, java_options=jvm_options()) as cluster:
        command = submit_command(made, archive, "standalone", cluster.master, packages)
        command[0] = str(Path(sys.executable).with_name("spark-submit"))
        pythons = [f"python={bare / 'bin' / 'python'}", f"driver.python={sys.executable}"]
        options = f"spark.executor.extraJavaOptions={jvm_options()}"
        settings = [*QUIET, options, *(f"spark.pyspark.{each}" for each in pythons)]
        command[1:1] = [word for each in settings for word in ("--conf", each)]
        said = run(job, *command, other, "--json")
        master = cluster.master
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(each["messages"] for each in found) == 10
    assert job.numbers() == [number**2 for number in range(10)]
    assert [each.master for each in runs(job.config)] == [master]
    prefix, *files = place.read_text().split()
    assert prefix == str(bare)
    assert all(f"/{FOLDER}/" in each for each in files)


def test_what_is_packed_is_what_the_packages_need_without_spark() -> None:
    lines = ["streambench[spark,kafka]", "pyspark==1.0", "# mine", "--index-url https://a/b", "MsgSpec>=0.1"]
    found = needed_by("\n".join(lines))
    assert {"streambench", "kafka-python", "pandas", "numpy", "python-dateutil", "msgspec"} <= found.keys()
    assert not {"pyspark", "py4j", "pika"} & found.keys()


def installed(directory: Path, name: str, *needs: str, extras: tuple[str, ...] = ()) -> None:
    """A package of version 1.0 with one module, as pip leaves it."""
    about = directory / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Provides-Extra: {each}" for each in extras] + [f"Requires-Dist: {each}" for each in needs]
    (about / "METADATA").write_text("".join(f"{line}\n" for line in lines))
    (about / "RECORD").write_text(f"{name}.py,,\n{about.name}/METADATA,,\n{about.name}/RECORD,,\n")
    (directory / f"{name}.py").touch()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages beside those of the environment."""
    directory = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(directory)
    return directory


def test_a_package_that_another_one_needs_must_be_installed(packages: Path) -> None:
    installed(packages, "aaa", "zzz (>=2)", "not-here; python_version < '3'", "bbb; python_version > '3'")
    installed(packages, "bbb")
    error = r"zzz is needed by aaa 1\.0, and is not installed here: install it \(pip install 'zzz>=2'\)"
    with pytest.raises(StreambenchError, match=error):
        needed_by("aaa")
    installed(packages, "zzz")
    assert {"aaa", "bbb", "zzz"} <= needed_by("aaa").keys()


def test_all_extras_that_are_asked_for_bring_their_packages(packages: Path) -> None:
    either = "ccc; extra == 'one' or extra == 'two-b'"
    both = "ddd; python_version > '3' and (extra == 'three' or extra == 'two-b')"
    installed(packages, "aaa", "bbb[two_b]", extras=("one",))
    installed(packages, "bbb", either, both, "eee; extra == 'one'", extras=("one", "two-b", "three"))
    for name in ("ccc", "ddd", "eee"):
        installed(packages, name)
    assert {"ccc", "ddd", "eee"}.isdisjoint(needed_by("bbb"))
    assert needed_by("bbb[one]").keys() & {"ccc", "ddd", "eee"} == {"ccc", "eee"}
    assert needed_by("aaa").keys() & {"ccc", "ddd", "eee"} == {"ccc", "ddd"}
    assert needed_by("bbb[one]\naaa").keys() & {"ccc", "ddd", "eee"} == {"ccc", "ddd", "eee"}


def test_markers_are_those_of_the_executors(packages: Path) -> None:
    markers = {
        "aaa": "python_version >= '3.13'",
        "bbb": "sys_platform == 'darwin' and platform_machine == 'arm64'",
        "ccc": "platform_machine == 'aarch64' and python_full_version < '3.12'",
    }
    installed(packages, "job", *(f"{name}; {marker}" for name, marker in markers.items()))
    for name in (*markers, "colorama"):  # which typer needs on Windows
        installed(packages, name)

    def found(*target: Any) -> set[str]:
        return needed_by("job", *target).keys() & markers.keys()

    assert found(["macosx_11_0_arm64"], "313") == {"aaa", "bbb"}
    assert found(["manylinux_2_28_aarch64"], "3.11") == {"ccc"}
    assert found(["win_amd64"], "3.12") == set()
    assert needed_by("aaa; python_version >= '3.13'", (), "3.12").keys() & {"aaa"} == set()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("msgspec==0.0.1", f"names msgspec==0.0.1, and {metadata.version('msgspec')} is installed here"),
        ("msgspec>=9999", f"names msgspec>=9999, and {metadata.version('msgspec')} is installed here"),
        ("no-such-package>=1", "names no-such-package, which is not installed here"),
        ("kafka-python[crc23c]", r"names kafka-python\[crc23c\], and .* has no such extra: give .*crc32c"),
        ("-r more.txt", "has the line '-r more.txt': write the packages themselves"),
        ("./here.whl", r"has the line '\./here\.whl', which is no requirement"),
    ],
)
def test_requirements_that_this_environment_does_not_meet_are_refused(line: str, error: str) -> None:
    with pytest.raises(StreambenchError, match=f"requirements.txt {error}"):
        needed_by(line)


def test_lines_are_read_as_pip_reads_them() -> None:
    version = metadata.version("msgspec")
    lines = [f"msgspec=={version} \\", "    --hash=sha256:0", "pika  # brokers", "httpx @ https://a/b#egg"]
    assert {"msgspec", "pika", "httpx"} <= needed_by("\n".join(lines)).keys()


def test_a_package_whose_files_are_not_known_is_refused(packages: Path, tmp_path: Path) -> None:
    installed(packages, "aaa")
    (packages / "aaa-1.0.dist-info" / "RECORD").unlink()
    with pytest.raises(StreambenchError, match=r"the files of aaa 1\.0 are not known.* install it with pip"):
        packed("aaa", tmp_path / "packages.zip")
    assert os.listdir(tmp_path) == ["site-packages"]


def test_another_machine_gets_the_same_versions_by_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    version = metadata.version("msgspec")
    foreign(wheels / f"msgspec-{version}-cp313-cp313-manylinux_2_17_aarch64.whl", "msgspec", version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    ours = {name: metadata.distribution(name) for name in ("streambench", "msgspec")}
    monkeypatch.setattr(dependencies, "needed_by", lambda *target: ours)
    path = tmp_path / "packages.zip"
    assert packed("", path, ["manylinux_2_17_aarch64"], "3.13") == 2
    names = zipfile.ZipFile(path).namelist()
    about = f"streambench-{metadata.version('streambench')}.dist-info/METADATA"
    assert {"msgspec/_core.so", "streambench/__init__.py", about} <= set(names)
    assert not [each for each in names if each.startswith("numpy/") or each.endswith(".pyc")]
    with pytest.raises(StreambenchError, match="pip does not get the packages: .*msgspec"):
        packed("", tmp_path / "other.zip", ["win_amd64"], "3.13")
    assert sorted(os.listdir(tmp_path)) == ["packages.zip", "wheels"]
    before = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("streambench/__init__.py", "mine")
    with pytest.raises(StreambenchError, match=r"packages\.zip is no archive of packages: name another"):
        packed("", path, ["manylinux_2_17_aarch64"], "3.13")
    path.write_bytes(before)
    assert packed("", path, ["manylinux_2_17_aarch64"], "3.13") == 2


def foreign(path: Path, name: str, version: str) -> None:
    about = f"{name}-{version}.dist-info"
    texts = {
        f"{name}/_core.so": "",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {path.stem.split('-', 2)[2]}\n",
    }
    record = "".join(f"{each},,\n" for each in [*texts, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for each, text in {**texts, f"{about}/RECORD": record}.items():
            wheel.writestr(each, text)


def test_the_lines_name_the_archive_of_packages(job: Job) -> None:
    made, packages = package(with_code(job).config), Path("job-packages.zip")
    first, line = submit_lines(made, Path("job.zip"), "yarn", None, packages)
    assert first.startswith("# Executors have the packages in job-packages.zip. The driver has them as the")
    assert f"--archives 'job-packages.zip#{FOLDER}'" in line and "environment.tar.gz" not in line
    with pytest.raises(ConfigError, match="on k8s the packages are part of the image"):
        submit_lines(made, Path("job.zip"), "k8s", None, packages)
