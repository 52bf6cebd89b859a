"""``%stream record`` and ``%stream replay``."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from streambench.errors import SerdeError
from streambench.recording import Recording
from streambench_magics.commands import status_messages
from tests.magics.conftest import CONFIG, TASK, Shell

MENDED = """%%streamtask Count
import streambench as sb

class Count(sb.StreamTask):
    def init(self, context):
        self.seen = []

    def process(self, envelope, collector, coordinator):
        self.seen.append(envelope.message)
"""


@pytest.fixture
def counting(ip_empty: Shell) -> Shell:
    """A shell with the task ``Count`` and one empty partition."""
    ip_empty.run(CONFIG)
    ip_empty.run(TASK)
    ip_empty.run("%stream streams create mem.clicks")
    return ip_empty


def send(shell: Shell, *messages: str) -> None:
    for message in messages:
        shell.run(f"%stream send mem.clicks {message}")


def recorded(counting: Shell, *messages: str, path: str = "count.recording") -> None:
    counting.run("%stream create job --task Count --config inputs")
    counting.run(f"%stream record job {path}")
    send(counting, *messages)


def test_a_failure_is_recorded_opened_mended_and_gone_on_with(counting: Shell) -> None:
    recorded(counting, "one", "two", "bad")
    counting.fails("%stream step job 9")
    counting.run("%stream stop job")
    shown = counting.run("%stream replay count.recording")
    assert shown.splitlines()[0] == "3 messages of job-1; at the last one, mem.clicks.0@2, it failed"
    assert "cannot count this" in shown
    assert shown.splitlines()[-1] == "replay stands before it, at 2: %stream step runs it"
    counting.run("handle = %stream job replay")
    assert counting.names["handle"].session.message.message == "bad"
    counting.fails("%stream step replay")
    counting.run(MENDED)
    counting.run("%stream step replay")
    assert counting.names["handle"].session.position == 3
    counting.run("%stream back replay 2")
    assert counting.names["handle"].session.position == 1


def test_a_recording_begins_with_the_next_commit_where_messages_wait(counting: Shell) -> None:
    counting.run("%stream create job --task Count --config inputs")
    send(counting, "one", "two", "three")
    counting.run("%stream step job 2")
    assert "next commit" in counting.run("%stream record job late.recording")
    counting.run("%stream commit job")
    counting.run("%stream step job")
    counting.run("%stream stop job")
    assert [each.message for each in Recording.read("late.recording")] == ["three"]


def test_a_recording_is_ended_and_the_job_goes_on(counting: Shell) -> None:
    recorded(counting, "one", "two", "three")
    counting.run("%stream step job 2")
    for name in ("other", "count"):
        already = counting.fails(f"%stream record job {name}.recording")
        assert "job is being recorded already, to count.recording: %stream record --stop ends" in already
    ended = counting.run("%stream record --stop")
    size = Path("count.recording").stat().st_size
    assert ended == f"job is recorded to count.recording: 2 messages, {size / 1000:.1f} kB"
    counting.run("%stream step job")
    assert [each.message for each in Recording.read("count.recording")] == ["one", "two"]
    assert "job is not being recorded: %stream record job FILE" in counting.fails("%stream record --stop")


def test_a_recording_that_has_not_begun_is_given_up(counting: Shell) -> None:
    recorded(counting, "one")
    assert counting.run("%stream record --stop job") == (
        "nothing was recorded to count.recording: no commit came before the stop; %stream commit begins "
        "a recording"
    )
    counting.run("%stream step job")
    assert not Path("count.recording").exists()


def test_a_stop_says_what_was_recorded(counting: Shell) -> None:
    recorded(counting, "one", "two")
    counting.run("%stream step job 2")
    assert "job is recorded to count.recording: 2 messages, " in counting.run("%stream stop job")


def test_record_alone_tells_what_is_being_recorded(counting: Shell) -> None:
    counting.run("%stream create job --task Count --config inputs")
    assert counting.run("%stream record").startswith("nothing is being recorded: ")
    send(counting, "one", "two", "three")
    counting.run("%stream step job 2")
    counting.run("%stream record job late.recording")
    assert counting.run("%stream record") == (
        "job will be recorded to late.recording from its next commit on: %stream commit begins it now"
    )
    counting.run("%stream commit job")
    assert counting.run("%stream record") == (
        "job is being recorded to late.recording, until it stops or %stream record --stop"
    )
    counting.run("%stream stop job")
    assert counting.run("%stream record").startswith("nothing is being recorded: ")


def test_a_stop_tells_of_a_recording_that_had_not_begun(counting: Shell) -> None:
    counting.run("%stream create job --task Count --config inputs")
    send(counting, "one", "two", "three")
    counting.run("%stream step job 2")
    counting.run("%stream record job late.recording")
    assert counting.run("%stream stop job").splitlines() == [
        "job is stopped, with everything committed",
        "nothing was recorded to late.recording: no commit came before the stop",
    ]
    assert not Path("late.recording").exists()


def test_a_recording_that_had_not_begun_replaces_none_at_the_stop(counting: Shell) -> None:
    recorded(counting, "one", "two", "three", path="kept.recording")
    counting.run("%stream step job 2")
    counting.run("%stream record job --stop")
    before = Path("kept.recording").read_bytes()
    counting.run("%stream record job kept.recording")
    assert "nothing was recorded to kept.recording" in counting.run("%stream stop job")
    assert Path("kept.recording").read_bytes() == before
    assert counting.run("%stream record").startswith("nothing is being recorded: ")


def test_a_failure_tells_that_the_recording_ends(counting: Shell) -> None:
    recorded(counting, "one", "bad", "two")
    said = "Its recording count.recording ended with the failure, with 2 messages: %stream record job FILE"
    assert said in counting.fails("%stream step job 9")
    counting.run(MENDED)
    assert said in counting.run("%stream step job")
    assert said not in counting.run("%stream step job")


def test_a_message_that_cannot_be_decoded_ends_the_recording(counting: Shell) -> None:
    counting.run(CONFIG + "systems.mem.streams.clicks.samza.msg.serde=json\n")
    counting.run(CONFIG.replace("inputs", "raw", 1))
    recorded(counting, "1")
    counting.run("%stream step job")
    counting.run("%stream send mem.clicks no --config raw")
    with pytest.raises(SerdeError) as raised:
        counting.run("%stream step job")
    assert "Its recording count.recording ended with the failure" in raised.value.__notes__[-1]


def test_a_replay_claims_no_commits_and_no_checkpoints(counting: Shell) -> None:
    recorded(counting, "one", "two")
    counting.run("%stream step job 9")
    counting.run("%stream stop job")
    counting.run("%stream replay count.recording")
    said = counting.run("%stream export replay away").splitlines()[-1]
    assert said.startswith("replay is a replay, with systems in memory")
    said = counting.run("%stream stop replay")
    assert said == "replay is stopped; a replay is in memory, and nothing of it has left that"


def test_a_replay_before_its_first_message_is_stepped_on(counting: Shell) -> None:
    recorded(counting, "one", "two")
    counting.run("%stream step job 9")
    counting.run("%stream stop job")
    counting.run(MENDED.replace("self.seen.append(envelope.message)", "raise ValueError('no')"))
    said = counting.run("%stream replay count.recording --task Count").splitlines()[-1]
    assert said == "replay stands before its first message: %stream step runs it"


SHOUTING = MENDED.replace("append(envelope.message)", "append(envelope.message.upper())")


@pytest.fixture
def swapped(counting: Shell) -> Shell:
    """A shell with a recording of three messages, of which the last ran with ``SHOUTING``."""
    recorded(counting, "one", "two", "three", path="swapped.recording")
    counting.run("%stream step job 2")
    counting.run(SHOUTING)
    counting.run("%stream swap job")
    counting.run("%stream step job")
    counting.run("%stream stop job")
    return counting


def seen(shell: Shell) -> Any:
    shell.run("handle = %stream job replay")
    ((_, attributes),) = shell.names["handle"].session.attributes().items()
    return attributes["seen"]


def test_messages_of_a_swapped_job_run_with_their_own_code(swapped: Shell) -> None:
    shown = swapped.run("%stream replay swapped.recording")
    assert "note: the code was swapped after 2 of the messages: each message runs with the code" in shown
    assert seen(swapped) == ["one", "two", "THREE"]
    swapped.run("%stream back replay 2")
    swapped.run("%stream forward replay 1")
    assert seen(swapped) == ["one", "two"]
    swapped.run("%stream stop replay")
    swapped.run("%stream step replay")  # opened again
    assert seen(swapped) == ["one", "two", "THREE"]


def test_a_replay_says_before_it_runs_that_the_code_of_then_is_gone(
    swapped: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.recording.header._factories", {})  # as in another process
    assert (
        "note: the code was swapped after 2 of the messages: all of them run with Count as it is now; "
        "--recorded-source runs each with its own, if you trust it"
    ) in swapped.run("%stream replay swapped.recording")
    assert seen(swapped) == ["ONE", "TWO", "THREE"]
    swapped.run("%stream replay swapped.recording --recorded-source")
    assert seen(swapped) == ["one", "two", "THREE"]


FUNCTIONS = """%%streamtask Count
def init(context):
    context.user.seen = []

