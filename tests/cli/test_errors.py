"""What is wrong is said in one line that names the place; nothing is half written, and the exit code tells
failure from wrong use."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path

import pytest

from streambench.cli.output import print_error
from streambench.container.container import Container
from streambench.errors import ConfigError
from streambench.metrics.log_reporter import LinesOnStderr
from tests.job.project import Project

C = ("-c", "job.properties")
RUN = ("run", "job.properties", "--until", "caught-up")


def test_an_input_that_does_not_exist_is_named(project: Project) -> None:
    assert "log.numbers" in project.fails(*RUN)


def test_streams_that_do_not_exist_are_named_by_every_command(project: Project) -> None:
    project.fill(1)
    assert "log.nothing" in project.fails("peek", "log.nothing", *C)
    assert "log.nothing" in project.fails("send", "log.nothing", *C, stdin="1\n")
    assert "log.nothing" in project.fails("streams", "delete", "log.nothing", *C)
    assert "there is no system 'lag'; did you mean log?" in project.fails("peek", "lag.numbers", *C)


def test_a_partition_out_of_range_is_refused_before_anything_is_sent(project: Project) -> None:
    project.fill(0, partitions=2)
    assert "log.numbers has no partition 2; it has 2" in project.fails(
        "send", "log.numbers", "--partition", "2", *C, stdin='{"n": 1}\n'
    )
    assert "log.numbers has no partition 2; it has 2" in project.fails(
        "peek", "log.numbers", "--partition", "2", *C
    )
    assert project.rows("peek", "log.numbers") == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{not json", "not JSON"),
        ('{"n": 1}', "no field 'k'"),
        ("[1]", "needs a JSON object"),
        ('{"k": 5}', "key 5 cannot be encoded"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_sent(project: Project, bad: str, reason: str) -> None:
    project.fill(0, partitions=1)
    error = project.fails(
        "send", "log.numbers", "--key-field", "k", *C, stdin=f'{{"k": "a"}}\n\n{bad}\n{{"k": "b"}}\n'
    )
    assert "standard input, line 3: " in error and reason in error and error.endswith("nothing has been sent")
    assert project.rows("peek", "log.numbers") == []


@pytest.mark.parametrize("whole", ["0", "1"])
def test_no_exception_moves_the_cursor(
    whole: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMBENCH_TRACEBACK", whole)
    error = ValueError("text\r\x1b[2K\u202e")
    error.add_note("note\r\x1b[2K")
    print_error(error)
    shown = capsys.readouterr().err
    assert "text\\r\\x1b[2K\\u202e" in shown and "note\\r\\x1b[2K" in shown
    assert not set(shown) & set("\r\x1b\u202e")


def test_no_warning_moves_the_cursor_or_forges_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    data = "x\r\x1b[2K\nerror: forged"
    record = logging.LogRecord("a", logging.WARNING, "a.py", 1, "got %s", (data,), None)
    LinesOnStderr(logging.WARNING).emit(record)
    assert capsys.readouterr().err == "warning: got x\\r\\x1b[2K\n  | error: forged\n"


def test_a_bad_line_of_a_file_is_named_with_the_file(project: Project) -> None:
    project.fill(0, partitions=1)
    (project.directory / "in.jsonl").write_text('{"n": 1}\noops\n')
    assert "in.jsonl, line 2: " in project.fails("send", "log.numbers", "--input", "in.jsonl", *C)
    assert project.rows("peek", "log.numbers") == []


def test_a_bad_line_among_followed_ones_says_how_many_were_sent(project: Project) -> None:
    project.fill(0, partitions=1)
    error = project.fails("send", "log.numbers", "--follow", *C, stdin='{"n": 1}\n{"n": 2}\noops\n{"n": 3}\n')
    assert "line 3: " in error and error.endswith("2 messages before it have been sent")
    assert len(project.rows("peek", "log.numbers")) == 2


def test_a_task_that_ends_python_has_not_done_what_was_asked(project: Project) -> None:
    project.fill(1, partitions=1)
    code = (
        "import sys\nclass Ends:\n    def process(self, envelope, collector, coordinator):\n        "
        "sys.exit(0)\n"
    )
    (project.directory / "ends.py").write_text(code)
    project.configure({"task.class": "ends.py:Ends"})
    done = project.run("run", "job.properties", "--until", "caught-up")
    assert done.returncode == 1
    assert (
        "sys.exit(0) was called (ends.py:4)" in done.stderr
        and "ends.py" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_message_that_is_too_large_is_refused(project: Project) -> None:
    project.configure({"systems.log.max.message.bytes": 1000})
    project.fill(0, partitions=1)
    assert "max.message.bytes" in project.fails(
        "send", "log.numbers", *C, stdin=json.dumps("x" * 2000) + "\n"
    )
    assert project.rows("peek", "log.numbers") == []


def test_a_task_that_raises_is_shown_with_its_message_and_its_own_lines(project: Project) -> None:
    project.fill(20)
    project.configure({"task.class": "task.py:Raises"})
    done = project.run(*RUN)
    assert done.returncode == 1
    first, *frames = done.stderr.splitlines()
    assert (
        first == "error: Partition 1 failed at log.numbers.1@3, key 'k7': ZeroDivisionError: division by zero"
        "; captured: streambench replay streams/_jobs/up-1/captures/1-c0.capture"
    )
    assert [line.split('"')[1] for line in frames if line.startswith("  File ")] == [
        str(project.directory / "task.py")
    ] * 2
    assert 'return message["n"] / 0' in frames[-2] + frames[-1]
    assert all(row["processed"] is None for row in project.rows("checkpoints"))


def test_a_task_that_raises_in_its_own_process_is_shown_with_its_container(project: Project) -> None:
    project.fill(20)
    project.configure({"task.class": "task.py:Raises", "job.container.count": 2})
    done = project.run(*RUN)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: container 1: Partition 1 failed at log.numbers.1@3, key 'k7': ZeroDivisionError"
    )
    assert 'return message["n"] / 0' in done.stderr
    assert "Traceback" not in done.stderr and "streambench/" not in done.stderr


def test_a_task_file_that_fails_when_it_is_loaded_is_shown_with_its_line(project: Project) -> None:
    project.fill(1)
    (project.directory / "task.py").write_text("import streambench as sb\n\nlimit = unknown_name + 1\n")
    done = project.run(*RUN)
    assert done.returncode == 1
    assert done.stderr.startswith("error: NameError: name 'unknown_name' is not defined\n")
    assert "limit = unknown_name + 1" in done.stderr
    assert "streambench/" not in done.stderr


def test_an_unknown_serde_is_named_with_its_key_and_line(project: Project) -> None:
    project.fill(1)
    project.configure({"systems.log.samza.msg.serde": "jsno"})
    error = project.fails(*RUN)
    assert "systems.log.samza.msg.serde" in error and "job.properties:6" in error and "jsno" in error
    assert "systems.log.samza.msg.serde" in project.fails("send", "log.numbers", *C, stdin='{"n": 1}\n')


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("task.inputs=log.numbers\ntask.inputs=log.others\n", "line 2: task.inputs"),
        ("task.inptus=log.numbers\n", "did you mean task.inputs?"),
        ("task.inputs=log.numbers\ntask.window.ms=soon\n", "task.window.ms"),
        ("task.inputs=numbers\ntask.class=task.py:Up\n", "task.inputs"),
        ("task.inputs=log.numbers\n", "task.class"),
        ("task.inputs=log.numbers\ntask.class=task.py:Nothing\n", "task.py has no 'Nothing'"),
    ],
)
def test_broken_properties_are_named_by_key(project: Project, text: str, named: str) -> None:
    project.fill(1)
    (project.directory / "job.properties").write_text(text)
    assert named in project.fails(*RUN)


def test_a_configuration_that_cannot_be_read_is_named(project: Project) -> None:
    assert "cannot read the configuration other.properties" in project.fails("run", "other.properties")


def newest_record(directory: Path) -> Path:
    """The last record of container 0 in the first generation of the job."""
    return max(directory.glob("streams/_jobs/up-1/g1/c0/*.json"))


def test_a_damaged_checkpoint_is_named_and_nothing_is_guessed_in_its_place(project: Project) -> None:
    project.fill(6)
    project.ok(*RUN)
    record = newest_record(project.directory)
    whole = record.read_bytes()
    record.write_bytes(whole.replace(b'"offsets"', b'"offsetz"', 1))
    outputs = project.outputs()
    for command in (RUN, ("checkpoints", *C)):
        assert str(record) in project.fails(*command)
    assert project.outputs() == outputs
    project.ok("checkpoints", "--rewind", "oldest", "--yes", *C)
    assert "6 messages" in project.ok(*RUN)


def test_an_unknown_place_to_go_back_to_changes_nothing(project: Project) -> None:
    project.fill(6)
    project.ok(*RUN)
    before = project.rows("checkpoints")
    assert "outside of what it holds: 0 to 3" in project.fails(
        "checkpoints", "--rewind", "log.numbers.0@9", "--yes", *C
    )
    assert "has no task 'Partition 9'" in project.fails(
        "checkpoints", "--rewind", "Partition 9=oldest", "--yes", *C
    )
    assert "no commit 0.1 or before" in project.fails("checkpoints", "--rewind", "0.1", "--yes", *C)
    no_offset = project.fails("checkpoints", "--rewind", "log.numbers@2026-03-01T12:00Z", "--yes", *C)
    assert (
        "'2026-03-01T12:00Z' is no offset of it; it holds 0 to 3 (the next)" in no_offset
        and "or timestamp: with a date" in no_offset
    )
    assert "'noon' is no time" in project.fails(
        "checkpoints", "--rewind", "log.numbers.0@timestamp:noon", "--yes", *C
    )
    assert "log.others.0 is no input" in project.fails(
        "checkpoints", "--rewind", "log.others.0@1", "--yes", *C
    )
    assert project.run("checkpoints", "--rewind", "oldest", *C).returncode == 2
    assert project.rows("checkpoints") == before


def test_an_unknown_commit_is_shown_with_the_last_one_and_nothing_is_moved(project: Project) -> None:
    project.fill(6)
    project.ok(*RUN)
    last = project.rows("checkpoints", "--history")[-1]["commit"]
    before = project.rows("checkpoints")
    for commit in ("99.9", f"{last}9"):
        assert f"there is no commit {commit}; the last is {last}" in project.fails(
            "checkpoints", "--rewind", commit, "--yes", *C
        )
    assert project.rows("checkpoints") == before
    project.ok("checkpoints", "--rewind", last, "--yes", *C)


def test_going_back_in_what_is_no_input_is_refused_before_anything_is_said(
    project: Project,
) -> None:
    project.fill(2)
    wrong = project.fails("checkpoints", "--rewind", "log.nope@1", "--yes", *C)
    assert "log.nope is no input of up-1; its inputs are log.numbers" in wrong
    done = project.run("checkpoints", "--rewind", "oldest", *C)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs --yes" in done.stderr


@pytest.mark.parametrize("containers", [1, 2])
def test_an_input_that_is_not_there_is_told_with_its_key_and_the_remedy(
    project: Project, containers: int
) -> None:
    project.configure({"job.container.count": containers})
    error = project.fails(*RUN)
    assert "task.inputs: there is no stream log.numbers" in error
    assert "'streambench streams create log.numbers -c job.properties' makes one" in error


def test_who_sends_to_a_stream_that_is_not_there_learns_how_to_make_it(project: Project) -> None:
    assert "'streambench streams create log.numbers -c job.properties' makes one" in project.fails(
        "send", "log.numbers", *C, stdin="1\n"
    )


def test_nobody_is_told_to_create_a_file_that_should_be_there(project: Project) -> None:
    project.configure(
        {"task.inputs": "files.a", "systems.files.samza.factory": "file", "systems.files.path": "."}
    )
    for arguments in (RUN, ("send", "files.a", *C)):
        error = project.fails(*arguments, stdin="1\n")
        assert "there is no stream files.a: no file" in error and "streams create" not in error


def test_a_task_that_cannot_be_made_is_told_with_its_key_and_file(project: Project) -> None:
    project.fill(1)
    (project.directory / "late.py").write_text(
        "class Late:\n    def __init__(self, url): ...\n    def process(self, e, c, o): ...\n"
    )
    project.configure({"task.class": "late.py:Late"})
    error = project.fails(*RUN)
    assert (
        error.startswith("error: task.class (job.properties:2): cannot make a Late (late.py:2): TypeError: ")
        and "'url'" in error
    )


def test_a_task_without_a_process_names_the_place_of_its_key(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("class Late:\n    pass\n")
    (tmp_path / "job.properties").write_text("job.name=late\ntask.inputs=mem.a\ntask.class=late.py:Late\n")
    with pytest.raises(ConfigError, match=r"^task\.class \(job\.properties:3\): Late has no process"):
        Container(tmp_path / "job.properties")


def test_a_syntax_error_in_the_file_of_the_task_is_shown_with_its_line(project: Project) -> None:
    project.fill(1)
    (project.directory / "late.py").write_text("class Late:\n    def process(self, e, c, o:\n        pass\n")
    project.configure({"task.class": "late.py:Late"})
    errors = project.run(*RUN).stderr
    path = project.directory / "late.py"
    assert errors.startswith(f"error: task.class (job.properties:2): {path}, line 2: '(' was never closed\n")
    assert f'File "{path}", line 2\n    def process(self, e, c, o:\n' in errors


@pytest.mark.parametrize(
    ("inputs", "what"),
    [("log.numbers,,log.up", "a comma too many"), ("log.numbers, log.numbers", "named twice")],
)
def test_a_list_of_inputs_that_was_edited_badly_is_refused(project: Project, inputs: str, what: str) -> None:
    project.fill(1)
    project.configure({"task.inputs": inputs})
    error = project.fails(*RUN)
    assert error.startswith("error: task.inputs (job.properties:3): ") and what in error


@pytest.mark.parametrize("key", ["systems.log.fsync", "systems.log.streams.numbers.cleanup.policy"])
def test_an_unknown_setting_of_a_log_is_shown_with_file_and_line(
    project: Project, key: str
) -> None:
    project.configure({key: "x"})
    assert f"{key} (job.properties:9): 'x' is not one of " in project.fails(*RUN)


@pytest.mark.parametrize("registered", [False, True])
def test_the_schema_that_a_serde_lacks_is_told_with_the_line_that_needs_it(
    project: Project, registered: bool
) -> None:
    project.fill(1)
    names = {"serializers.registry.a.class": "avro"} if registered else {}
    project.configure({**names, "systems.log.samza.msg.serde": "a" if registered else "avro"})
    error = project.fails(*RUN)
    assert f"serializers.registry.{'a' if registered else 'avro'}.schema: is missing" in error
    needs = (
        "serializers.registry.a.class (job.properties:9)"
        if registered
        else "systems.log.samza.msg.serde (job.properties:6)"
    )
    assert error.endswith(f"; {needs} needs it")


def test_going_back_in_a_missing_partition_shows_the_existing_ones(project: Project) -> None:
    project.fill(4)
    project.ok(*RUN)
    error = project.fails("checkpoints", "--rewind", "log.numbers.9@3", "--yes", *C)
    assert "log.numbers has no partition 9; it has 2, numbered from 0" in error


def test_the_ends_of_many_partitions_are_not_all_told(project: Project) -> None:
    project.fill(0, partitions=7)
    error = project.fails("peek", "log.numbers", "--from", "99", *C)
    assert "partition 0 at 0, 1 at 0, 2 at 0 and 4 more. Begin there" in error
    assert (
        "(partition 0 from 0, 1 from 0, 2 from 0 and 4 more)" in project.run("peek", "log.numbers", *C).stderr
    )


def test_ctrl_c_while_messages_are_read_says_that_nothing_was_sent(project: Project) -> None:
    project.fill(0)
    os.mkfifo(project.directory / "in")
    with (
        project.start("send", "log.numbers", "--input", "in", *C) as job,
        (project.directory / "in").open("wb", buffering=0) as pipe,
    ):
        pipe.write(b'{"n": 1}\n')
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate()
    assert (job.returncode, errors) == (130, "interrupted; nothing has been sent\n")
    assert project.rows("peek", "log.numbers") == []


def test_what_is_no_task_is_told_with_its_key(project: Project) -> None:
    project.fill(1)
    code = (
        "import abc\nLATE = 5\nclass Half(abc.ABC):\n    @abc.abstractmethod\n    def process(self, e, c, "
        "o): ...\n"
    )
    (project.directory / "late.py").write_text(code)
    for name in ("LATE", "Half"):
        project.configure({"task.class": f"late.py:{name}"})
        assert "task.class" in project.fails(*RUN)


def test_an_unknown_action_on_streams_is_named(project: Project) -> None:
    assert "no action 'bogus'; there are list, create" in project.run("streams", "bogus", "log.x", *C).stderr


@pytest.mark.parametrize("containers", [1, 2])
def test_a_word_for_true_that_is_not_understood_is_warned_of_once(project: Project, containers: int) -> None:
    project.fill(2)
    key = "systems.log.streams.numbers.samza.reset.offset"
    project.configure({key: "maybe", "job.container.count": containers})
    process = project.start(*RUN)
    errors = process.communicate()[1]
    assert process.returncode == 0
    assert (
        errors
        == f"warning: {key}: 'maybe' is neither true nor false; it counts as false, the checkpoint is used\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("run",),
        ("run", "job.properties", "--until", "never"),
        ("run", "job.properties", "--messages", "3", "--until", "caught-up"),
        ("run", "job.properties", "--messages", "none"),
        ("run", "job.properties", *C),
        ("streams", "create", *C),
        ("streams", "list", "nodot", *C),
        ("send", *C),
        ("peek", "log.a", "log.b", *C),
        ("checkpoints", "--rewind", "somewhere", "--yes", *C),
        ("deploy", "job.properties", "--every", "0"),
    ],
)
def test_wrong_use_ends_with_exit_code_2_and_says_how_to_use_it(
    project: Project, arguments: tuple[str, ...]
) -> None:
    project.fill(1)
    done = project.run(*arguments)
    assert done.returncode == 2
    assert "Usage: streambench" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [("run", "job.properties", "--until", "caught-up"), ("checkpoints", "job.properties")]
)
def test_a_job_whose_name_is_set_to_nothing_does_not_go_by_another(
    project: Project, command: tuple[str, ...]
) -> None:
    project.configure({"job.name": ""})
    project.fill(1)
    assert project.fails(*command).startswith("error: job.name (job.properties:1): is empty: ")
