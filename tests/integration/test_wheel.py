"""A wheel, built from the checkout and installed into an environment with nothing but its dependencies, and
used in an empty folder."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import CHECKOUT

BUILT_FROM = (
    "streambench",
    "magics",
    "benchmarks",
    "notebooks/data",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)


def dependencies(name: str = "streambench") -> Iterator[importlib.metadata.Distribution]:
    """The requirements of a distribution without any extra, and theirs."""
    for line in importlib.metadata.requires(name) or []:
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield importlib.metadata.distribution(needed.name)
            yield from dependencies(needed.name)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of programs of the environment."""
    directory = tmp_path_factory.mktemp("wheel")
    source, wheels, there = directory / "source", directory / "dist", directory / "venv"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for name in BUILT_FROM:
        path, target = CHECKOUT / name, source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, target, ignore=ignored) if path.is_dir() else shutil.copyfile(path, target)
    program = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
    wheels.mkdir()
    built = subprocess.run(
        [sys.executable, "-c", program, wheels], cwd=source, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    venv.create(there)
    pip = [sys.executable, "-m", "pip", "--python", there / "bin" / "python", "install", "-q"]
    pip += ["--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    done = subprocess.run([*pip, next(wheels.glob("*.whl"))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # What pip would fetch is linked to what is installed here, as a test has no network.
    packages = next(there.glob("lib/python*/site-packages"))
    for each in dependencies():
        for top in {file.parts[0] for file in each.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(each.locate_file(top))
    return there / "bin"


def used(installed: Path, directory: Path, *arguments: str) -> str:
    """Run a command in an empty folder and return its output."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    }
    program = [installed / "streambench", *arguments]
    done = subprocess.run(
        program, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_the_demo_runs_from_a_wheel_and_without_spark(installed: Path, tmp_path: Path) -> None:
    said = used(installed, tmp_path, "demo", "--times", "1")
    assert "sent 20,000 flights to log.flights" in said
    assert "pip install 'streambench[spark]'; without Spark, the rest is processed here" in said
    assert "every flight counted exactly once: 20,000 flights, 220 airports" in said


def test_the_benchmarks_run_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    assert "--messages" in used(installed, tmp_path, "bench", "--help")
    said = used(
        installed,
        tmp_path,
        "bench",
        "container",
        "--messages",
        "12000",
        "--rounds",
        "1",
        "--json",
        "figures.json",
    )
    assert "streambench: Python" in said
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_a_wheel_adds_no_package_of_a_common_name(installed: Path) -> None:
    packages = next(installed.parent.glob("lib/python*/site-packages"))
    record = next(packages.glob("streambench-*.dist-info/RECORD")).read_text()
    tops = {line.split(",")[0].split("/")[0] for line in record.splitlines()}
    assert {each for each in tops if "." not in each} == {
        "streambench",
        "streambench_magics",
        "streambench_benchmarks",
    }
