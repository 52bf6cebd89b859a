"""TAB on the line of a magic."""

from __future__ import annotations

import pytest

from tests.magics.conftest import Shell


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%stream sh", ["show"]),
        ("%stream st", ["step", "stop", "streams"]),
        ("found = %stream pe", ["peek"]),
        ("%stream create --task ", ["Count"]),
        ("%stream create x --config i", ["inputs"]),
        ("%stream create x --ta", ["--task"]),
        ("%stream step Co", ["Count"]),
        ("%stream run Count --until ", ["caught-up"]),
        ("%stream attach Count mem.c", ["mem.clicks"]),
        ("%stream peek mem", ["mem.clicks"]),
        ("%stream peek mem.clicks --from ", ["newest", "oldest"]),
        ("%stream send mem.clicks --from nu", ["numbers"]),
        ("%stream deploy --master local[", ["local[*]", "local[2]"]),
        ("%stream help dep", ["deploy"]),
        ("%stream streams cr", ["create"]),
        ("%%streamtask Count --c", ["--class"]),
    ],
)
def test_what_may_stand_there_is_offered_and_nothing_else(ip: Shell, line: str, offered: list[str]) -> None:
    ip.run("numbers = [1, 2]")
    ip.run("%stream create Count --config inputs")
    assert ip.completions(line) == offered


def test_an_option_is_offered_once(ip: Shell) -> None:
    assert "--config" not in ip.completions("%stream create x --config inputs --")


def test_other_lines_are_left_alone(ip: Shell) -> None:
    ip.run("streams_of_mine = 1")
    assert "streams_of_mine" in ip.completions("streams_of")
    assert "%stream" in ip.completions("%strea")