def process(envelope, collector, coordinator, context):
    context.user.seen.append(envelope.message)
"""


def test_functions_of_a_cell_run_from_their_recorded_source(counting: Shell) -> None:
    counting.run(FUNCTIONS)
    recorded(counting, "one", "two")
    counting.run("%stream step job 2")
    counting.run("%stream stop job")
    counting.run(FUNCTIONS.replace("envelope.message", "envelope.message.upper()"))
    counting.run("%stream replay count.recording --recorded-source")
    counting.run("handle = %stream job replay")
    ((_, attributes),) = counting.names["handle"].session.attributes().items()
    assert attributes["context.user.seen"] == ["one", "two"]


def test_a_test_of_a_swapped_job_runs_each_message_with_its_own_code(swapped: Shell) -> None:
    said = swapped.run("%stream replay swapped.recording --to-test test_swapped.py")
    assert "each message runs with the code that ran it" in said
    text = Path("test_swapped.py").read_text()
    assert "debug.open(RECORDING, task=None, recorded_source=True, at_end=False)" in text
    names: dict[str, Any] = {"__file__": str(Path("test_swapped.py").absolute())}
    exec(compile(text, "test_swapped.py", "exec"), names)
    names["test_job_1_does_what_it_did"]()


def test_a_file_that_is_no_recording_is_not_replaced(counting: Shell) -> None:
    Path("notes.txt").write_text("mine")
    counting.run("%stream create job --task Count --config inputs")
    assert "a file of that name, which is no recording" in counting.fails("%stream record job notes.txt")
    assert Path("notes.txt").read_text() == "mine"


def test_a_recording_that_is_replaced_is_announced(counting: Shell) -> None:
    recorded(counting, "one")
    counting.run("%stream step job")
    counting.run("%stream stop job")
    counting.run("%stream create job --task Count --config inputs")
    shown = counting.run("%stream record job count.recording")
    assert shown == "job is recorded to count.recording, in place of the recording there, from its start on"


def test_a_job_that_has_stopped_is_recorded_from_its_next_start_on(counting: Shell) -> None:
    counting.run("%stream create job --task Count --config inputs")
    counting.run("%stream break message == 'three'")
    send(counting, "one", "two", "three")
    counting.run("%stream step job")
    counting.run("%stream stop job")
    shown = counting.run("%stream record job again.recording")
    assert shown == "job is recorded to again.recording from its next start on: %stream step begins it"
    counting.run("%stream run job --until caught-up")
    counting.run("%stream wait job")
    counting.run("%stream stop job")
    assert [each.message for each in Recording.read("again.recording")] == ["two"]


def test_a_failed_job_is_recorded_once_it_goes_on(counting: Shell) -> None:
    counting.run("%stream create job --task Count --config inputs")
    send(counting, "one", "bad", "two", "three")
    counting.fails("%stream step job 9")
    assert "runs the failed message again" in counting.run("%stream record job mended.recording")
    counting.run(MENDED)
    counting.run("%stream step job 2")
    counting.run("%stream commit job")
    counting.run("%stream step job")
    counting.run("%stream stop job")
    assert [each.message for each in Recording.read("mended.recording")] == ["three"]
    assert counting.run("%stream replay mended.recording").startswith("1 message of job-1")


def test_a_recording_without_its_directory_is_refused_at_once(counting: Shell) -> None:
    counting.run("%stream create job --task Count --config inputs")
    assert "there is no directory" in counting.fails("%stream record job nowhere/count.recording")


def test_a_directory_that_goes_before_the_recording_begins_leaves_the_job(
    counting: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    Path("gone").mkdir()
    counting.run("%stream create job --task Count --config inputs")
    send(counting, "one", "two")
    counting.run("%stream step job")
    counting.run("%stream record job gone/count.recording")
    Path("gone").rmdir()
    counting.run("%stream commit job")
    assert "cannot record to gone/count.recording: No such file" in caplog.text
    assert "mem.clicks.0@1" in counting.run("%stream step job")


def test_a_recording_becomes_a_test(counting: Shell) -> None:
    recorded(counting, "one", "bad")
    counting.fails("%stream step job 9")
    counting.run("%stream stop job")
    shown = counting.run("%stream replay count.recording --to-test test_count.py")
    assert shown == "written: test_count.py, with its messages in test_count.recording"
    text = Path("test_count.py").read_text()
    assert "class Count(sb.StreamTask):" in text
    assert "debug.open(RECORDING, task=Count, at_end=False)" in text
    compile(text, "test_count.py", "exec")


def test_a_recording_without_a_failure_becomes_a_test_of_its_outputs(counting: Shell) -> None:
    recorded(counting, "one", "two")
    counting.run("%stream step job 9")
    counting.run("%stream stop job")
    counting.run("%stream replay count.recording --to-test test_count.py")
    text = Path("test_count.py").read_text()
    assert 'OFFSETS = {"Partition 0": {"mem.clicks.0": "1"}}' in text
    names: dict[str, Any] = {"__file__": "test_count.py"}
    exec(compile(text, "test_count.py", "exec"), names)
    names["test_job_1_does_what_it_did"]()
    assert "mkdir -p" in counting.fails("%stream replay count.recording --to-test nowhere/test_count.py")


def test_a_test_has_the_cell_where_the_recording_has_no_source(counting: Shell) -> None:
    recorded(counting, "one", "bad")
    counting.fails("%stream step job 9")
    counting.run("%stream stop job")
    recording = Recording.read("count.recording")
    recording.header = replace(recording.header, task=replace(recording.header.task, source=""))
    recording.save("elsewhere.recording")
    counting.run("%stream replay elsewhere.recording --to-test test_count.py")
    assert "class Count(sb.StreamTask):" in Path("test_count.py").read_text()


def test_a_replay_has_no_other_inputs(counting: Shell) -> None:
    recorded(counting, "one")
    counting.run("%stream step job")
    counting.run("%stream stop job")
    counting.run("%stream replay count.recording again")
    assert "reads what was recorded" in counting.fails("%stream attach again mem.clicks2")
    Path("other.txt").write_text("hello")
    assert "is no recording" in counting.fails("%stream replay other.txt")


def test_a_recording_that_opens_slowly_says_how_far_it_is(
    counting: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(counting, *map(str, range(30)))
    counting.run("%stream step job 30")
    counting.run("%stream stop job")
    shown, is_shown = list[str](), threading.Event()

    def show(data: dict[str, str], **_: Any) -> None:
        shown.append(data["text/plain"])
        if " of 30 messages" in shown[-1]:
            is_shown.set()

    monkeypatch.setattr(status_messages, "show", lambda data, **_: SimpleNamespace(update=show))
    monkeypatch.setattr(status_messages, "_SILENT_S", 0.001)
    monkeypatch.setattr(status_messages, "_EVERY_S", 0.001)
    counting.names["is_shown"] = is_shown
    counting.run(MENDED + "        if len(self.seen) > 20:\n            is_shown.wait(30)\n")
    counting.run("%stream replay count.recording")
    assert "running count.recording up to its end: 10 of 30 messages" in shown


@pytest.mark.parametrize("run", ["run", "run --messages 9", "run --until message=='none'"])
def test_a_run_of_a_replay_ends_with_its_recording(counting: Shell, run: str) -> None:
    recorded(counting, "one", "two", "bad")
    counting.fails("%stream step job 9")
    counting.run("%stream stop job")
    counting.run(MENDED)
    counting.run("%stream replay count.recording")
    shown = counting.run(f"%stream {run}")
    assert "to send to it" not in shown
    assert counting.run("%stream wait") == "replay is paused: 3 messages processed, caught up with all inputs"
    assert counting.run("%stream step 5") == "replay: its recording ends here"


def test_a_replay_keeps_its_breakpoints_and_watches_when_it_begins_again(counting: Shell) -> None:
    recorded(counting, "one", "two", "three")
    counting.run("%stream step job 3")
    counting.run("%stream stop job")
    counting.run("%stream replay count.recording")
    counting.run("%stream goto replay 0")
    counting.run("%stream break message == 'two' --job replay")
    counting.run("%stream watch said=message --job replay")
    counting.run("%stream stop replay")
    assert "message == 'two'" in counting.run("%stream break --job replay")
    counting.run("%stream back replay 3")
    shown = counting.run("%stream step replay 3")
    assert "message is 'two'" in shown and "said" in shown
    counting.run("%stream create replay")
    assert "message == 'two'" in counting.run("%stream break --job replay")
    counting.run("%stream back replay 3")
    assert "message is 'two'" in counting.run("%stream step replay 3")
