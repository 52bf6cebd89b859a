"""TAB on the line of a magic."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

from streambench.debug.control.session import Session
from streambench.errors import StreambenchError
from streambench_magics.completion.inspection import help_at
from tests.magics.commands.test_debug_commands import DELAYS
from tests.magics.commands.test_debug_commands import delays as delays
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
        ("%stream deploy --b", ["--backfill", "--by-lag", "--by-partitions"]),
        ("%stream deploy --if-running ", ["refuse", "take-over"]),
        ("%stream deploy --backfill x --from ", ["oldest", "timestamp:", "upcoming"]),
        ("%stream rewind Count up", ["upcoming"]),
        ("%stream help dep", ["deploy"]),
        ("%stream streams cr", ["create"]),
        ("%%streamtask Count --c", ["--class"]),
    ],
)
def test_what_may_stand_there_is_offered_and_nothing_else(ip: Shell, line: str, offered: list[str]) -> None:
    ip.run("numbers = [1, 2]")
    ip.run("%stream create Count --config inputs")
    assert ip.completions(line) == offered


def test_messages_and_commits_of_a_job_are_offered(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 2")
    ip.run("%stream commit")
    assert ip.completions("%stream goto mem") == ["mem.clicks.0@", "mem.clicks.1@"]
    *_, commit = ip.completions("%stream rewind Count 1.")
    assert ip.run(f"%stream rewind Count {commit}").endswith("with its next step or run")


def test_a_system_that_does_not_answer_keeps_no_completion(
    ip: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 2")
    asked, answers = threading.Event(), threading.Event()
    asking: list[threading.Thread] = []

    def ask(self: Session) -> dict[str, list[Any]]:
        asking.append(threading.current_thread())
        asked.set()
        answers.wait(60)
        return {}

    def refuse(self: Session, timeout: float) -> None:
        raise StreambenchError("the broker does not answer")

    monkeypatch.setattr(Session, "checkpoints", ask)
    monkeypatch.setattr(Session, "snapshot_now", refuse)
    monkeypatch.setattr("streambench_magics.jobs.complete_names._PATIENCE_S", 0.0)
    assert ip.completions("%stream goto mem") == ["mem.clicks.0@", "mem.clicks.1@"]
    for _ in range(2):
        assert ip.completions("%stream rewind Count 1.") == []
    assert asked.wait(60)
    answers.set()
    (thread,) = asking
    assert thread is not threading.current_thread()
    thread.join()


def test_positions_with_what_was_there_are_offered_newest_first(delays: Shell) -> None:
    delays.run("%stream step 2")
    delays.run("%stream commit")
    delays.run("%stream break message['delay'] > 100")
    assert "delays is paused at 3" in delays.run("%stream step 2")
    delays.run("%stream step 1")
    with provisionalcompleter():
        offered = delays.shell.Completer.completions("%stream goto ", 13)
        found = [(each.text, each.type) for each in offered if each.text.isdigit()]
    assert found == [("4", "newest"), ("3", "message['delay'] > 100"), ("2", "commit"), ("0", "oldest")]
    assert delays.completions("%stream goto delays 3") == ["3"]


def test_the_position_before_a_failure_is_offered(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.fails("%stream step 10")
    assert "4" in ip.completions("%stream goto ")


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


TASK_CELL = """%%streamtask Late
def process(message, out, coordinator, context):
    if message.key:
