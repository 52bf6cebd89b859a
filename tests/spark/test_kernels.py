"""Deployments from a kernel: whatever ends them, no process of theirs stays behind."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty

import psutil
import pytest
from jupyter_client.manager import KernelManager

from tests.spark.conftest import Job, connect_port, environment_of_programs
from tests.surroundings import SOAK, only_soak

MARK = "STREAMBENCH_TEST_OF_KERNELS"

CELL = """
import json, os, threading
from pathlib import Path
from streambench import Config
from streambench.spark import deploy

CONFIG = Config(json.loads(Path("config.json").read_text()))

class Stuck:
    def process(self, envelope, collector, coordinator):
        Path(DIRECTORY, "stuck").write_text(str(os.getpid()))
        threading.Event().wait()

class Failing:
    def process(self, envelope, collector, coordinator):
        raise ValueError("of the task")
"""

CLASSIC = "spark, master = None, 'local[2]'"
CONNECT = """
from pyspark.sql import SparkSession
spark, master = SparkSession.builder.remote("local[2]").getOrCreate(), None
"""


class Kernel:
    """A kernel in the directory of a job. All processes that it ever started can be found."""

    def __init__(self, directory: Path) -> None:
        self._mark = uuid.uuid4().hex
        self.directory = directory
        self.manager = KernelManager(kernel_name="python3")
        environment = {**environment_of_programs(), MARK: self._mark}
        self.manager.start_kernel(cwd=str(directory), env=environment)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code: str) -> str:
        """Run a cell to its end; the name of the exception that it raised, or nothing."""
        return self.ended(self.client.execute(code))

    def ended(self, request: str) -> str:
        while True:
            reply = self.client.get_shell_msg(timeout=240)
            if reply["parent_header"].get("msg_id") == request:
                return str(reply["content"].get("ename", ""))

    def begin(self, code: str) -> str:
        """Begin a cell that gets stuck in a container, and return when it is."""
        (self.directory / "stuck").unlink(missing_ok=True)
        request = self.client.execute(code)
        while not (self.directory / "stuck").exists():
            with suppress(Empty):
                reply = self.client.get_shell_msg(timeout=0.1)
                pytest.fail(f"it has ended: {reply['content']}")
        return request

    def processes(self) -> list[psutil.Process]:
        """Those that the kernel has started, and it."""
        return [each for each in psutil.process_iter() if self._is_of_it(each)]

    def _is_of_it(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return process.environ().get(MARK) == self._mark
        return False


@pytest.fixture
def kernel(spark_installed: None, job: Job) -> Iterator[Kernel]:
    job.send(0, 4)
    (job.directory / "config.json").write_text(json.dumps(dict(job.config)))
    with connect_port():
        kernel = Kernel(job.directory)
        yield kernel
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=True)
        kernel.manager.cleanup_resources()
        for each in kernel.processes():
            each.kill()


ON_CONNECT = pytest.param(CONNECT, marks=only_soak("test_standalone.py interrupts a deployment on Connect"))


@pytest.mark.parametrize("session", [CLASSIC, ON_CONNECT], ids=["classic", "connect"])
def test_no_process_is_left_of_what_failed_was_interrupted_or_killed(
    kernel: Kernel, job: Job, session: str
) -> None:
    assert kernel.run(CELL.replace("DIRECTORY", repr(str(job.directory)))) == ""
    assert kernel.run(session) == ""
    if SOAK or session == CONNECT:  # else a Spark of its own, which ends like that of the next
        assert kernel.run("deploy(CONFIG, Failing, spark=spark, master=master)") == "DeployTaskError"
        assert session == CONNECT or len(kernel.processes()) == 1
    stuck = "deploy(CONFIG, Stuck, spark=spark, master=master)"
    request = kernel.begin(stuck)
    container = int((job.directory / "stuck").read_text())
    kernel.manager.interrupt_kernel()
    assert kernel.ended(request) == "KeyboardInterrupt"
    assert container not in [each.pid for each in kernel.processes()]
    if session == CLASSIC:
        assert len(kernel.processes()) == 1
    kernel.begin(stuck)
    started = kernel.processes()
    assert len(started) > 2
    kernel.manager.restart_kernel(now=True)
    assert psutil.wait_procs(started, timeout=60)[1] == []
    assert not any(job.checkpoints().values())
