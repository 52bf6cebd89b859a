"""A run of the tests that is interrupted leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.conftest import CHECKOUT
from tests.reaper import MARK, lives

MOMENT_S = 0.05

LONG = """\
import os, pathlib, subprocess, time

def test_that_is_interrupted():
    here = pathlib.Path(__file__).parent
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    stopped = os.fork()
    if not stopped:
        time.sleep(1000)
    os.kill(stopped, 19)
    (here / "started.part").write_text(f"{os.getpid()} {away.pid} {stopped}")
    (here / "started.part").rename(here / "started")
    time.sleep(1000)
"""


def test_what_tests_have_started_ends_with_an_interrupted_run(tmp_path: Path) -> None:
    runs = {how: begin(tmp_path / how.name) for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)}
    started: list[psutil.Process] = []
    for how, run in runs.items():
        mark = tmp_path / how.name / "started"
        while not mark.exists():
            assert run.poll() is None
            time.sleep(MOMENT_S)
        started += [psutil.Process(int(each)) for each in mark.read_text().split()]
    for how, run in runs.items():
        if how == signal.SIGINT:  # a terminal sends it to all of them
            os.killpg(run.pid, how)
        else:
            run.send_signal(how)
    for run in runs.values():
        run.wait()
    while any(lives(each) for each in started):
        time.sleep(MOMENT_S)


def begin(directory: Path) -> subprocess.Popen[bytes]:
    """A run of a test that waits for ever."""
    directory.mkdir()
    (directory / "test_long.py").write_text(LONG)
    environment = {
        name: value for name, value in os.environ.items() if name != MARK and not name.startswith("PYTEST_")
    }
    # No other plug-ins: to import them takes longer than all else, in each of six processes.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "-p", "tests.reaper", "-p", "xdist", "-n", "1", "--rootdir", "."]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "test_long.py"],
        cwd=directory,
        env={**environment, "PYTHONPATH": str(CHECKOUT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
