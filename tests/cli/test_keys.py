"""What a configuration may say can be looked up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streambench.cli.app import app
from streambench.cli.output import show_rows
from streambench.config_keys import KEYS
from streambench.metrics.catalogue import METRICS
from streambench.system.file import FileSystemFactory
from streambench.system.log import LogSystemFactory
from tests.cli.terminal_screen import stdout_of_columns
from tests.job.project import Project
from tests.keys_page import PAGE, page


def listed(project: Project, *arguments: str) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in map(json.loads, project.ok("keys", *arguments, "--json").splitlines())}


def test_all_keys_are_listed_with_default_and_meaning(project: Project) -> None:
    rows = listed(project)
    assert [key for key in rows if key in {each.pattern for each in KEYS}] == [each.pattern for each in KEYS]
    assert rows["task.processing.guarantee"]["values"] == ["at-least-once", "exactly-once"]
    assert rows["task.commit.ms"]["default"] == "60000"


def test_the_keys_of_the_systems_that_come_with_it_are_listed(project: Project) -> None:
    rows = listed(project, "systems.<s>.")
    for factory in (LogSystemFactory, FileSystemFactory):
        assert factory.keys == {
            each.pattern.removeprefix("systems.<s>.")
            for each in factory.settings
            if "<t>" not in each.pattern
        }
        assert all(each.pattern in rows and each.meaning for each in factory.settings)
    assert rows["systems.<s>.fsync"]["values"] == ["flush", "batch", "never"]
    assert (rows["systems.<s>.linger.ms"]["default"], rows["systems.<s>.linger.ms"]["kind"]) == (
        "250",
        "integer",
    )
    assert rows["systems.<s>.path"]["default"] is None
    assert rows["systems.<s>.streams.<t>.retention.ms"]["meaning"] == "as for the log system"


def test_keys_are_found_by_a_part_of_their_name_or_meaning(project: Project) -> None:
    table = project.ok("keys", "dead")
    assert "task.dead.letter.stream" in table and "task.inputs" not in table
    assert "no key has 'deaf'" in project.fails("keys", "deaf")


def test_keys_are_found_whatever_the_case_the_hyphens_and_the_blanks(project: Project) -> None:
    found = listed(project, "exactly-once")
    assert "task.processing.guarantee" in found
    assert listed(project, "exactly once") == listed(project, "EXACTLY-Once") == found


def test_a_missing_path_is_said_to_be_what_it_is_with_an_example(project: Project) -> None:
    project.configure({"systems.log.path": None})
    missing = (
        "systems.log.path: is missing (the directory that holds the streams, such as "
        "systems.log.path=streams)"
    )
    assert missing in project.fails("streams", "list", "-c", "job.properties")
    project.configure({"systems.log.path": None, "systems.log.samza.factory": "file"})
    assert "such as systems.log.path=data)" in project.fails("run", "job.properties")


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, *arguments: str) -> list[str]:
    """What the command line shows on a terminal of so many columns, line by line."""
    terminal = stdout_of_columns(monkeypatch, columns)
    app(arguments, prog_name="streambench", standalone_mode=False)
    return [line.rstrip() for line in terminal.getvalue().splitlines()]


@pytest.mark.parametrize("columns", [30, 80, 120, 200])
def test_a_key_is_whole_however_narrow_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    words = [line.split()[0] for line in on_a_terminal(monkeypatch, columns, "keys")]
    assert {each.pattern for each in KEYS} <= set(words)


@pytest.mark.parametrize("columns", [80, 150])
def test_the_name_of_a_metric_is_whole_on_every_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    words = {word for line in on_a_terminal(monkeypatch, columns, "metrics") for word in line.split()[:2]}
    assert {f"{each.group}.{each.pattern}" for each in METRICS} <= words


def test_where_a_table_does_not_fit_the_meaning_stands_below_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_a_terminal(monkeypatch, 60, "keys", "timer.enabled") == [
        "metrics.timer.enabled",
        "    kind: text, default: sampled, values: true | false |",
        "    sampled",
        "    true: every call of process(), of the chooser and of",
        "    stores is timed; sampled: some calls of process(), at no",
        "    cost; false: none",
    ]


def test_where_a_table_fits_only_the_meaning_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_a_terminal(monkeypatch, 100, "keys", "timer.enabled") == [
        "key                    kind  default  values                  meaning",
        "metrics.timer.enabled  text  sampled  true | false | sampled  true: every call of process(), of the",
        "                                                              chooser and of stores is timed;",
        "                                                              sampled: some calls of process(), at",
        "                                                              no cost; false: none",
    ]


def test_the_reference_page_has_the_keys_of_today() -> None:
    assert PAGE.read_text() == page(), "python -m tests.keys_page --write"


def test_a_table_without_prose_loses_nothing_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stdout_of_columns(monkeypatch, 40)
    row = {"task": "Partition 0", "stream": "log.flights-of-airports", "time": "2026-11-26T16:43:02.521"}
    show_rows([row], tuple(row), as_json=False)
    assert all(text in terminal.getvalue() for text in (*row, *row.values()))
