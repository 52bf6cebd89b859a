"""Programs that deploy their own classes. Each of these tests has a Spark of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest

from tests.spark.conftest import Job, environment_of_programs, of_session
from tests.surroundings import SOAK, only_soak


def run_script(directory: Path, text: str) -> list[str]:
    """Run a program of its own in this environment; the lines that it prints. It leaves no process."""
    program = start(directory, text)
    said, noise = ended(program)
    assert program.returncode == 0, said + noise
    assert psutil.wait_procs(of_session(program.pid), timeout=60)[1] == []
    return [*said.splitlines(), *(f"stderr: {line}" for line in noise.splitlines())]


def ended(program: subprocess.Popen[str]) -> tuple[str, str]:
    """Its output and its errors, when it has ended; it ends with the test."""
    try:
        return program.communicate()
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


def start(directory: Path, text: str, command: list[str | Path] | None = None) -> subprocess.Popen[str]:
    script = directory / "program.py"
    script.write_text(text)
    return subprocess.Popen(
        command or [sys.executable, script],
        cwd=directory,
        env=environment_of_programs(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


NOTHING_LEFT = """
    import psutil
    _, left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=60)
    print(len(left), "processes left")
"""

PROGRAM = """
import json
import time
from pathlib import Path
from threading import Thread
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import SparkContext
from streambench import Config, OutgoingMessageEnvelope, StreambenchError, SystemStream
from streambench.spark import deploy, open_session

OUT = SystemStream("log", "out")
HERE = Path({directory!r})
config = Config(json.loads((HERE / "config.json").read_text()))

def wait_for(name):
    while not (HERE / name).exists():
        time.sleep(0.01)

class Square:
    def process(self, envelope, collector, coordinator):
        (HERE / "first-runs").touch()
        wait_for("second-runs")
        print("what a task prints is Spark's")
        collector.send(OutgoingMessageEnvelope(OUT, envelope.message ** 2))

class Waits:
    def process(self, envelope, collector, coordinator):
        wait_for("first-ended")

class Second(Thread):
    '''Deploys another job while the first one uses the session.'''

    def run(self):
        self.result = None
        try:
            other = config.with_values({{"job.name": "other"}})
            self.result = deploy(other, Waits, progress=self.show)
        finally:
            self.go_on()

    def show(self, progress):
        if progress.stage == "running":
            self.go_on()

    def go_on(self):
        (HERE / "second-runs").touch()

second = Second()

def show(progress):
    # Only now: with one core for both, the second one would be first otherwise.
    if (HERE / "first-runs").exists() and second.ident is None:
        second.start()

if __name__ == "__main__":
    # As a session that has ended leaves it, with a JVM that has died since.
    SparkContext._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=1))
    SparkContext._jvm = SparkContext._gateway.jvm
    result = deploy(config, Square, master={master!r}, progress=show)
    print(json.dumps([result.messages, result.rounds, [each.number for each in result.containers]]))
    # What the last container has printed, of which Spark keeps nothing, or only while the session lives.
    print(Path(result.containers[1].log).read_text().splitlines())
    spark = open_session()
    (HERE / "first-ended").touch()
    second.join()
    print(second.result.messages, spark.range(3).count())
    spark.stop()
    {left}
    try:
        refused = config.with_values({{"job.name": "refused", "spark.executor.memory": "10m"}})
        deploy(refused, Square, master="local[2]")
    except StreambenchError as error:
        print(error)
    {left}
"""

# In make test the cluster alone: it starts all that a local master starts, and executors.
MASTERS = ["local-cluster[1,1,512]", *(["local[2]"] if SOAK else [])]


@pytest.mark.usefixtures("spark_installed")
@pytest.mark.parametrize("master", MASTERS)
def test_a_program_deploys_its_own_class_and_leaves_no_noise_or_process(job: Job, master: str) -> None:
    """Two of its deployments share a session, which then is its own until it stops it."""
    job.send(0, 20)
    (job.directory / "config.json").write_text(json.dumps(dict(job.config)))
    installed = files_of_spark()
    text = PROGRAM.format(directory=str(job.directory), master=master, left=NOTHING_LEFT)
    *said, refused, left = run_script(job.directory, text)
    assert said == [
        "[20, 1, [0, 1]]",
        str(["what a task prints is Spark's"] * 10),
        "20 3",
        "0 processes left",
    ]
    assert job.numbers() == [number**2 for number in range(20)]
    assert left == "0 processes left"
    assert re.fullmatch(r"Spark does not start on local\[2\]: .*[Ee]xecutor memory 10485760 .*", refused)
    assert files_of_spark() == installed


def files_of_spark() -> set[str]:
    """The names of all that lies where Spark is installed, into which a local cluster would write."""
    return {each.name for each in Path(pyspark.__file__).parent.iterdir()} - {"__pycache__"}


SUBMITTED = """
import json
from pathlib import Path
from streambench import Config
from streambench.spark import deploy

class Nothing:
    def process(self, envelope, collector, coordinator):
        pass

if __name__ == "__main__":
    config = Config(json.loads(Path("config.json").read_text()))
    for _ in range(2):
        result = deploy(config, Nothing)
        print(result.master or "idle", result.messages)
    try:
        deploy(config.with_values({"job.name": "other"}), Nothing, master="local[7]")
    except Exception as error:
        print(error)
"""


@only_soak("test_dependencies.py runs a program of spark-submit")
@pytest.mark.usefixtures("spark_installed")
def test_a_program_of_spark_submit_runs_on_the_master_it_was_given(job: Job) -> None:
    """It keeps one session, whose progress bars leave the program's own output alone."""
    job.send(0, 20)
    (job.directory / "config.json").write_text(json.dumps(dict(job.config)))
    command = [Path(sys.executable).with_name("spark-submit"), "--master", "local[2,3]", "program.py"]
    options = ["spark.ui.enabled=false", "spark.ui.showConsoleProgress=true", "spark.log.level=WARN"]
    for each in options:
        command[1:1] = ["--conf", each]
    said, noise = ended(start(job.directory, SUBMITTED, command))
    assert said.splitlines()[:2] == ["local[2,3] 20", "idle 0"], noise
    assert said.splitlines()[2].startswith("there is an active Spark session on local[2,3], and this process")
    assert "Stage" not in noise


STUCK = (
    """
import json
import sys
import threading
from pathlib import Path
from streambench import Config
from streambench.spark import deploy

class Stuck:
    def process(self, envelope, collector, coordinator):
        Path("stuck").touch()
        threading.Event().wait()

if __name__ == "__main__":
    try:
        deploy(Config(json.loads(Path("config.json").read_text())), Stuck, master="local[2]")
    except KeyboardInterrupt:
        print("interrupted")
"""
    + NOTHING_LEFT
)


@pytest.mark.usefixtures("spark_installed")
def test_ctrl_c_in_a_terminal_leaves_no_process(job: Job) -> None:
    """A terminal sends it to the program and to everything that the program has started."""
    job.send(0, 4)
    (job.directory / "config.json").write_text(json.dumps(dict(job.config)))
    program = start(job.directory, STUCK.replace('Path("stuck")', f"Path({str(job.directory / 'stuck')!r})"))
    try:
        while not (job.directory / "stuck").exists():
            with suppress(subprocess.TimeoutExpired):
                program.wait(0.1)
                pytest.fail(f"it has ended: {program.communicate()}")
        os.killpg(program.pid, signal.SIGINT)
        said, noise = program.communicate(timeout=120)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
    assert (said.splitlines(), noise) == (["interrupted", "0 processes left"], "")
    assert not any(job.checkpoints().values())