"""


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("        x = message.o", ["offset"]),
        ("        x = message.ssp.pa", ["parse", "partition"]),
        ("        out.se", ["send", "send_batch"]),
        ("        coordinator.", ["commit", "shutdown"]),
        ("        context.st", ["store"]),
        ('        context.store("se', ["seen"]),
    ],
)
def test_what_a_task_is_given_is_completed_in_its_cell(ip: Shell, line: str, offered: list[str]) -> None:
    ip.run("%%streamconfig stores\nstores.seen.factory=memory\nstores.seen.msg.serde=json\n")
    assert ip.completions(TASK_CELL + line) == offered


def test_classes_and_other_names_of_a_task_cell_are_completed(ip: Shell) -> None:
    cell = "%%streamtask T\nclass T:\n    def process(self, envelope, collector, coordinator):\n        "
    assert ip.completions(f"{cell}envelope.mes") == ["message"]
    ip.run("some_name_of_mine = 1")
    assert "some_name_of_mine" in ip.completions(f"{cell}some_name_of")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%stream break message['de", ["delay"]),
        ("%stream break message['delay'] > 100 and message['", ["delay", "to"]),
        ("%stream run --until message['t", ["to"]),
        ("%stream step 5 --until message['de", ["delay"]),
        ("%stream break after['la", ["late"]),
        ("%stream break output.mes", ["message"]),
        ("%stream watch n = store['air", ["airports"]),
        ("%stream watch n = store['airports']['ORD']['la", ["late"]),
        ("%stream break message['delay'] > 1 and par", ["partition"]),
        ("%stream send mem.flights --from rows --key-field d", ["day"]),
        ("%stream send mem.flights --key-field t", ["to"]),
        ("%stream state airports --key O", ["ORD"]),
        ("%stream state --key J", ["JFK"]),
        ("%stream changed air", ["airports"]),
        ("%stream changed airports ", ["--limit", "JFK", "ORD"]),
        ("%stream changed delays airports J", ["JFK"]),
    ],
)
def test_names_in_the_data_are_offered(delays: Shell, line: str, offered: list[str]) -> None:
    delays.run("rows = [{'day': 1, 'at': 2}]")
    delays.run("%stream step 4")
    assert delays.completions(line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ('        if envelope.message["de', ["delay"]),
        ("        if envelope.message['", ["delay", "to"]),
        ('        if flight["de', ["delay"]),
        ('        if flight.get("t', ["to"]),
    ],
)
def test_fields_of_messages_are_completed_in_the_cell_of_a_task(
    delays: Shell, line: str, offered: list[str]
) -> None:
    cell = DELAYS[: DELAYS.index("        airport =")]
    assert "delay" not in delays.completions(cell + line)
    delays.run("%stream peek mem.flights")
    assert delays.completions(cell + line) == offered


def test_other_names_of_a_task_cell_are_no_messages(delays: Shell) -> None:
    delays.run("%stream step")
    cell = DELAYS + "        "
    assert delays.completions(cell + 'envelope.message["de') == ["delay"]
    assert "delay" not in delays.completions(cell + 'airport["de')
    assert "delay" not in delays.completions(cell + 'collector.message["de')


def test_fields_of_other_jobs_are_not_offered(delays: Shell) -> None:
    delays.run("%%streamtask Words\ndef process(envelope, collector, coordinator): pass")
    delays.run("%stream streams create mem.words --config delays")
    delays.run("""%stream send mem.words '{"word": "a"}' --config delays""")
    delays.run("%stream create words --task Words --config delays --inputs mem.words")
    of_words = '%%streamtask Words\ndef process(envelope, collector, coordinator):\n    envelope.message["'
    of_delays = DELAYS[: DELAYS.index("        airport =")] + '        flight["'
    for look_at in ("%stream peek mem.words", "%stream step words"):
        delays.run(look_at)
        assert delays.completions(of_words) == ["word"]
        assert "word" not in delays.completions(of_delays)
        assert delays.completions(of_words.replace("Words", "New")) == ["word"]
    delays.run("%stream step delays")
    assert delays.completions(of_words) == ["word"]
    assert delays.completions(of_delays) == ["delay", "to"]
    assert delays.completions("%stream break words message['") == ["word"]
    assert delays.completions("%stream break message['") == ["delay", "to"]
    assert delays.completions("%stream send mem.words --key-field ") == ["delay", "to", "word"]
    assert delays.run("%stream step").startswith("     2  mem.flights")


def test_completion_waits_for_no_job_that_runs(delays: Shell) -> None:
    delays.run("%stream run")
    assert "ORD" not in delays.completions("%stream state airports --key O")
    assert "delay" not in delays.completions("%stream break message['de")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("%stream step|", "usage: %stream step"),
        ("x = 1\n%stream ch|anged airports ORD", "usage: %stream changed"),
        ("found = %stream peek mem.x --li|", "usage: %stream peek"),
        ("%stream|", "%stream COMMAND"),
        ("%%streamtask La|te\ndef process(envelope, collector, coordinator): pass", "usage: %%streamtask"),
        ("%%streamtask Late\ndef process(e, c, coordinator):\n    c.send(|", "c.send(self, "),
        ("%%streamtask Late\ndef process(e, c, coordinator):\n    e.off|set", "e.offset\n"),
    ],
)
def test_help_at_the_cursor_explains_what_stands_there(code: str, said: str) -> None:
    at = code.index("|")
    assert said in (help_at(code.replace("|", ""), at) or "")


@pytest.mark.parametrize("code", ["len|", "stream|", "%%streamtask T\nx = le|n", "%time|"])
def test_help_at_the_cursor_leaves_other_code_alone(code: str) -> None:
    assert help_at(code.replace("|", ""), code.index("|")) is None


def test_a_kernel_shows_the_help_until_the_magics_are_gone(ip_no_magics: Shell) -> None:
    kernel = Kernel()
    ip_no_magics.shell.kernel = kernel
    ip_no_magics.run("%load_ext streambench")
    assert "usage: %stream step" in kernel.do_inspect("%stream step", 12)["data"]["text/plain"]
    assert kernel.do_inspect("len", 3, 1) == "of the kernel"
    ip_no_magics.run("%unload_ext streambench")
    assert kernel.do_inspect("%stream step", 12) == "of the kernel"


class Kernel:
    """A kernel with nothing but its own help."""

    def do_inspect(self, code: str, cursor_pos: int, detail_level: int = 0) -> Any:
        return "of the kernel"
