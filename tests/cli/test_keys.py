"""What a configuration may say can be looked up."""

from __future__ import annotations

import json

from streambench.config_keys import KEYS
from tests.job.project import Project


def test_all_keys_are_listed_with_default_and_meaning(project: Project) -> None:
    rows = {row["key"]: row for row in map(json.loads, project.ok("keys", "--json").splitlines())}
    assert list(rows) == [each.pattern for each in KEYS]
    assert rows["task.processing.guarantee"]["values"] == ["at-least-once", "exactly-once"]
    assert rows["task.commit.ms"]["default"] == "60000"


def test_keys_are_found_by_a_part_of_their_name_or_meaning(project: Project) -> None:
    table = project.ok("keys", "dead")
    assert "task.dead.letter.stream" in table and "task.inputs" not in table
    assert "no key has 'deaf'" in project.fails("keys", "deaf")
