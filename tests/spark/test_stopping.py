"""Stopping a deployment at its weakest moments, from outside. Each of these tests is a command, hence a JVM,
of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.spark.conftest import CHECKOUT, Job, of_session
from tests.surroundings import only_soak

TASK = """
import threading
from pathlib import Path

class Stuck:
    def process(self, envelope, collector, coordinator):
        (Path(__file__).parent / "stuck").touch()
        threading.Event().wait()
"""

Moment = Callable[[subprocess.Popen[str], Path], object]


@pytest.fixture
def deployment(spark_installed: None, job: Job) -> Iterator[subprocess.Popen[str]]:
    """``streambench deploy`` in a session of its own, of a task that waits for ever. What is left of it is
    killed afterwards."""
    job.send(0, 4)
    (job.directory / "task.py").write_text(TASK)
    (job.directory / "temporary").mkdir()
    settings = {**job.config, "task.class": "task.py:Stuck"}
    (job.directory / "job.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in settings.items())
    )
    command = [sys.executable, "-m", "streambench", "deploy", "job.properties", "--master", "local[2]"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(job.directory / "temporary")}
    with subprocess.Popen(
        command,
        cwd=job.directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        yield program
        for each in [program, *of_session(program.pid)]:
            each.kill()


def has_a_child(program: subprocess.Popen[str], directory: Path) -> bool:
    return bool(of_session(program.pid))


def has_a_jvm(program: subprocess.Popen[str], directory: Path) -> bool:
    """Spark's launcher is a JVM as well, but not one that would stay."""
    try:
        return any(
            "org.apache.spark.deploy.SparkSubmit" in each.cmdline() and each.name() == "java"
            for each in of_session(program.pid)
        )
    except psutil.Error:
        return False


def is_at_work(program: subprocess.Popen[str], directory: Path) -> bool:
    return (directory / "stuck").exists()


@pytest.mark.parametrize(
    ("number", "moment", "send"),
    [
        (signal.SIGINT, has_a_child, os.kill),
        (signal.SIGINT, has_a_jvm, os.kill),
        (signal.SIGTERM, has_a_jvm, os.kill),
        # As a service manager does: the JVM ends by itself. In test_programs.py a terminal sends Ctrl-C so.
        pytest.param(signal.SIGTERM, is_at_work, os.killpg, marks=only_soak("a terminal sends Ctrl-C so")),
    ],
)
def test_whenever_a_deployment_is_stopped_nothing_of_it_is_left(
    deployment: subprocess.Popen[str],
    job: Job,
    number: signal.Signals,
    moment: Moment,
    send: Callable[[int, int], None],
) -> None:
    while not moment(deployment, job.directory):
        with suppress(subprocess.TimeoutExpired):
            deployment.wait(0.02)
            pytest.fail(f"it has ended: {deployment.communicate()}")
    send(deployment.pid, number)
    _, noise = deployment.communicate(timeout=120)
    assert psutil.wait_procs(of_session(deployment.pid), timeout=60)[1] == []
    assert deployment.returncode == 130, noise
    assert noise.endswith("interrupted; what was committed stays committed\n") and "Traceback" not in noise
    assert list((job.directory / "temporary").iterdir()) == []
    assert not any(job.checkpoints().values())
