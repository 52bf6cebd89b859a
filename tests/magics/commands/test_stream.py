"""``%stream``: a job is created, stepped, run, given other inputs, and stopped."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from unittest import mock

import pytest
from IPython.utils.capture import capture_output

from streambench.errors import ConfigError, StreambenchError, TaskError
from streambench_magics.commands.commands import PARSERS
from streambench_magics.errors import MagicError, TaskFailed
from streambench_magics.jobs.jobs import Job, showing_delay
from tests.magics.conftest import CONFIG, Shell


def seen(ip: Shell) -> list[object]:
    """What the tasks of the job Count have processed, partition by partition."""
    return [
        message
        for task in ip.magics.bench.jobs["Count"].session.container.tasks
        for message in task.task.seen
    ]


def test_a_job_is_created_stepped_committed_and_stopped(ip: Shell) -> None:
    assert (
        ip.run("%stream create Count --config inputs")
        == "Count is a job of the task Count; it reads mem.clicks"
    )
    first = ip.run("%stream step")
    assert first.startswith("     1  mem.clicks.0@0  (")
    assert seen(ip) == ["a"]
    assert ip.run("%stream step Count 2").count("\n") == 2
    assert ip.run("%stream commit") == "Count is committed"
    assert ip.run("%stream step 5").startswith(
        "Count: 1 message, then it had caught up with its inputs\n     4  mem.clicks.1@1"
    )
    assert ip.run("%stream step") == "Count: nothing to read, it has caught up with its inputs"
    assert ip.run("%stream stop") == "Count is stopped, with everything committed"


def test_show_without_a_page_is_a_table_that_is_always_the_same(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 3")
    ip.run("%stream commit")
    ip.run("%stream show")
    [bundle] = ip.displayed
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"].splitlines()[:5] == [
        "Count  paused  3 processed  lag 1",
        "after message 3, 1 left",
        "stream      partition  oldest  position  upcoming  lag  rate  checkpoint  status",
        "mem.clicks          0       0         2         2    0     -           1  caught up",
        "mem.clicks          1       0         1         2    1     -           0  next in 1",
    ]
    ip.run("%stream show")
    assert ip.displayed == [bundle]


def test_a_job_runs_in_the_background_and_is_waited_for(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    assert ip.run("%stream run --until caught-up") == "Count runs until it has caught up"
    assert ip.run("%stream wait") == "Count is paused: 4 messages processed, caught up with all inputs"
    assert sorted(seen(ip)) == ["a", "b", "c", "d"]


def test_a_job_runs_for_so_many_messages(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    assert ip.run("%stream run --messages 3") == "Count runs for 3 messages"
    assert ip.run("%stream wait Count") == "Count is paused: 3 messages processed, after message 3, 1 left"


def test_a_job_that_runs_free_is_paused(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    assert ip.run("%stream run") == "Count runs until paused"
    assert ip.run("%stream wait --timeout 0.01") == "Count still runs after 0.01 s"
    assert ip.run("%stream pause") == "Count is paused"


def test_waiting_for_a_job_without_a_limit_says_so(
    ip: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench_magics.jobs.jobs._SILENT_S", 0.5)
    ip.run("%stream create Count --config inputs")
    ip.run("%stream run")
    job = ip.magics.bench.jobs["Count"]
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        job.pause(0)

    with showing_delay(job, tell):
        assert job.wait()
    assert told == [
        "Count runs until it is paused, and this waits as long (interrupt the kernel to wait no longer)"
    ]


def test_a_pause_says_what_it_waits_for(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench_magics.jobs.jobs._PATIENCE_S", 0.01)
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step")
    task = ip.magics.bench.jobs["Count"].session.container.tasks[0].task
    began, may_end = threading.Event(), threading.Event()

    def slow(*arguments: object) -> None:
        began.set()
        may_end.wait(60)

    ip.magics.bench.jobs["Count"].session.container.tasks[0].bind(
        mock.Mock(spec=task, process=slow, process_batch=None)
    )
    ip.run("%stream run")
    assert began.wait(60)
    named = Job.waited_for.fget

    def waited_for(job: Job) -> str:
        text = named(job)
        may_end.set()
        return text

    monkeypatch.setattr(Job, "waited_for", property(waited_for))
    line = slow.__code__.co_firstlineno + 2
    waiting, paused = ip.run("%stream pause").splitlines()
    assert re.sub(r"busy \d+ s", "busy 0 s", waiting) == (
        f"waiting for Count: busy 0 s at mem.clicks.0@1, test_stream.py line {line}: may_end.wait(60) "
        "(interrupt the kernel to wait no longer; %stream stop --now Count gives the message up)"
    )
    assert paused == "Count is paused"


def test_interrupting_the_wait_leaves_the_job_running(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream run")
    job = ip.magics.bench.jobs["Count"]

    def interrupted(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "wait", interrupted)
    assert ip.run("%stream wait") == "stopped waiting; Count runs on"
    assert job.state == "running"


def test_a_task_that_raises_an_interrupt_has_failed_and_does_not_run_on(ip: Shell) -> None:
    ip.run("def broken(envelope, collector, coordinator):\n    raise KeyboardInterrupt")
    ip.run("%stream create broken --task broken --config inputs")
    ip.run("%stream run")
    job = ip.magics.bench.jobs["broken"]
    assert job.session._ended.wait(30)
    assert "interrupted: broken stands before mem.clicks.0@0 again" in ip.fails("%stream wait")


def test_without_a_configuration_the_log_is_in_the_folder_of_the_notebook(
    ip: Shell, tmp_path: Path
) -> None:
    ip.run("%stream streams create log.clicks")
    assert ip.run('%stream send log.clicks {"origin": "ORD"} --key ORD') == "sent 1 message to log.clicks"
    ip.run("%stream create Count")
    assert ip.run("%stream attach log.clicks") == "Count reads log.clicks"
    assert "log.clicks.0@0  key ORD" in ip.run("%stream step")
    assert seen(ip) == [{"origin": "ORD"}]
    assert (tmp_path / "streambench-data").is_dir()


def test_a_job_created_again_replaces_the_old_and_keeps_its_checkpoint(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step")
    said = ip.run("%stream create Count")
    assert said.splitlines()[1] == "it replaces the former Count, which was stopped: 1 message is committed"
    ip.run("%stream step 10")
    assert sorted(seen(ip)) == ["b", "c", "d"]


def test_the_new_code_of_a_task_is_taken_by_a_new_job(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step")
    said = ip.run(
        "%%streamtask Count\nseen = []\ndef process(envelope, collector, coordinator):\n    "
        "seen.append(envelope.message * 2)\n"
    )
    assert (
        said.splitlines()[1]
        == "the job Count still runs the old code; %stream swap Count gives it the new one"
    )
    ip.run("%stream create Count")
    ip.run("%stream step 10")
    assert sorted(ip.names["seen"]) == ["bb", "cc", "dd"]


def test_streams_are_attached_before_the_start(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamtask Count\nseen = []\ndef process(envelope, collector, coordinator):\n    "
        "seen.append(str(envelope.ssp))\n"
    )
    ip_empty.run(
        "%%streamconfig c\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
    )
    assert "has no inputs yet: %stream attach Count SYSTEM.STREAM" in ip_empty.run(
        "%stream create Count --config c"
    )
    with pytest.raises(MagicError, match="Count has no inputs: %stream attach Count SYSTEM.STREAM"):
        ip_empty.run("%stream step")
    ip_empty.run("%stream streams create mem.a mem.b")
    assert ip_empty.run("%stream attach Count mem.a mem.b") == "Count reads mem.a, mem.b"
    ip_empty.run("%stream send mem.a x")
    ip_empty.run("%stream send mem.b x")
    ip_empty.run("%stream step 2")
    assert ip_empty.names["seen"] == ["mem.a.0", "mem.b.0"]


def test_inputs_of_a_started_job_change_and_it_goes_on_from_its_checkpoint(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 3")
    ip.run("%stream streams create mem.more --partitions 2")
    ip.run("%stream send mem.more extra --partition 0")
    assert (
        ip.run("%stream attach mem.more")
        == "Count reads mem.clicks, mem.more; it has committed and goes on with them\n"
        "mem.more begins at mem.more.0@0, mem.more.1@0: no checkpoint knows it"
    )
    ip.run("%stream step 10")
    assert sorted(seen(ip)) == ["d", "extra"]
    assert ip.run("%stream detach mem.clicks").startswith("Count reads mem.more; it has committed")
    assert {str(each.ssp) for each in ip.magics.bench.jobs["Count"].snapshot().partitions} == {
        "mem.more.0",
        "mem.more.1",
    }


def test_a_job_that_ran_freely_runs_on_with_its_new_inputs(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream run")
    ip.run("%stream streams create mem.more")
    ip.run("%stream attach mem.more")
    assert ip.magics.bench.jobs["Count"].state == "running"


def test_a_stream_that_is_not_there_changes_nothing_of_a_started_job(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step")
    with pytest.raises(StreambenchError, match="there is no stream mem.nowhere"):
        ip.run("%stream attach mem.nowhere")
    job = ip.magics.bench.jobs["Count"]
    assert (job.state, job.inputs) == ("paused", ["mem.clicks"])
    assert ip.run("%stream step").startswith("     2  mem.clicks")


def test_a_job_that_cannot_go_on_with_new_inputs_keeps_the_old_ones(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step")
    ip.run("%stream streams create mem.more")
    job = ip.magics.bench.jobs["Count"]
    with mock.patch.object(job, "start", side_effect=ConfigError("no")), pytest.raises(ConfigError):
        job.set_inputs(["mem.clicks", "mem.more"])
    assert job.inputs == ["mem.clicks"]


def test_wrong_inputs_are_errors_with_a_remedy(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    with pytest.raises(MagicError, match="Count reads mem.clicks already"):
        ip.run("%stream attach mem.clicks")
    with pytest.raises(MagicError, match="Count does not read mem.x; it reads mem.clicks"):
        ip.run("%stream detach mem.x")
    with pytest.raises(ConfigError, match="there is no system 'men'; did you mean mem"):
        ip.run("%stream attach men.x")
    with pytest.raises(MagicError, match="which streams"):
        ip.run("%stream attach Count")


def test_a_step_never_uses_another_job_where_the_last_could_not_be_made(ip: Shell) -> None:
    ip.run("%stream create one --task Count --config inputs")
    with pytest.raises(MagicError):
        ip.run("%stream create two --task Nothing --config inputs")
    with pytest.raises(MagicError, match="there is no job two; there is one"):
        ip.run("%stream step")
    assert ip.run("%stream step one").startswith("     1  mem.clicks.0@0")


def test_a_failure_shows_the_users_own_frames_and_the_place(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --key k1 --partition 0")
    shown = ip.fails("%stream step 10")
    assert isinstance(ip.error, TaskFailed)
    assert (str(ip.error.ssp), ip.error.offset, ip.error.key) == ("mem.clicks.0", "2", "k1")
    assert 'raise ValueError("cannot count this")' in shown
    assert "ValueError: cannot count this" in shown
    assert "TaskError: Partition 0 failed at mem.clicks.0@2, key 'k1'" in shown
    assert "event" not in shown and "loop.py" not in shown
    assert ip.run("%stream").splitlines()[1].split()[:2] == ["Count", "failed"]
    with pytest.raises(TaskError):
        ip.run("%stream wait")


def test_a_failure_in_the_background_is_raised_by_wait(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.run("%stream run")
    assert 'raise ValueError("cannot count this")' in ip.fails("%stream wait")
    assert ip.run("%stream stop") == (
        "Count has failed: nothing since its last checkpoint is committed: 4 messages come again with its "
        "next start; outputs that are out already come again, too"
    )


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("%stream nix", "there is no %stream nix; %stream help"),
        ("%stream step nix", "there is no job nix: %stream create nix --task TASK makes one"),
        ("%stream step", "there is no job yet: %stream create NAME --task TASK makes one"),
        (
            "%stream step a b c",
            r"usage: %stream step \[\[NAME\] \[N\] \.\.\.\]|a job and a number of messages",
        ),
        ("%stream step 0", "'0' is not a number of 1 or more; usage: %stream step"),
        ("%stream step Count -1", "'-1' is not a number of 1 or more; usage: %stream step"),
        ("%stream create Nix", "there is no task Nix; there is Count: write one with %%streamtask Nix"),
        (
            "%stream create Count --config nix",
            "there is no configuration nix; there is inputs: write one with %%streamconfig nix",
        ),
        ("%stream create", "the following arguments are required: NAME; usage: %stream create"),
        ("%stream run --until caught-up --messages 5", "not allowed with"),
        ("%stream peek mem.clicks --limit 0", "'0' is not a number of 1 or more"),
        ("%stream help nix", "there is no %stream nix"),
    ],
)
def test_wrong_use_is_an_error_of_one_line_with_the_remedy(ip: Shell, line: str, right: str) -> None:
    with pytest.raises(MagicError, match=right):
        ip.run(line)
    assert "\n" not in str(ip.error)


def test_the_errors_of_magics_are_short_and_fail_a_notebook(ip: Shell) -> None:
    """IPython's own UsageError would be taken for a success by the tools that run notebooks as tests."""
    shown = ip.fails("%stream nix")
    assert shown.strip() == f"MagicError: {ip.error}"


