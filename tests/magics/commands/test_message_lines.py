"""The message in what steps, stops and failures show."""

from __future__ import annotations

import json

import pytest

from streambench import redaction
from streambench.errors import TaskError
from tests.magics.commands.test_debug_commands import delays as delays
from tests.magics.conftest import Shell

TASK = """%%streamtask Grumpy
def process(envelope, collector, coordinator):
    if "fail" in envelope.message:
        raise ValueError("no")
    envelope.message["seen"] = True
"""
CONFIG = """%%streamconfig grumpy
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
systems.mem.samza.msg.serde=json
task.inputs=mem.in
"""


@pytest.fixture
def grumpy(ip_empty: Shell) -> Shell:
    """A job whose task changes its messages, and fails at some."""
    ip_empty.run(TASK)
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.in --partitions 1")
    ip_empty.run("%stream create grumpy --task Grumpy --config grumpy")
    return ip_empty


def send(shell: Shell, *messages: object) -> None:
    shell.run(f"%stream send mem.in --config grumpy --from {json.dumps(messages)}")


def test_a_step_shows_the_message_as_it_was_read(grumpy: Shell) -> None:
    send(grumpy, {"n": 1})
    assert grumpy.run("%stream step").splitlines()[1:] == ['        message  {"n": 1}']


def test_a_long_message_says_how_many_bytes_are_left_out(grumpy: Shell) -> None:
    send(grumpy, {"text": "é" * 700})
    line = grumpy.run("%stream step").splitlines()[1]
    assert line.startswith('        message  {"text": "éé')
    shown = len(line.partition("{")[2].rpartition("...")[0]) + 1
    assert len(line) <= 117
    assert line.endswith(f"... {1412 - shown - (shown - 10):,} bytes more")


def test_characters_that_do_not_show_are_escaped(grumpy: Shell) -> None:
    send(grumpy, {"a": "x\u202ey", "b": "l\nm\x1b"})
    assert grumpy.run("%stream step").splitlines()[1] == (
        '        message  {"a": "x\\u202ey", "b": "l\\nm\\u001b"}'
    )


