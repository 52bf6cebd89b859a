"""Stepping, breakpoints, watches, state and outputs, as a notebook shows them."""

from __future__ import annotations

import json
import sys

import pytest

from streambench.debug.stopping.conditions import ConditionError
from streambench.errors import TaskError
from streambench_magics.commands.status_messages import stop_text
from streambench_magics.errors import MagicError
from tests.magics.conftest import Shell

DELAYS = """%%streamtask Delays
import streambench as sb

class Delays(sb.StreamTask):
    def init(self, context):
        self.airports = context.store("airports")

    def process(self, envelope, collector, coordinator):
        flight = envelope.message
        airport = self.airports.get(flight["to"]) or {"n": 0, "late": 0, "name": "x"}
        airport["n"] += 1
        if flight["delay"] > 100:
            airport["late"] += 1
            collector.send("mem.late", {"delay": flight["delay"]})
        self.airports.put(flight["to"], airport)
"""

CONFIG = """%%streamconfig delays
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
systems.mem.samza.msg.serde=json
task.inputs=mem.flights
stores.airports.factory=memory
stores.airports.msg.serde=json
"""


@pytest.fixture
def delays(ip_empty: Shell) -> Shell:
    """A job over four flights; the second and the fourth are late."""
    ip_empty.run(DELAYS)
    ip_empty.run(CONFIG)
    ip_empty.run("%stream streams create mem.flights --partitions 1 --config delays")
    flights = [
        {"to": to, "delay": delay} for to, delay in [("ORD", 5), ("ORD", 203), ("JFK", 0), ("ORD", 181)]
    ]
    ip_empty.run(f"%stream send mem.flights --config delays --from {json.dumps(flights)}")
    ip_empty.run("%stream create delays --task Delays --config delays")
    return ip_empty


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_step_shows_its_effects(delays: Shell) -> None:
    delays.run("%stream step")
    shown = lines(delays.run("%stream step"))
    assert shown[0].startswith("     2  mem.flights.0@1  (")
    assert shown[1:] == [
        '        message  {"to": "ORD", "delay": 203}',
        "        airports[ORD]  n 1 -> 2, late 0 -> 1",
        '        -> mem.late  {"delay": 203}',
    ]


def test_several_steps_end_with_a_summary(delays: Shell) -> None:
    shown = lines(delays.run("%stream step 10"))
    assert shown[0] == "delays: 4 messages, then it had caught up with its inputs"
    assert shown[5:] == [
        "        rule     round robin: nothing else was there",
        "        airports: 2 keys changed: ORD, JFK",
        "        -> mem.late: 2 messages",
    ]


def test_a_run_until_a_condition_pauses_before_that_message(delays: Shell) -> None:
    delays.run("%stream run --until \"message['delay'] > 180\"")
    assert lines(delays.run("%stream wait"))[-3:] == [
        "delays is paused at 1: message['delay'] is 203",
        "        next     mem.flights.0@1",
        '        message  {"to": "ORD", "delay": 203}',
    ]
    assert delays.run("%stream step").startswith("     2  mem.flights.0@1")
    delays.run("%stream run --until \"message['delay'] > 180\"")
    assert "delays is paused at 3: message['delay'] is 181" in delays.run("%stream wait")


def test_a_step_until_a_condition(delays: Shell) -> None:
    shown = lines(delays.run("%stream step --until \"message['delay'] > 180\""))
    assert shown[0].startswith("     1  mem.flights.0@0")
    assert shown[-3] == "delays is paused at 1: message['delay'] is 203"


