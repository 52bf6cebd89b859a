"""``streambench streams repair``: what it says, asks and does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streambench.cli.app import app
from streambench.system.log import open_log


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A job's file; the last batch of its stream is damaged."""
    with open_log(tmp_path / "streams") as streams:
        streams.create("clicks")
        clicks = streams.partition("clicks", 0)
        clicks.append(None, [b"1", b"2"])
        clicks.append(None, [b"3", b"4"])
        clicks.flush()
    path = tmp_path / "streams" / "clicks" / "0" / f"{0:020d}.arrow"
    data = bytearray(path.read_bytes())
    data[-70] ^= 1
    path.write_bytes(data)
    job = tmp_path / "job.properties"
    job.write_text("task.inputs=log.clicks\nsystems.log.samza.factory=log\nsystems.log.path=streams\n")
    return job


def repaired(job: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["streams", "repair", "log.clicks", "-c", str(job), *options])
    return result.exit_code, result.output


def test_a_dry_run_says_what_is_lost_and_changes_nothing(damaged: Path) -> None:
    code, output = repaired(damaged, "--dry-run", "--json")
    (row,) = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert (row["stream"], row["partition"], row["first"], row["last"], row["messages"]) == (
        "log.clicks",
        0,
        2,
        3,
        2,
    )
    assert row["bytes"] > 0 and not os.path.exists(row["aside"])
    assert repaired(damaged, "--dry-run", "--json")[1] == output


def test_without_a_terminal_nothing_is_given_up_unasked(damaged: Path) -> None:
    code, output = repaired(damaged)
    assert code == 2 and "give --yes" in output


def test_a_repair_says_what_was_given_up_and_where_it_is(damaged: Path) -> None:
    code, output = repaired(damaged, "--yes", "--partition", "0")
    assert code == 0 and "at most 2 messages" in output and ".damaged" in output
    assert repaired(damaged, "--yes") == (0, "log.clicks is whole: nothing to repair\n")
    with open_log(damaged.parent / "streams") as streams:
        assert streams.partition("clicks", 0).append(None, [b"new"]) == range(4, 5)


def test_a_partition_that_is_not_there_is_told(damaged: Path) -> None:
    assert repaired(damaged, "--partition", "3")[0] != 0
