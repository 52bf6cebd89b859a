"""TAB on the line of a magic."""

from __future__ import annotations

import pytest

from tests.magics.conftest import Shell


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%stream sh", ["show", "shrink"]),
        ("%stream st", ["state", "step", "stop", "streams"]),
        ("found = %stream pe", ["peek"]),
        ("%stream create --task ", ["Count"]),
        ("%stream create x --config i", ["inputs"]),
        ("%stream create x --ta", ["--task"]),
        ("%stream step Co", ["Count"]),
        ("%stream run Count --until c", ["caught-up", "context"]),
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


CELL = """%%streamconfig made
systems.flights.samza.factory=log
systems.hook.samza.factory=webhook
stores.seen.factory=memory
"""


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("task.checkpoint.sy", ["task.checkpoint.system="]),
        ("systems.flights.samza.off", ["systems.flights.samza.offset.default="]),
        ("systems.flights.retention.m", ["systems.flights.retention.ms="]),
        ("systems.flights.streams.late.parti", ["systems.flights.streams.late.partitions="]),
        ("stores.se", ["stores.seen.changelog=", "stores.seen.msg.serde="]),
        ("task.processing.guarantee=", ["at-least-once", "exactly-once"]),
        ("task.processing.guarantee=ex", ["exactly-once"]),
        ("systems.more.samza.factory=ka", ["kafka"]),
        ("systems.flights.samza.msg.serde=js", ["json"]),
    ],
)
def test_keys_and_values_of_a_configuration_are_offered(ip: Shell, line: str, offered: list[str]) -> None:
    found = ip.completions(CELL + line)
    assert set(offered) <= set(found)
    assert all(each.startswith(line.rpartition("=")[2]) for each in found)


def test_where_nothing_fits_in_a_configuration_nothing_is_offered(ip: Shell) -> None:
    assert ip.completions(CELL + "nothing.like.it") == []


def test_a_key_that_the_cell_has_already_is_not_offered_again(ip: Shell) -> None:
    assert "systems.flights.samza.factory=" not in ip.completions(CELL + "systems.flights.samza.f")