def test_a_breakpoint_is_set_as_it_is_typed_and_stops(delays: Shell) -> None:
    assert (
        delays.run("%stream break message['delay'] > 180 and key is None --hits 2 --once")
        == "breakpoint 1: message['delay'] > 180 and key is None (on message, once, from hit 2 on)"
    )
    assert delays.run("%stream break --on output") == "breakpoint 2: every output (on output)"
    assert delays.run('%stream break "position > 100"').startswith("breakpoint 3: position > 100 ")
    shown = delays.run("%stream step 10")
    assert lines(shown)[-5:] == [
        "delays is paused at 2: Partition 0 sent to mem.late: {'delay': 203} (breakpoint 2)",
        "     2  mem.flights.0@1  (round robin: nothing else was there)",
        '        message  {"to": "ORD", "delay": 203}',
        "        airports[ORD]  n 1 -> 2, late 0 -> 1",
        '        -> mem.late  {"delay": 203}',
    ]
    assert "breakpoint 2 is removed" in delays.run("%stream break --remove 2")
    assert "delays is paused at 3" in delays.run("%stream step 10")
    listed = delays.run("%stream break")
    assert "position > 100" in listed and "message['delay']" not in listed
    assert [each["enabled"] for each in delays.value] == [True]
    delays.magics.bench.job("delays").session.enable(3, False)
    delays.run("%stream break")
    assert [each["enabled"] for each in delays.value] == [False]


def test_a_stop_at_an_error_names_the_message_that_failed(delays: Shell) -> None:
    delays.run("%stream send mem.flights --config delays '{\"to\": \"ORD\"}'")
    delays.run("%stream run --until error")
    delays.fails("%stream wait")
    job = delays.magics.bench.job("delays")
    assert job.session is not None
    assert lines(stop_text(job, job.session)) == [
        "delays has failed at 4: error is KeyError('delay')",
        "        failed   mem.flights.0@4",
        '        message  {"to": "ORD"}',
    ]


def test_breakpoints_and_watches_outlive_the_session(delays: Shell) -> None:
    delays.run("%stream break message['delay'] > 180")
    delays.run("%stream watch late = store['airports'].get('ORD')")
    delays.run("%stream step")
    delays.run("%stream stop")
    shown = delays.run("%stream step 10")
    assert "(breakpoint 1)" in shown
    assert "late" in delays.run("%stream watch")


def test_a_watch_is_shown_after_each_step(delays: Shell) -> None:
    begins = delays.run("%stream watch n=store['airports']['ORD']['n']")
    assert begins == "n is watched from the next step or run on"
    assert lines(delays.run("%stream step"))[-1] == "        n = 1"
    assert delays.run("%stream watch --remove n") == "n is watched no longer"
    assert "n = " not in delays.run("%stream step")


def test_at_a_breakpoint_a_watch_stands_below_the_message_it_looks_at(delays: Shell) -> None:
    delays.run("%stream watch late=message['delay']")
    delays.run("%stream break message['delay'] == 203")
    shown = lines(delays.run("%stream step 3"))
    assert [each.split()[0] for each in shown[-3:]] == ["next", "message", "late"]
    assert (shown[-1], sum("late = " in each for each in shown)) == ("        late = 203", 1)


def test_state_shows_stores_one_key_and_what_changed(delays: Shell) -> None:
    delays.run("%stream step 4")
    assert [(each["key"], each["store"]) for each in delays_value(delays, "%stream state")] == [
        ("JFK", "airports"),
        ("ORD", "airports"),
    ]
    assert "JFK" not in delays.run("%stream state airports --key ORD")
    changed = delays.run("%stream state --changed")
    assert "n 2 -> 3, late 1 -> 2" in changed
    assert "there is no store 'airport' (there are: airports)" in delays.fails("%stream state airport")
    assert "(there are: airports); for the job: --job delays" in delays.fails("%stream state delays")


def delays_value(shell: Shell, line: str) -> list[dict[str, object]]:
    shell.run(line)
    return list(shell.value)


def test_outputs_are_listed_and_held_ones_alone(delays: Shell) -> None:
    said = delays.run("%stream step") + delays.run("%stream outputs")
    assert "delays has sent nothing since it was started here" in said
    delays.run("%stream step 3")
    shown = delays.run("%stream outputs")
    assert '{"delay": 203}' in shown and '{"delay": 181}' in shown
    assert "the last 1 of 2" in delays.run("%stream outputs --last 1")
    assert "delays has no held outputs" in delays.run("%stream outputs --held")


