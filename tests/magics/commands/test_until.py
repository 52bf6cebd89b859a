"""Conditions behind ``--until`` and in ``break`` and ``watch``, as they are typed; numbers and names."""

from __future__ import annotations

import pytest

from streambench.debug.stopping.conditions import ConditionError
from streambench_magics.commands.commands import PARSERS
from streambench_magics.errors import MagicError
from tests.magics.commands.test_debug_commands import delays as delays
from tests.magics.commands.test_time import tally as tally
from tests.magics.conftest import Shell


@pytest.mark.parametrize(
    ("line", "condition", "what"),
    [
        ("--until message['x'] > 1", "message['x'] > 1", []),
        ("--until \"message['x'] > 1\"", "message['x'] > 1", []),
        ("--until \"message['x'] > 1\" Tally 3", "message['x'] > 1", ["Tally", "3"]),
        ("Tally 3 --until message['x'] > 1", "message['x'] > 1", ["Tally", "3"]),
        ("--until message['x'] > 1 Tally", "message['x'] > 1", ["Tally"]),
        ("--until=message['x'] > 1", "message['x'] > 1", []),
        ("--until message == {'a': 1, \"b\": 2}", "message == {'a': 1, \"b\": 2}", []),
        ("--until 'a' in message", "'a' in message", []),
        ("--until -message['x'] > 1 --pdb 2", "-message['x'] > 1", ["2"]),
        ("--until message > > 1", "message > > 1", []),
        ("--until don't", "don't", []),
    ],
)
def test_a_condition_is_taken_as_it_is_typed(line: str, condition: str, what: list[str]) -> None:
    args = PARSERS["step"].parse_intermixed_args(PARSERS["step"].words(line))
    assert (args.until, args.what, args.pdb) == (condition, what, "--pdb" in line)


def test_a_run_until_it_has_caught_up_takes_a_job_on_either_side() -> None:
    run = PARSERS["run"]
    for line in ("Tally --until caught-up", "--until caught-up Tally"):
        args = run.parse_intermixed_args(run.words(line))
        assert (args.until, args.name) == ("caught-up", "Tally")


def test_until_without_a_condition_is_an_error(delays: Shell) -> None:
    with pytest.raises(MagicError, match="--until: expected one argument; usage: %stream run"):
        delays.run("%stream run --until")


def test_a_run_takes_a_speed(delays: Shell) -> None:
    said = delays.run("%stream run --until caught-up --speed 200/s")
    assert "until it has caught up, 200 messages a second" in said
    delays.run("%stream wait")
    with pytest.raises(MagicError, match="'fast' is no number of messages a second: write 5/s"):
        delays.run("%stream run --speed fast")


def test_a_part_of_caught_up_is_recognized(delays: Shell) -> None:
    with pytest.raises(ConditionError, match=r"unknown name 'caught'.*; did you mean caught-up\?"):
        delays.run("%stream run --until caught")
    with pytest.raises(ConditionError, match=r"error, position$"):
        delays.run("%stream run --until zzz")


def test_conditions_without_quotes_stop_steps_and_runs(delays: Shell) -> None:
    assert "paused at 1: message['delay'] is 203" in delays.run(
        "%stream step 4 --until message['delay'] > 100"
    )
    delays.run('%stream run --until message == {"to": "JFK", "delay": 0}')
    assert "is {'to': 'JFK', 'delay': 0}" in delays.run("%stream wait")
    delays.run("%stream back --until store['ORD']['n'] == 1")
    assert delays.value is None and delays.run("%stream forward --until store['ORD']['n'] == 2").startswith(
        "delays is live, at 2"
    )


@pytest.mark.parametrize("command", ["back", "forward", "step"])
def test_a_number_in_words_is_an_error_with_its_remedy(tally: Shell, command: str) -> None:
    with pytest.raises(MagicError, match="no job two, and it is no number of messages .write it in figures"):
        tally.run(f"%stream {command} two")


def test_goto_takes_only_a_position_or_a_message(tally: Shell) -> None:
    with pytest.raises(MagicError, match="'two' is neither a position .a number. nor a message"):
        tally.run("%stream goto two")


def test_names_of_one_kind_of_breakpoint_choose_it(tally: Shell) -> None:
    assert tally.run("%stream break output.message['seen'] > 1").endswith("(on output)")
    assert tally.run("%stream break after['n'] > 9").endswith("(on state)")
    with pytest.raises(ConditionError, match="needs a breakpoint on output, not on message"):
        tally.run("%stream break output.message['seen'] > 1 --on message")


def test_a_condition_on_an_output_names_its_message(tally: Shell) -> None:
    tally.run("%stream break output['seen'] > 1")
    with pytest.raises(ConditionError, match="not subscriptable; the message of it is output.message"):
        tally.run("%stream step")


def test_a_watch_looks_at_the_context_of_the_task(tally: Shell) -> None:
    assert tally.run("%stream watch seen = context.user.seen") == "        seen = 5"
    tally.run("%stream back 2")
    assert tally.run("%stream watch") == "watch  value\nseen   3"


def test_a_step_of_a_running_job_pauses_it_first(delays: Shell) -> None:
    delays.run("%stream run")
    shown = delays.run("%stream step")
    assert shown.startswith("delays was running: it is paused now, at ")


def test_a_branch_is_dropped_only_when_that_is_asked_for(tally: Shell) -> None:
    tally.run("%stream back 3")
    tally.run("%stream swap")
    for command in ("stop", "detach mem.words", "attach mem.seen", "rewind oldest"):
        name = command.split()[0]
        with pytest.raises(MagicError, match=f"stands in a branch, at 2, which %stream {name} would drop"):
            tally.run(f"%stream {command}")
    assert "the branch ends here: this is the newest position" in tally.run("%stream step 9")
    tally.run("%stream live")
    assert tally.run("%stream stop") == "Tally is stopped, with everything committed"


def test_a_step_in_the_past_stops_at_breakpoints(tally: Shell) -> None:
    tally.run("%stream goto 0")
    tally.run("%stream break message == 'c'")
    assert "Tally is paused at 3: message is 'c' (breakpoint 1)" in tally.run("%stream forward 5")
    tally.run("%stream goto 0")
    tally.run("%stream break before is not None and after['n'] == 2")
    assert "(breakpoint 2)" in tally.run("%stream step 5")