def test_secrets_of_the_configuration_are_masked(grumpy: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench.redaction._known", set())
    monkeypatch.setattr("streambench.redaction._pattern", None)
    redaction.remember("hunter22")
    send(grumpy, {"said": "my hunter22"})
    assert grumpy.run("%stream step").splitlines()[1] == '        message  {"said": "my ***"}'


def test_a_failure_shows_its_message(grumpy: Shell) -> None:
    send(grumpy, {"fail": 1})
    shown = grumpy.fails("%stream step")
    assert isinstance(grumpy.error, TaskError)
    assert '\n        message  {"fail": 1}\n' in shown


def test_a_failure_in_the_past_shows_its_message(grumpy: Shell) -> None:
    send(grumpy, {"n": 1}, {"n": 2})
    grumpy.run("%stream step 2")
    grumpy.run("%stream goto 0")
    grumpy.run(TASK.replace('"fail" in envelope.message', 'envelope.message["n"] == 2'))
    grumpy.run("%stream swap --replay 0")
    grumpy.run("%stream step")
    assert '\n        message  {"n": 2}\n' in grumpy.fails("%stream step")


def test_rows_of_several_steps_show_messages_and_their_rule_once(grumpy: Shell) -> None:
    send(grumpy, {"n": 1}, {"n": 2})
    assert grumpy.run("%stream step 5").splitlines()[1:] == [
        '     1  mem.in.0@0  {"n": 1}',
        '     2  mem.in.0@1  {"n": 2}',
        "        rule     round robin: nothing else was there",
    ]


def test_rows_with_different_rules_name_each(ip_empty: Shell) -> None:
    ip_empty.run(TASK)
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.in --partitions 2")
    ip_empty.run('%stream send mem.in --config grumpy --from [{"n":1},{"n":2},{"n":3}] --partition 0')
    ip_empty.run('%stream send mem.in --config grumpy {"n":4} --partition 1')
    ip_empty.run("%stream create grumpy --task Grumpy --config grumpy")
    rows = ip_empty.run("%stream step 4").splitlines()
    assert (rows[0], rows[3]) == ('     1  mem.in.0@0  {"n": 1}', '     4  mem.in.0@2  {"n": 3}')
    assert rows[4:6] == [
        "        rule     1-2: round robin: it has waited longest",
        "        rule     3-4: round robin: nothing else was there",
    ]


def test_rows_behind_a_breakpoint_show_messages_and_rules(ip_empty: Shell) -> None:
    ip_empty.run(TASK)
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.in --partitions 2")
    ip_empty.run(f"%stream send mem.in --config grumpy --from {json.dumps([{'n': n} for n in range(9)])}")
    ip_empty.run("%stream create grumpy --task Grumpy --config grumpy")
    ip_empty.run("%stream break message['n'] == 4")
    ip_empty.run("%stream run")
    ip_empty.run("%stream wait")
    assert ip_empty.run("%stream step 9").splitlines()[1:8] == [
        *(f'     {n + 1}  mem.in.{n % 2}@{n // 2}  {{"n": {n}}}' for n in range(4, 9)),
        "        rule     5-8: round robin: it has waited longest",
        "        rule     9: round robin: nothing else was there",
    ]


def test_rows_of_long_messages_fit_into_a_narrow_page(grumpy: Shell) -> None:
    send(grumpy, *({"n": n, "text": "x" * 200} for n in range(3)))
    rows = grumpy.run("%stream step 3").splitlines()[:3]
    assert all(row.endswith(" bytes more") and len(row) == 92 for row in rows)


def test_a_row_without_room_for_its_message_takes_none_of_the_others(ip_empty: Shell) -> None:
    ip_empty.run(TASK)
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.in --partitions 1")
    for key in ("short", "long" * 30):
        ip_empty.run(f'%stream send mem.in --config grumpy {{"n":1}} --key {key}')
    ip_empty.run("%stream create grumpy --task Grumpy --config grumpy")
    rows = ip_empty.run("%stream step 2").splitlines()
    assert rows[0] == '     1  mem.in.0@0  key short  {"n": 1}'
    assert rows[1].startswith("     2  mem.in.0@1  key longlong") and "{" not in rows[1]


def test_a_stop_behind_a_message_shows_it_once(delays: Shell) -> None:
    delays.run("%stream break after['late'] == 1")
    delays.run("%stream step")
    shown = delays.run("%stream step")
    assert shown.count('message  {"to": "ORD", "delay": 203}') == 1
    delays.run("%stream goto 0")
    assert delays.run("%stream step 4").count('message  {"to": "ORD", "delay": 203}') == 1


def test_a_stop_before_a_message_in_the_past_shows_the_next_one(delays: Shell) -> None:
    delays.run("%stream step 4")
    delays.run("%stream goto 0")
    shown = delays.run("%stream step 4 --until message['delay'] > 180").splitlines()
    assert shown[-2:] == ["        next     mem.flights.0@1", '        message  {"to": "ORD", "delay": 203}']


def test_the_text_of_a_panel_shows_the_message(delays: Shell) -> None:
    delays.run("%stream step 2")
    delays.run("%stream show --static")
    (shown,) = delays.displayed
    assert 'message: {"to": "ORD", "delay": 203}' in shown["text/plain"]
    assert "203" in shown["text/html"]


def test_the_panel_of_the_past_shows_one_message(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 4")
    ip.run("%stream back 3")
    ip.run("%stream show --static")
    text, html = (ip.displayed[-1][kind] for kind in ("text/plain", "text/html"))
    assert "last chosen: mem.clicks.0@0" in text
    assert "message: a" in text
    assert "<div>message 1: mem.clicks.0@0" in html