def test_outputs_before_the_history_are_not_said_to_be_none(delays: Shell) -> None:
    delays.names["many"] = [{"to": "ORD", "delay": 0, "note": "x" * 2_000}] * 2_000
    delays.run("%stream send mem.flights --config delays --from many")
    delays.run("%stream create delays --task Delays --config delays --history 1")
    delays.run("%stream step 2004")
    said = delays.run("%stream outputs")
    assert "delays has sent nothing since " in said and "where its history begins" in said
    assert "started here" not in said


def test_a_handle_gives_the_job_to_python_code(delays: Shell) -> None:
    delays.run("handle = %stream job delays")
    assert "is new" in delays.fails("handle.session")
    delays.run("%stream step 2")
    handle = delays.names["handle"]
    assert handle.state["Partition 0"]["airports"]["ORD"] == {"n": 2, "late": 1, "name": "x"}
    assert [each.message for each in handle.outputs] == [{"delay": 203}]
    assert handle.last.changes[0].after["late"] == 1
    assert (handle.status, handle.session.position) == ("paused", 2)
    assert repr(handle) == "<job delays: paused, at 2>"


def test_a_condition_that_fails_names_its_place(delays: Shell) -> None:
    shown = delays.fails("%stream step 10 --until \"message['dely'] > 1\"")
    assert (
        "message['dely'] > 1 cannot be evaluated at mem.flights.0@0 (position 0): KeyError: 'dely'" in shown
    )
    assert isinstance(delays.error, ConditionError)
    assert "<lambda>" not in shown
    assert "did you mean message?" in delays.fails("%stream break mesage['delay'] > 1")


def test_a_step_runs_asyncio_as_a_run_does(ip: Shell) -> None:
    ip.run(
        "%%streamtask Waits\nimport asyncio\nasync def wait():\n    await asyncio.sleep(0)\n"
        "def process(envelope, collector, coordinator):\n    asyncio.run(wait())\n"
    )
    ip.run("%stream create waits --task Waits --config inputs")
    ip.run("import asyncio\nasync def main():\n    get_ipython().run_line_magic('stream', 'step waits')")
    ip.run("asyncio.run(main())")
    assert ip.magics.bench.job("waits").session.position == 1