def test_help_lists_every_command_in_lines_that_fit_a_notebook(ip: Shell) -> None:
    overview = ip.run("%stream help")
    assert max(map(len, overview.splitlines())) <= 92
    for command in PARSERS:
        assert f"\n  {command} " in overview
        assert ip.run(f"%stream help {command}").startswith(f"usage: %stream {command}")
    assert ip.shell.object_inspect("%stream")["docstring"] == overview
    assert "NAME" in ip.shell.object_inspect("%%streamtask")["docstring"]


def test_a_job_may_be_made_of_a_class_or_a_function_of_the_notebook(ip: Shell) -> None:
    ip.run("got = []\ndef take(envelope, collector, coordinator):\n    got.append(envelope.message)")
    ip.run("%stream create plain --task take --config inputs")
    ip.run("%stream step 2")
    assert ip.names["got"] == ["a", "b"]


def test_a_properties_file_is_a_configuration(ip: Shell, tmp_path: Path) -> None:
    (tmp_path / "job.properties").write_text(CONFIG.partition("\n")[2])
    ip.run("%stream create Count --config job.properties")
    ip.run("%stream step 2")
    assert seen(ip) == ["a", "b"]


def test_unloading_stops_the_jobs_and_takes_the_magics_away(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream run --until caught-up")
    job = ip.magics.bench.jobs["Count"]
    matchers = len(ip.shell.Completer.custom_matchers)
    ip.run("%unload_ext streambench")
    assert job.state == "stopped"
    assert "stream" not in ip.shell.magics_manager.magics["line"]
    assert "streamtask" not in ip.shell.magics_manager.magics["cell"]
    assert len(ip.shell.Completer.custom_matchers) == matchers - 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("streambench")]


