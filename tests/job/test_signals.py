"""Ctrl-C, SIGTERM and SIGHUP: the first one stops a run cleanly, and none of the later ones is without
effect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

import streambench as sb
from streambench.job.signals import StopSignals
from tests.job.project import Project

AT_ONCE = "ended at once, since it could not be stopped; what was committed stays committed"
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

# What the command line is started with where nobody is to wait for long.
IMPATIENT = (
    "from streambench.job import signals; signals._PATIENCE_S = 0.01; from streambench.cli.app import main; "
    "main()"
)

# Reads no report of its containers before a stop was asked for.
INATTENTIVE = (
    "from streambench.job.processes import Processes; receive = Processes._receive; "
    "Processes._receive = lambda self, *report: self._stopping.wait() and receive(self, *report); "
    "from streambench.cli.app import main; main()"
)


def await_stuck(project: Project) -> None:
    """Wait until nothing that is raised ends the task: it tells a moment before it locks, for example."""
    process = psutil.Process(project.await_reached())
    while process.status() != psutil.STATUS_SLEEPING:
        os.sched_yield()


def heard(job: subprocess.Popen[str]) -> None:
    """Come back when the first signal has been answered."""
    assert job.stderr is not None
    assert "stopping after the message it is at" in job.stderr.readline()


@pytest.mark.parametrize("share", ["alone", "containers", "join"])
def test_a_stop_in_an_init_names_it_however_the_job_runs(project: Project, share: str) -> None:
    project.fill(10)
    project.pipes()
    project.configure({"task.class": "task.py:Prepares", "job.container.count": 1 + (share == "containers")})
    how = ["--join"] if share == "join" else []
    with project.start("run", "job.properties", "--quiet", *how) as job:
        project.await_reached()
        job.send_signal(INT)
        assert job.stderr is not None
        said = job.stderr.readline()
        assert "stopping after the init of " in said and "Partition 1; Ctrl-C once more" in said
        (project.directory / "gate").write_text("")
        job.communicate()
    assert job.returncode == 0


def test_a_stop_names_an_init_whose_report_was_not_read_yet(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(10)
    project.pipes()
    project.configure({"task.class": "task.py:Prepares", "job.container.count": 2})
    command = [sys.executable, "-c", INATTENTIVE]
    monkeypatch.setattr(project, "command", lambda *arguments: [*command, *arguments])
    with project.start("run", "job.properties", "--quiet") as job:
        project.await_reached()
        job.send_signal(INT)
        assert job.stderr is not None
        said = job.stderr.readline()
        (project.directory / "gate").write_text("")
        job.communicate()
    assert "stopping after the init of " in said and "Partition 1; Ctrl-C once more" in said
    assert job.returncode == 0


@pytest.mark.parametrize("task", ["Swallows", "Locks"])
def test_a_third_signal_ends_a_task_that_cannot_be_stopped(project: Project, task: str) -> None:
    project.fill(10)
    project.pipes()
    project.configure({"task.class": f"task.py:{task}"})
    with project.start("run", "job.properties", "--quiet") as job:
        await_stuck(project)
        job.send_signal(INT)
        heard(job)
        job.send_signal(INT)
        job.send_signal(TERM)
        _, errors = job.communicate()
    assert job.returncode in (
        128 + INT,
        128 + TERM,
    )  # which of two that wait comes first is the system's choice
    assert errors.split("\n") == ["", AT_ONCE, ""]
    project.configure()
    assert sb.run(project.config).messages == 10


@pytest.mark.parametrize(("task", "number"), [("Swallows", INT), ("Swallows", TERM), ("Locks", INT)])
def test_a_second_signal_ends_it_a_moment_later(
    project: Project, task: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(10)
    project.pipes()
    project.configure({"task.class": f"task.py:{task}"})
    monkeypatch.setattr(project, "command", lambda *arguments: [sys.executable, "-c", IMPATIENT, *arguments])
    with project.start("run", "job.properties", "--quiet") as job:
        await_stuck(project)
        job.send_signal(number)
        heard(job)
        job.send_signal(number)
        _, errors = job.communicate()
    assert job.returncode == 128 + number
    assert errors.endswith(f"{AT_ONCE}\n")


def test_the_processes_of_containers_do_not_outlive_a_run_that_is_ended(project: Project) -> None:
    project.fill(10)
    project.pipes()
    project.configure({"task.class": "task.py:Swallows", "job.container.count": 2})
    with project.start("run", "job.properties", "--quiet") as job:
        child = psutil.Process(project.await_reached())
        job.send_signal(INT)
        heard(job)
        job.send_signal(INT)
        job.communicate()
    assert job.returncode == 128 + INT
    assert not child.is_running()


def test_what_would_be_left_behind_is_killed_before_a_process_ends() -> None:
    code = (
        "import signal, time\nfrom streambench.job.signals import StopSignals\n"
        "with StopSignals(lambda: None, kill=lambda: print('killed', flush=True)):\n"
        "    for _ in range(9):\n        try: signal.raise_signal(signal.SIGTERM)\n        except "
        "KeyboardInterrupt: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "killed" in done.stdout) == (128 + TERM, True)


@pytest.fixture
def heeding_hangups() -> Iterator[None]:
    """Also where the tests were started with nohup."""
    before = signal.signal(HUP, signal.SIG_DFL)
    yield
    signal.signal(HUP, before)


@pytest.mark.parametrize("number", [INT, TERM, HUP])
def test_the_first_signal_stops_a_run_with_a_commit(
    project: Project, number: signal.Signals, heeding_hangups: None
) -> None:
    project.fill(10)
    raised = iter([lambda: signal.raise_signal(number)])
    result = sb.run(project.config, lambda: next(raised, lambda: None)())
    assert result.ended == "signal"
    assert sb.run(project.config).messages == 10 - result.messages


def test_the_end_of_the_terminal_does_not_reach_what_was_to_outlive_it(ignoring_hangups: None) -> None:
    with StopSignals(lambda: None):
        assert signal.getsignal(HUP) is signal.SIG_IGN


@pytest.fixture
def ignoring_hangups() -> Iterator[None]:
    before = signal.signal(HUP, signal.SIG_IGN)
    yield
    signal.signal(HUP, before)


def test_a_process_in_which_somebody_types_is_interrupted_but_never_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr("streambench.job.signals._PATIENCE_S", 0.0)
    asked: list[str] = []
    with StopSignals(lambda: asked.append("stop")):
        signal.raise_signal(INT)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(INT)
    assert asked == ["stop"]
