"""The end of the processes of a Spark cluster, shown on programs that need no Java."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streambench.testing.spark_cluster import SparkCluster

STUBBORN = "trap '' TERM; sleep 60 & echo ready; wait"
ENDED = "sleep 60 & echo ready"


Launch = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def launch() -> Iterator[Launch]:
    with ExitStack() as stack:

        def running(program: str) -> subprocess.Popen[bytes]:
            command = ["sh", "-c", program]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
            stack.enter_context(process)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            return process

        yield running


def cluster_of(directory: Path, *processes: subprocess.Popen[bytes]) -> SparkCluster:
    cluster = SparkCluster(directory)
    cluster._processes.update((str(each.pid), each) for each in processes)
    return cluster


def test_processes_end_where_their_end_is_interrupted(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [launch(STUBBORN), launch(STUBBORN)]
    cluster = cluster_of(tmp_path, *processes)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cluster.stop()
    assert [each.poll() for each in processes] == [-9, -9]


def test_what_an_ended_process_has_started_ends(launch: Launch, tmp_path: Path) -> None:
    process = launch(ENDED)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    cluster_of(tmp_path, process).stop()
    assert process.returncode == 0
    assert process.stdout is not None
    assert process.stdout.read() == b""  # the end of the pipe: no process has it open