def test_the_debugger_stops_at_the_first_line_of_the_task(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = iter(["p 'at', envelope.offset", "n", "p seen", "c", "p 'again', envelope.offset", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(commands))
    ip.run(
        "%%streamtask Sees\ndef process(envelope, collector, coordinator):\n    seen = 41 + 1\n    "
        "collector.send('mem.out', seen)\n"
    )
    ip.run("%stream create sees --task Sees --config inputs")
    shown = ip.run("%stream step 3 --pdb")
    assert "('at', '0')" in shown and "seen = 41 + 1" in shown and "\n42\n" in shown
    assert "again" in shown
    assert next(commands, None) is None
    assert ip.magics.bench.job("sees").session.position == 3


def test_the_debugger_gives_a_trace_function_back(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = iter(["n", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(commands))
    ip.run("%%streamtask Sees\ndef process(envelope, collector, coordinator):\n    seen = 1\n")
    ip.run("%stream create sees --task Sees --config inputs")

    def other_debugger(*event: object) -> None:
        """Traces no frame."""

    before = sys.gettrace()
    sys.settrace(other_debugger)
    try:
        ip.run("%stream step 3 --pdb")
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is other_debugger
    assert next(commands, None) is None


PAST = """%%streamtask Sees
def process(envelope, collector, coordinator, context):
    context.user.seen = seen = getattr(context.user, "seen", 0) + 1
    collector.send('mem.out', seen)
"""


def test_the_debugger_stops_in_the_past_and_follows_the_record(
    ip: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = iter(["p 'at', envelope.offset", "n", "n", "w", "p 'seen', seen", "c", "p 'again'", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(commands))
    ip.run(PAST)
    ip.run("%stream create sees --task Sees --config inputs --history 64")
    ip.run("%stream step 4")
    session = ip.magics.bench.job("sees").session
    first = session.history.message_at(2).offset
    ip.run("%stream goto 1")
    shown = ip.run("%stream step 2 --pdb")
    assert f"('at', '{first}')" in shown and "('seen', " in shown and "again" in shown
    assert next(commands, None) is None
    assert "sees is at 3 of 4, in the past" in shown
    assert "task_instance.py" not in shown and "event_loop.py" not in shown
    assert "the task goes on with its message" in shown
    assert not session.branched and [each.position for each in session.outputs()] == [1, 2, 3]


def test_the_debugger_stops_in_a_branch_and_at_the_newest_message(
    ip: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = iter(["n", "n", "p 'new', seen", "c"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(commands))
    ip.run(PAST)
    ip.run("%stream create sees --task Sees --config inputs")
    ip.run("%stream step 3")
    ip.run("%stream back")
    ip.run(PAST.replace("+ 1", "+ 100"))
    ip.run("%stream swap --replay 0")
    shown = ip.run("%stream step --pdb")
    assert "('new', 10" in shown and next(commands, None) is None
    assert "sees is at 3 of 3, in the past in a branch" in shown


@pytest.mark.parametrize("by_itself", [False, True], ids=["%debug", "%pdb"])
def test_after_a_failure_debug_opens_at_the_line_of_the_task(
    ip: Shell, monkeypatch: pytest.MonkeyPatch, by_itself: bool
) -> None:
    commands = iter(["p 'here', envelope.message, local", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(commands))
    ip.run(
        "%%streamtask Fails\nimport json\ndef process(envelope, collector, coordinator):\n    local = 7\n"
        "    json.loads('{')\n"
    )
    ip.run("%stream create fails --task Fails --config inputs")
    if by_itself:
        ip.run("%pdb on")
    try:
        shown = ip.fails("%stream step")
    finally:
        ip.run("%pdb off")
    if not by_itself:
        shown = ip.run("%debug")
    assert "('here', 'a', 7)" in shown


@pytest.mark.parametrize("line", ["%stream step --help", "%stream step?"])
def test_a_sub_command_explains_itself(ip: Shell, line: str) -> None:
    shown = ip.run(line)
    assert "usage: %stream step" in shown and "--pdb" in shown


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("%stream break --on ", ["commit", "error", "message", "output", "state", "window"]),
        ("%stream break mess", ["message"]),
        ("%stream step --p", ["--pdb"]),
        ("%stream state air", ["airports"]),
        ("%stream run --until c", ["caught-up", "context"]),
    ],
)
def test_arguments_complete(delays: Shell, line: str, wanted: list[str]) -> None:
    assert delays.completions(line) == wanted


def test_breakpoints_and_watches_start_no_job(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamconfig kept\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest"
    )
    ip_empty.run("%stream streams create mem.waits --config kept")
    ip_empty.run("%stream send mem.waits --from [1,2,3] --config kept")
    ip_empty.run("%%streamtask Waits\ndef process(envelope, collector, coordinator):\n    pass")
    ip_empty.run("%stream create Waits --config kept --inputs mem.waits")
    ip_empty.run("%stream break message == 2")
    assert ip_empty.run("%stream watch m=message") == "m is watched from the next step or run on"
    assert ip_empty.magics.bench.job("Waits").state == "new"
    ip_empty.run("%stream run")
    ip_empty.run("%stream wait")
    assert ip_empty.magics.bench.job("Waits").snapshot().processed == 1
    ip_empty.run("%stream stop")
    ip_empty.run("%stream break message == 3")
    assert ip_empty.magics.bench.job("Waits").state == "stopped"
    assert "message == 3" in ip_empty.run("%stream break")


def test_after_a_failure_outputs_and_changes_are_still_shown(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamconfig kept\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
        "stores.n.factory=memory\nstores.n.key.serde=string\nstores.n.msg.serde=json"
    )
    ip_empty.run("%stream streams create mem.fails --config kept")
    ip_empty.run("%stream send mem.fails --from [1,2,3] --config kept")
    ip_empty.run(
        "%%streamtask Fails\ndef process(envelope, collector, coordinator, context):\n"
        "    context.store('n').put('k', envelope.message)\n"
        "    collector.send('mem.sent', envelope.message)\n"
        "    assert envelope.message < 3\n"
    )
    ip_empty.run("%stream create Fails --config kept --inputs mem.fails")
    with pytest.raises(TaskError):
        ip_empty.run("%stream step 3")
    ip_empty.run("%stream outputs")
    assert [row["message"] for row in ip_empty.value] == ["1", "2"]
    assert "1 -> 2" in ip_empty.run("%stream changed n k")
    assert "k    2" in ip_empty.run("%stream state")
    assert ip_empty.run("%stream back").startswith("Fails is at 1 of 2, in the past")
    assert "k    1" in ip_empty.run("%stream state")
    assert ip_empty.run("%stream step").startswith("Fails has failed, at 2")


def test_a_mistyped_sub_command_is_answered_with_the_nearest(ip: Shell) -> None:
    assert "there is no %stream stepp; did you mean step? %stream help" in ip.fails("%stream stepp")
    assert "did you mean" not in ip.fails("%stream help xyzzy")


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("%stream diff", "usage: %stream diff [NAME] A [B]"),
        ("%stream step x y z", "usage: %stream step [--until COND] [--pdb] [NAME] [N]"),
        ("%stream attach", "usage: %stream attach [NAME] STREAM [STREAM ...]"),
    ],
)
def test_usage_names_each_argument_once(ip: Shell, line: str, usage: str) -> None:
    assert ip.fails(line).rstrip().endswith(usage)


def test_state_and_watches_of_a_job_that_failed_and_was_stopped_stay(delays: Shell) -> None:
    delays.run("%stream watch n=store['airports']['ORD']['n']")
    delays.run("%stream send mem.flights --config delays {}")
    delays.fails("%stream step 9")
    assert "ORD" in delays.run("%stream state")
    assert delays.run("%stream watch") == "delays is failed; the next step shows n"
    delays.run("%stream stop")
    assert "ORD" in delays.run("%stream state")


def test_keys_of_bytes_are_asked_for_as_text_or_as_literals(delays: Shell) -> None:
    delays.run("""%%streamtask Raw
def process(envelope, collector, coordinator, context):
    context.store("raw")[b"last"] = b"1"
    context.store("raw")[b"\\xff x"] = b"2"
""")
    delays.run(CONFIG.replace("delays", "raw").replace("airports", "raw").replace("json", "bytes")
               + "stores.raw.key.serde=bytes\nsystems.mem.streams.flights.samza.msg.serde=json\n")
    delays.run("%stream create raw --task Raw --config raw")
    delays.run("%stream step")
    assert lines(delays.run("%stream changed raw last"))[1].startswith("1  mem.flights.0@0  - -> 1")
    assert lines(delays.run("%stream changed raw b'last'"))[1].startswith("1  mem.flights.0@0  - -> 1")
    assert lines(delays.run(r"%stream changed raw b'\xff x'"))[1].startswith("1  mem.flights.0@0  - -> 2")
    assert lines(delays.run("%stream state --key last"))[1:] == ["raw    last  1"]


def test_outputs_are_asked_for_by_stream_key_and_condition(delays: Shell) -> None:
    delays.run("%stream step 4")
    assert [each["#"] for each in delays.run("%stream outputs --stream late") and delays.value] == [2, 4]
    delays.run("%stream outputs --stream mem.late --where output.message['delay'] > 200 --last 5")
    assert [each["#"] for each in delays.value] == [2]
    assert delays.run("%stream outputs --key k") == "delays has no such outputs"
    with pytest.raises(MagicError, match="--where is asked of outputs"):
        delays.run("%stream outputs --where message['delay'] > 200")


def test_a_stream_in_the_place_of_a_job_is_said_to_be_one(delays: Shell) -> None:
    delays.run("%stream step 4")
    for stream in ("late", "mem.late"):
        with pytest.raises(MagicError, match=f"no job {stream}, but a stream: .* delays --stream {stream}$"):
            delays.run(f"%stream outputs {stream}")
    with pytest.raises(MagicError, match="there is no job other; there is delays"):
        delays.run("%stream outputs other")


def test_a_table_that_is_not_the_last_value_of_a_cell_is_displayed(delays: Shell) -> None:
    delays.run("%stream step")
    delays.run("%stream state\n%stream outputs")
    assert [data["text/plain"] for data in delays.displayed][:1] == [
        'store     key  value\nairports  ORD  {"n": 1, "late": 0, "name": "x"}'
    ]
    delays.run("found = %stream state\nfound[0]['key']")
    assert (delays.value, len(delays.displayed)) == ("ORD", 0)


def test_a_stream_equals_its_name_without_its_system(delays: Shell) -> None:
    for number, condition in enumerate(["stream == 'flights' and offset == '1'", "output.stream == 'late'"]):
        kind = "--on output" if "output" in condition else ""
        delays.run(f"%stream break {condition} {kind}")
        assert f"(breakpoint {number + 1})" in delays.run("%stream step 2")
        delays.run(f"%stream break --remove {number + 1}")
    delays.run("%stream step 2")
    assert delays.run("%stream back --until output.stream == 'late'").startswith("delays is at 2 of 4")


def test_both_kinds_of_crashes_are_not_asked_for_at_once(delays: Shell) -> None:
    delays.run("%stream step")
    assert "leave out --inside-commit" in delays.fails("%stream crash --everywhere --inside-commit")


def test_a_breakpoint_on_state_knows_the_store(delays: Shell) -> None:
    delays.run("%stream break store_name == 'other' --on state")
    delays.run("%stream break store_name == 'airports' and key == 'JFK'")
    shown = delays.run("%stream step 9")
    assert "is paused at 3: store_name is 'airports', key is 'JFK' (breakpoint 2)" in shown
    delays.run("%stream goto 0")
    assert "delays is paused at 3" in delays.run("%stream step 9")


def test_a_long_value_is_shown_whole_by_its_key(delays: Shell) -> None:
    delays.run("""%%streamtask Delays
def process(envelope, collector, coordinator, context):
    stored = context.store("airports")
    stored["all"] = stored.get("all", []) + [f"page {envelope.offset} of many, many pages"]
""")
    delays.run("%stream create delays --task Delays --config delays")
    delays.run("%stream step 4")
    changed = lines(delays.run("%stream state --changed"))
    assert changed[1].endswith('pages"] -> … many pages", "page 3 of many, many pages"]')
    assert changed[2] == "%stream state STORE --key KEY shows a whole value"
    assert lines(delays.run("%stream state --key all"))[2].count("of many") == 4


def test_a_condition_that_fails_shows_no_frames_of_its_own(delays: Shell) -> None:
    delays.run("%stream break 1/0")
    assert "File" not in delays.fails("%stream step")


def test_a_failing_serde_shows_the_users_frames_alone(delays: Shell) -> None:
    delays.run("""%%streamtask Delays
def process(envelope, collector, coordinator, context):
    context.store("airports")["x"] = {1, 2}
""")
    delays.run("%stream create delays --task Delays --config delays")
    shown = delays.fails("%stream step")
    assert "task_store.py" not in shown and "builtin.py" not in shown
    assert 'context.store("airports")["x"] = {1, 2}' in shown