def test_a_job_with_an_empty_name_is_not_given_that_of_the_notebook(ip: Shell) -> None:
    ip.run("%%streamconfig nameless\njob.name=\nsystems.mem.samza.factory=memory\ntask.inputs=mem.clicks\n")
    with pytest.raises(ConfigError, match=r"^job\.name \(nameless:2\): is empty: "):
        ip.run("%stream create Count --config nameless")


def test_an_input_that_comes_back_says_where_it_begins(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream streams create mem.more")
    ip.run("%stream attach Count mem.more")
    ip.run("%stream send mem.more x")
    ip.run("%stream step 10")
    ip.run("%stream detach mem.more")
    assert ip.run("%stream attach mem.more").splitlines()[1] == (
        "mem.more begins at mem.more.0@1: behind its last checkpoint"
    )


def test_an_input_that_comes_back_to_a_stopped_job_says_where_too(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 2")
    assert ip.run("%stream detach mem.clicks").endswith("it has committed and stopped")
    assert ip.run("%stream attach mem.clicks").splitlines()[1:] == [
        "mem.clicks begins at mem.clicks.0@1, mem.clicks.1@1: behind its last checkpoint"
    ]


def test_there_is_nothing_to_stop_or_pause_before_start_and_after_stop(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    assert ip.run("%stream stop") == "Count is not started: there is nothing to stop"
    assert ip.run("%stream pause") == "Count is not started: there is nothing to pause"
    ip.run("%stream step")
    assert ip.run("%stream stop") == "Count is stopped, with everything committed"
    assert ip.run("%stream stop") == "Count is stopped already"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("break --once", "--once and --hits go with a condition, or --on KIND; usage: %stream break"),
        ("watch a=", "a watch is NAME=EXPRESSION; usage: %stream watch"),
        ("diff -1 3", "there is no job -1; there is Count: %stream create NAME --task TASK makes one"),
        ("wait --timeout -1", "argument --timeout: '-1' is not a number of seconds; usage: %stream wait"),
        ("STEP", "there is no %stream STEP; did you mean step? %stream help lists what there is"),
        ("create Other --task Count --inputs mem.nope", "there is no mem.nope yet: %stream streams create"),
        ("compare Count Count --over nope", "nope is neither a file nor a stream"),
    ],
)
def test_what_is_not_quite_right_is_told_with_its_remedy(ip: Shell, line: str, said: str) -> None:
    ip.run("%stream create Count --config inputs")
    with capture_output() as captured:
        try:
            ip.shell.run_line_magic("stream", f"{line} --config inputs" if "create" in line else line)
        except StreambenchError as error:
            print(error)
    assert said in captured.stdout
