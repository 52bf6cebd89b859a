"""``streams --groups``: the jobs that read streams, wherever their checkpoints are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streambench.cli.app import app

TASK = """
import streambench as sb

class Ignore(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        pass
"""
JOB = """
job.name=reader
task.class=task.py:Ignore
task.inputs=log.plain
task.broadcast.inputs=log.shared#0
systems.log.samza.factory=log
systems.log.path=data
systems.log.samza.offset.default=oldest
systems.log.streams.plain.partitions=2
"""


def done(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_broadcast_partition_is_shown_with_each_task_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    job = tmp_path / "job.properties"
    job.write_text(JOB)
    for stream in ("log.plain", "log.shared"):
        done("streams", "create", stream, "-c", str(job))
    done("run", str(job), "--until", "caught-up")
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in done("streams", "--groups", "--json", "-c", str(job)).splitlines()
    ]
    assert [(row["group"], row["task"], row["stream"], row["partition"]) for row in rows] == [
        ("reader-1", "Partition 0", "log.plain", 0),
        ("reader-1", "Partition 0", "log.shared", 0),
        ("reader-1", "Partition 1", "log.plain", 1),
        ("reader-1", "Partition 1", "log.shared", 0),
    ]
    assert "task" in done("streams", "--groups", "-c", str(job)).splitlines()[0]


def test_a_job_with_damaged_checkpoints_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "task.py").write_text(TASK)
    job, other = tmp_path / "job.properties", tmp_path / "other.properties"
    job.write_text(JOB)
    other.write_text(JOB.replace("job.name=reader", "job.name=broken"))
    for stream in ("log.plain", "log.shared"):
        done("streams", "create", stream, "-c", str(job))
    done("run", str(job), "--until", "caught-up")
    done("run", str(other), "--until", "caught-up")
    records = [each for each in (tmp_path / "data/_jobs/broken-1/generations").iterdir() if each.is_file()]
    for record in records:
        record.write_bytes(b"damaged")
    result = CliRunner().invoke(app, ["streams", "--groups", "--json", "-c", str(job)])
    assert result.exit_code == 0, result.output
    assert {json.loads(line)["group"] for line in result.stdout.splitlines()} == {"reader-1"}
    assert "the group broken-1 is left out" in caplog.text and str(records[0]) in caplog.text
