"""Metrics on the command line: what there is, and a job that reports them."""

from __future__ import annotations

import json
import re
import signal
import urllib.request

from streambench.metrics.catalogue import METRICS
from tests.job.project import Project

ALL_THREE = {
    "metrics.reporters": "s,l,p",
    "metrics.reporter.s.class": "snapshot",
    "metrics.reporter.s.stream": "log.metrics",
    "metrics.reporter.l.class": "log",
    "metrics.reporter.p.class": "prometheus",
    "metrics.reporter.p.interval": "0.1",
}


def test_all_metrics_are_listed_with_unit_and_meaning(project: Project) -> None:
    rows = [json.loads(line) for line in project.ok("metrics", "--json").splitlines()]
    assert len(rows) == len(METRICS)
    assert rows[0] == {
        "of": "container", "name": "container.process-envelopes", "kind": "counter", "unit": "messages",
        "meaning": "chosen and given to tasks; a broadcast message once",
    }  # fmt: skip
    assert "container.commit-ns" in project.ok("metrics")


def test_a_job_reports_to_a_stream_to_prometheus_and_to_the_terminal(project: Project) -> None:
    project.configure({**ALL_THREE, "task.class": "task.py:Tells"})
    project.fill(10, partitions=2)
    project.pipes()
    with project.start("run", "job.properties") as running:
        assert running.stderr is not None
        url = re.search(
            r"info: metrics of container 0 of up-1: (http://127\.0\.0\.1:\d+/metrics)",
            running.stderr.readline(),
        )
        assert url is not None
        project.await_reached()
        while 'process_envelopes_total{container="0",job_id="1",job_name="up"} 10.0' not in (
            text := _scraped(url[1])
        ):
            pass
        running.send_signal(signal.SIGINT)
        out, errors = running.communicate(timeout=60)
    assert "# HELP streambench_container_commit_ns nanoseconds: per commit" in text
    assert "10 messages" in out
    assert "info: metrics of up-1, samza-container-0: container.process-envelopes=10 " in errors
    told = [
        row["message"] for row in project.rows("peek", "log.metrics", "--from", "oldest", "--limit", "100")
    ]
    assert {each["header"]["source"] for each in told} == {
        "samza-container-0",
        "TaskName-Partition 0",
        "TaskName-Partition 1",
    }
    assert told[0]["metrics"]["container"]["process-envelopes"] == 10


def _scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def test_containers_in_processes_of_their_own_report_each_for_itself(project: Project) -> None:
    project.configure({**ALL_THREE, "job.container.count": 2})
    project.fill(10, partitions=2)
    with project.start("run", "job.properties", "--until", "caught-up") as running:
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert len(set(re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", errors))) == 2
    told = [
        row["message"] for row in project.rows("peek", "log.metrics", "--from", "oldest", "--limit", "100")
    ]
    last = {
        each["header"]["container-name"]: each
        for each in told
        if each["header"]["source"].startswith("samza")
    }
    assert [last[name]["metrics"]["container"]["process-envelopes"] for name in sorted(last)] == [5, 5]


def test_a_reporter_that_is_not_known_is_an_error_of_one_line(project: Project) -> None:
    project.configure({"metrics.reporters": "a", "metrics.reporter.a.class": "promtheus"})
    project.fill(1)
    error = project.fails("run", "job.properties", "--until", "caught-up")
    assert (
        error
        == "error: metrics.reporter.a.class (job.properties:10): there is no 'promtheus'; did you mean "
           "prometheus?"
    )


def test_an_address_that_cannot_be_listened_on_is_told_by_its_key(project: Project) -> None:
    project.configure(
        {
            "metrics.reporters": "a",
            "metrics.reporter.a.class": "prometheus",
            "metrics.reporter.a.host": "300.1.1.1",
        }
    )
    project.fill(1)
    assert "metrics.reporter.a.port: cannot listen on 300.1.1.1:0" in project.fails(
        "run", "job.properties", "--until", "caught-up"
    )
