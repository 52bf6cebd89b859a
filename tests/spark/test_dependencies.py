"""The packages of a job as an archive: what is in it, and executors that have them from nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from streambench import ConfigError, StreambenchError
from streambench.spark import dependencies
from streambench.spark.dependencies import FOLDER, needed_by, write_dependencies
from streambench.spark.package import NEEDS, package
from streambench.spark.submit_lines import submit_command, submit_lines
from streambench.testing.spark_cluster import SparkCluster
from tests.spark.conftest import Job
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


@pytest.mark.usefixtures("spark_installed")
@pytest.mark.timeout(300)
def test_executors_without_any_package_run_a_job_with_its_dependencies(job: Job, tmp_path: Path) -> None:
    with_code(job)
    place = tmp_path / "where"
    (job.directory / "task.py").write_text(WHERE.format(place=str(place)))
    job.send(0, 10)
    archive, packages = written(job), job.directory / "job-packages.zip"
    made = package(job.config)
    write_dependencies(made.files[NEEDS].decode(), packages)
    without_code(job)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    lacking = [bare / "bin" / "python", "-c", "import streambench"]
    assert subprocess.run(lacking, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    with SparkCluster(tmp_path / "cluster", workers=1, cores=2) as cluster:
        command = submit_command(
            made, archive, archive.with_name(made.launcher), "standalone", cluster.master, packages
        )
        command[0] = str(Path(sys.executable).with_name("spark-submit"))
        pythons = [f"python={bare / 'bin' / 'python'}", f"driver.python={sys.executable}"]
        settings = [*QUIET, *(f"spark.pyspark.{each}" for each in pythons)]
        command[1:1] = [word for each in settings for word in ("--conf", each)]
        said = run(job, *command, "--json")
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(each["messages"] for each in found) == 10
    assert job.numbers() == [number**2 for number in range(10)]
    prefix, *files = place.read_text().split()
    assert prefix == str(bare)
    assert all(f"/{FOLDER}/" in each for each in files)


def test_what_is_packed_is_what_the_packages_need_without_spark() -> None:
    lines = ["streambench[spark,kafka]", "pyspark==1.0", "# mine", "--index-url https://a/b", "MsgSpec>=0.1"]
    found = needed_by("\n".join(lines))
    assert {"streambench", "kafka-python", "pandas", "numpy", "python-dateutil", "msgspec"} <= found.keys()
    assert not {"pyspark", "py4j", "pika"} & found.keys()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("msgspec==0.0.1", f"names msgspec 0.0.1, and {metadata.version('msgspec')} is installed here"),
        ("no-such-package>=1", "names no-such-package, which is not installed here"),
    ],
)
def test_requirements_that_this_environment_does_not_meet_are_refused(line: str, error: str) -> None:
    with pytest.raises(StreambenchError, match=f"requirements.txt {error}"):
        needed_by(line)


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
    monkeypatch.setattr(dependencies, "needed_by", lambda requirements: ours)
    path = tmp_path / "packages.zip"
    assert write_dependencies("", path, ["manylinux_2_17_aarch64"], "3.13") == 2
    names = zipfile.ZipFile(path).namelist()
    about = f"streambench-{metadata.version('streambench')}.dist-info/METADATA"
    assert {"msgspec/_core.so", "streambench/__init__.py", about} <= set(names)
    assert not [each for each in names if each.startswith("numpy/") or each.endswith(".pyc")]
    with pytest.raises(StreambenchError, match="pip does not get the packages: .*msgspec"):
        write_dependencies("", tmp_path / "other.zip", ["win_amd64"], "3.13")
    assert sorted(os.listdir(tmp_path)) == ["packages.zip", "wheels"]


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
    first, line = submit_lines(made, Path("job.zip"), Path("p.py"), "yarn", None, packages)
    assert first.startswith("# Executors have the packages in job-packages.zip. The driver has them as the")
    assert f"--archives 'job-packages.zip#{FOLDER}'" in line and "environment.tar.gz" not in line
    with pytest.raises(ConfigError, match="on k8s the packages are part of the image"):
        submit_lines(made, Path("job.zip"), Path("p.py"), "k8s", None, packages)
