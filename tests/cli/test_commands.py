"""The commands, used as they are meant to be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
from msgspec import structs

import streambench as sb
from streambench.cli.checkpoints import _rewind
from streambench.cli.run import _Lines
from streambench.container.observe.snapshot import ContainerSnapshot
from tests.job.project import Project

C = ("-c", "job.properties")


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def test_a_stream_is_created_filled_processed_and_read(project: Project) -> None:
    assert (
        project.ok("streams", "create", "log.numbers", "--partitions", "3", *C)
        == "log.numbers has been created, with 3 partitions\n"
    )
    sent = project.ok(
        "send",
        "log.numbers",
        "--key-field",
        "k",
        *C,
        stdin=lines(*({"k": f"k{n}", "n": n} for n in range(9))),
    )
    assert sent == "sent 9 messages to log.numbers\n"
    project.ok("run", "job.properties", "--messages", "4")
    assert "5 messages" in project.ok("run", "job.properties", "--until", "caught-up")
    rows = project.rows("peek", "log.up", "--from", "oldest", "--limit", "100")
    assert sorted(row["message"]["n"] for row in rows) == list(range(1, 10))
    assert {row["key"] for row in rows} == {f"k{n}" for n in range(9)}
    assert set(rows[0]) == {"partition", "offset", "timestamp", "key", "message"}


def test_streams_are_listed_by_partition_with_null_where_one_is_empty(project: Project) -> None:
    assert project.rows("streams", "list") == []
    project.fill(1, partitions=2)
    assert project.rows("streams", "list") == [
        {"stream": "log.numbers", "partition": 0, "oldest": "0", "newest": "0", "upcoming": "1"},
        {"stream": "log.numbers", "partition": 1, "oldest": None, "newest": None, "upcoming": "0"},
    ]


def test_the_configuration_may_come_first_or_behind_the_verb(project: Project) -> None:
    project.fill(1)
    table = project.ok("streams", "job.properties")
    assert table == project.ok("streams", "list", "job.properties") == project.ok("streams", *C)
    assert project.ok("peek", "job.properties", "log.numbers") == project.ok("peek", "log.numbers", *C)


def test_creating_what_is_there_already_changes_nothing(project: Project) -> None:
    project.fill(4, partitions=2)
    assert "is there already" in project.ok("streams", "create", "log.numbers", "--partitions", "2", *C)
    refused = project.fails("streams", "create", "log.numbers", "--partitions", "3", *C).replace("\n", " ")
    assert "with 2 partitions and not 3" in refused
    assert "'streambench streams grow log.numbers --partitions 3 -c job.properties' gives it" in refused
    assert len(project.rows("peek", "log.numbers", "--limit", "9")) == 4


def test_without_a_number_of_partitions_the_existing_ones_are_enough(project: Project) -> None:
    project.fill(0, partitions=5)
    assert "log.numbers is there already, with 5 partitions" in project.ok(
        "streams", "create", "log.numbers", *C
    )
    project.configure({"systems.log.streams.numbers.partitions": 4})
    assert "with 5 partitions and not 4" in project.fails("streams", "create", "log.numbers", *C)


def test_growing_a_stream_says_what_becomes_of_keys(project: Project) -> None:
    project.fill(0, partitions=2)
    warned = "many keys go to other partitions than before"
    assert warned in project.ok("streams", "grow", "log.numbers", "--partitions", "3", *C).replace("\n", " ")
    assert warned not in project.ok("streams", "grow", "log.numbers", "--partitions", "3", *C)


@pytest.mark.parametrize("serde", ["json", "bytes"])
def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it(project: Project, serde: str) -> None:
    project.fill(0, partitions=1)
    project.configure({"systems.log.samza.msg.serde": serde})
    (project.directory / "in.jsonl").write_bytes(b'\xef\xbb\xbf{"n":1}\n{"n":2}\n')
    project.ok("send", "log.numbers", "--input", "in.jsonl", *C)
    project.configure()
    assert [row["message"] for row in project.rows("peek", "log.numbers")] == [{"n": 1}, {"n": 2}]


def test_all_inputs_may_be_passed_over_up_to_now(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--messages", "2")
    project.ok("checkpoints", "--rewind", "upcoming", "--yes", *C)
    assert [row["next"] for row in project.rows("checkpoints")] == ["5", "5"]
    assert "; 0 messages in " in project.ok("run", "job.properties", "--until", "caught-up")


def test_a_deleted_stream_is_gone(project: Project) -> None:
    project.fill(1)
    project.ok("streams", "grow", "log.numbers", "--partitions", "5", *C)
    assert "can get more of them, not fewer" in project.fails(
        "streams", "grow", "log.numbers", "--partitions", "4", *C
    )
    assert len(project.rows("streams", "list")) == 5
    assert "--yes" in project.run("streams", "delete", "log.numbers", *C).stderr
    project.ok("streams", "delete", "log.numbers", "--yes", *C)
    assert project.rows("streams", "list") == []


def test_whose_checkpoints_a_deleted_stream_leaves_without_meaning_is_told(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--until", "caught-up")
    assert "deleted (jobs that have read it: up-1)" in project.ok(
        "streams", "delete", "log.numbers", "--yes", *C
    )
    project.fill(6)
    told = project.run("checkpoints", "--json", *C)
    assert [(row["next"], row["lag"]) for row in map(json.loads, told.stdout.splitlines())] == [
        ("5", None)
    ] * 2
    assert "log.numbers.1 is not what it was when Partition 1 made its checkpoint" in told.stderr
    assert {
        row["lag"] for row in map(json.loads, project.ok("streams", "--groups", "--json", *C).splitlines())
    } == {None}


def test_choosing_a_place_in_a_recreated_stream_asks_nothing_more(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--until", "caught-up")
    last = project.rows("checkpoints")[0]["commit"]
    project.ok("streams", "delete", "log.numbers", "--yes", *C)
    project.fill(6)
    assert "is not what it was" in project.run("checkpoints", "--rewind", last, "--yes", *C).stderr
    told = project.run("checkpoints", "--rewind", "log.numbers@2", "--yes", *C)
    assert "is not what it was" not in told.stderr
    ran = project.run("run", "job.properties", "--until", "caught-up")
    assert "2 messages" in ran.stdout and "is not what it was" not in ran.stderr


def test_lines_come_from_a_file_and_go_to_the_named_partition(project: Project) -> None:
    project.fill(0, partitions=3)
    (project.directory / "in.jsonl").write_text(lines({"n": 1}, {"n": 2}) + "\n")
    project.ok("send", "log.numbers", "--input", "in.jsonl", "--partition", "2", *C)
    rows = project.rows("peek", "log.numbers")
    assert [(row["partition"], row["key"], row["message"]) for row in rows] == [
        (2, None, {"n": 1}),
        (2, None, {"n": 2}),
    ]


def test_without_a_serde_lines_are_sent_as_they_stand(project: Project) -> None:
    project.configure({"systems.log.samza.msg.serde": None, "systems.log.samza.key.serde": None})
    project.fill(0, partitions=1)
    project.ok("send", "log.numbers", "--key-field", "k", *C, stdin='{"k": 7,  "b": 1}\n')
    assert [(row["key"], row["message"]) for row in project.rows("peek", "log.numbers")] == [
        ("7", '{"k": 7,  "b": 1}')
    ]


@pytest.mark.parametrize(
    ("serde", "arguments"),
    [(None, ()), ("bytes", ()), (None, ("--text",)), ("bytes", ("--text",)), ("string", ("--text",))],
)
def test_lines_that_are_no_json_are_sent_where_none_is_wanted(
    project: Project, serde: str | None, arguments: tuple[str, ...]
) -> None:
    project.configure({"systems.log.samza.msg.serde": serde})
    project.fill(0, partitions=1)
    project.ok("send", "log.numbers", *arguments, *C, stdin="GET /a  200\n\n  ä {\r\nnull\n")
    assert [row["message"] for row in project.rows("peek", "log.numbers")] == ["GET /a  200", "  ä {", "null"]


def test_a_text_may_be_json_that_has_the_key_in_it(project: Project) -> None:
    project.configure({"systems.log.samza.msg.serde": "string"})
    project.fill(0, partitions=1)
    project.ok("send", "log.numbers", "--text", "--key-field", "k", *C, stdin='{"k": "a",  "b": 1}\n')
    assert [(row["key"], row["message"]) for row in project.rows("peek", "log.numbers")] == [
        ("a", '{"k": "a",  "b": 1}')
    ]
    assert "line 1: this is not JSON" in project.fails(
        "send", "log.numbers", "--text", "--key-field", "k", *C, stdin="k=a\n"
    )


def test_with_the_string_serde_lines_are_json_unless_declared_as_text(project: Project) -> None:
    project.configure({"systems.log.samza.msg.serde": "string"})
    project.fill(0, partitions=1)
    project.ok("send", "log.numbers", *C, stdin='"a b"\n')
    assert [row["message"] for row in project.rows("peek", "log.numbers")] == ["a b"]
    assert "--text sends lines that are none" in project.fails("send", "log.numbers", *C, stdin="a b\n")


def test_lines_that_are_followed_are_sent_as_they_come(project: Project) -> None:
    project.fill(0, partitions=1)
    with project.start("peek", "log.numbers", "--follow", "--limit", "1", "--json", *C) as reader:
        with project.start("send", "log.numbers", "--follow", *C, stdin=subprocess.PIPE) as sender:
            assert sender.stdin is not None and reader.stdout is not None
            sender.stdin.write('{"n": 5}\n')
            sender.stdin.flush()
            assert json.loads(reader.stdout.readline())["message"] == {"n": 5}
        assert reader.wait() == 0


def test_peek_begins_where_it_is_told_and_ends_at_the_limit(project: Project) -> None:
    project.fill(10, partitions=2)
    assert [
        row["offset"] for row in project.rows("peek", "log.numbers", "--partition", "1", "--from", "3")
    ] == ["3", "4"]
    assert sorted(row["message"]["n"] for row in project.rows("peek", "log.numbers", "--from", "newest")) == [
        8,
        9,
    ]
    assert len(project.rows("peek", "log.numbers", "--limit", "3")) == 3


def test_peek_shows_what_it_cannot_decode_with_the_reason(project: Project) -> None:
    project.fill(1, partitions=1)
    project.configure({"systems.log.streams.numbers.samza.msg.serde": "long"})
    (row,) = project.rows("peek", "log.numbers")
    assert row["message"] == '{"n":0}'
    assert "the message cannot be decoded" in row["error"]


def test_peek_leaves_the_job_where_it_was(project: Project) -> None:
    project.fill(4)
    project.ok("run", "job.properties", "--messages", "2")
    before = project.rows("checkpoints")
    project.ok("peek", "log.numbers", *C)
    assert project.rows("checkpoints") == before


def test_ctrl_c_stops_a_run_cleanly_with_a_commit(project: Project) -> None:
    project.fill(8)
    project.pipes()
    project.configure({"task.class": "task.py:Tells"})
    with project.start("run", "job.properties") as job:
        job_process = project.await_reached()
        assert job_process == job.pid
        job.send_signal(signal.SIGINT)
        out, errors = job.communicate()
    assert job.returncode == 0, errors
    assert "stopped" in out and "committed" in out
    done = {row["partition"]: int(row["next"]) for row in project.rows("checkpoints")}
    assert sum(done.values()) == len(project.outputs())


def test_a_stop_before_the_goal_is_no_success(project: Project) -> None:
    project.fill(8)
    project.pipes()
    project.configure({"task.class": "task.py:Tells"})
    with project.start("run", "job.properties", "--messages", "1000") as job:
        project.await_reached()
        job.terminate()
        _, errors = job.communicate()
    assert job.returncode == 1
    assert "error: it was stopped before" in errors
    assert sum(int(row["next"]) for row in project.rows("checkpoints")) == len(project.outputs())


def test_one_message_is_one_message(project: Project) -> None:
    project.fill(0, partitions=1)
    assert "sent 1 message to log.numbers" in project.ok("send", "log.numbers", *C, stdin='{"n": 1}\n')
    assert "; 1 message in " in project.ok("run", "job.properties", "--until", "caught-up")


def test_a_second_ctrl_c_stops_at_once_without_a_commit(project: Project) -> None:
    project.fill(8)
    project.pipes()
    project.configure({"task.class": "task.py:Waits"})
    with project.start("run", "job.properties") as job:
        project.await_reached()
        job.send_signal(signal.SIGINT)
        assert job.stderr is not None
        assert "Ctrl-C once more" in job.stderr.readline()
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate()
    assert job.returncode != 0
    assert "Traceback" not in errors
    assert "task.py" in errors and 'open("gate").close()' in errors
    assert all(row["processed"] is None for row in project.rows("checkpoints"))


def test_ctrl_c_stops_several_containers_cleanly(project: Project) -> None:
    project.fill(8)
    project.pipes()
    project.configure({"task.class": "task.py:Tells", "job.container.count": 2})
    with project.start("run", "job.properties") as job:
        project.await_reached()
        job.send_signal(signal.SIGINT)
        out, errors = job.communicate()
    assert job.returncode == 0, errors
    assert "in 2 containers" in out
    assert sum(int(row["next"]) for row in project.rows("checkpoints")) == len(project.outputs())


def test_after_a_kill_nothing_is_lost_and_the_checkpoint_is_whole(project: Project) -> None:
    project.fill(20)
    project.pipes()
    project.configure({"task.class": "task.py:Waits"})
    project.ok("run", "job.properties", "--messages", "5")
    committed = {row["partition"]: int(row["next"]) for row in project.rows("checkpoints")}
    with project.start("run", "job.properties") as job:
        project.await_reached()
        job.kill()
    # What was done since the last commit is done again, what was committed is not: each number is there, the
    # committed ones once.
    assert {row["partition"]: int(row["next"]) for row in project.rows("checkpoints")} == committed
    project.configure()
    project.ok("run", "job.properties", "--until", "caught-up")
    outputs = project.outputs()
    assert set(outputs) == set(range(1, 21))
    for partition, after in committed.items():
        assert all(outputs.count(2 * offset + partition + 1) == 1 for offset in range(after))
    assert [row["lag"] for row in project.rows("checkpoints")] == [0, 0]


def test_a_run_can_be_rewound_to_the_beginning_and_to_a_place(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--until", "caught-up")
    assert "checkpointed (last processed)" in project.ok("checkpoints", *C).splitlines()[0]
    project.ok("checkpoints", "--rewind", "log.numbers.1@3", "--yes", *C)
    assert [(row["partition"], row["next"], row["lag"]) for row in project.rows("checkpoints")] == [
        (0, "5", 0),
        (1, "3", 2),
    ]
    assert "2 messages" in project.ok("run", "job.properties", "--until", "caught-up")
    project.ok("checkpoints", "--rewind", "Partition 0=oldest", "--yes", *C)
    assert "5 messages" in project.ok("run", "job.properties", "--until", "caught-up")
    project.ok("checkpoints", "--rewind", "oldest", "--yes", *C)
    assert "10 messages" in project.ok("run", "job.properties", "--until", "caught-up")


def test_a_start_point_may_be_a_word_or_a_time_and_hold_for_a_whole_stream(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--until", "caught-up")
    for where, following in (
        ("log.numbers.1@oldest", ["5", "0"]),
        ("log.numbers@upcoming", ["5", "5"]),
        ("log.numbers@2", ["2", "2"]),
        ("Partition 1=log.numbers@timestamp:2001-01-01", ["2", "0"]),
        ("log.numbers@timestamp:99999999999999", ["5", "5"]),
    ):
        project.ok("checkpoints", "--rewind", where, "--yes", *C)
        assert [row["next"] for row in project.rows("checkpoints")] == following
    assert "0 messages" in project.ok("run", "job.properties", "--until", "caught-up")


def test_a_start_point_goes_before_a_reset_until_it_is_committed(project: Project) -> None:
    project.fill(10)
    project.configure({"systems.log.streams.numbers.samza.reset.offset": "true"})
    assert "10 messages" in project.ok("run", "job.properties", "--until", "caught-up")
    project.ok("checkpoints", "--rewind", "log.numbers@3", "--yes", *C)
    assert "4 messages" in project.ok("run", "job.properties", "--until", "caught-up")
    assert "10 messages" in project.ok("run", "job.properties", "--until", "caught-up")


def test_a_run_can_be_rewound_to_a_commit_of_its_history(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--messages", "4")
    project.ok("run", "job.properties", "--until", "caught-up")
    history = project.rows("checkpoints", "--history")
    chosen = next(row for row in history if row["processed"] is not None)
    again = sum(
        row["again"] for row in history if row["commit"] == chosen["commit"] and row["processed"] is not None
    )
    assert again == 6
    project.ok("checkpoints", "--rewind", chosen["commit"], "--yes", *C)
    assert "6 messages" in project.ok("run", "job.properties", "--until", "caught-up")


def test_a_rewind_can_be_taken_back(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--until", "caught-up")
    last = project.rows("checkpoints")[0]["commit"]
    project.ok("checkpoints", "--rewind", "oldest", "--yes", *C)
    assert [row["processed"] for row in project.rows("checkpoints", "--history")][-2:] == [None, None]
    project.ok("checkpoints", "--rewind", last, "--yes", *C)
    assert [row["lag"] for row in project.rows("checkpoints")] == [0, 0]


def test_the_history_has_a_commit_once_also_after_a_rewind_to_it(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--until", "caught-up")
    history = project.rows("checkpoints", "--history")
    project.ok("checkpoints", "--rewind", history[-1]["commit"], "--yes", *C)
    assert project.rows("checkpoints", "--history") == history


def test_two_wishes_make_one_rewind(project: Project) -> None:
    project.fill(10)
    project.ok("run", "job.properties", "--until", "caught-up")
    project.ok("checkpoints", "--rewind", "log.numbers.0@1", "--rewind", "log.numbers.1@2", "--yes", *C)
    assert [row["next"] for row in project.rows("checkpoints")] == ["1", "2"]


def test_a_rewind_that_fails_does_not_say_that_tasks_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    rewind = mock.Mock(name="Rewind")
    rewind.places.return_value = {"Partition 0": "log.numbers.0 at 0"}
    rewind.apply.side_effect = PermissionError("Permission denied")
    with pytest.raises(PermissionError):
        _rewind(rewind, ["oldest"], nullcontext(), yes=True)
    assert capsys.readouterr().out == ""
    rewind.apply.side_effect = None
    _rewind(rewind, ["oldest"], nullcontext(), yes=True)
    assert capsys.readouterr().out.startswith("Partition 0: goes on with log.numbers.0 at 0\n")


def test_doctor_finds_what_this_installation_has(project: Project) -> None:
    found = {
        row["what"]: row["state"] for row in map(json.loads, project.ok("doctor", "--json").splitlines())
    }
    assert found["python"] == found["pyarrow"] == found["crc32c"] == "found"
    assert {"java", "pandas", "PYSPARK_PYTHON", "browser", "cc"} <= set(found)


def test_every_command_has_help_with_examples(project: Project) -> None:
    commands = ("run", "deploy", "streams", "send", "peek", "checkpoints", "doctor", "demo")
    for command in (*commands, "kafka stop", "kafka status"):
        shown = project.ok(*command.split(), "--help")
        assert "Examples" in shown and f"streambench {command}" in shown


def test_the_tab_key_completes_the_names_of_streams(project: Project) -> None:
    project.fill(1)
    project.fill(1, stream="numerals")
    words = "streambench peek -c job.properties log.numb"
    shown = project.completes(words)
    assert shown == ["log.numbers"]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("streambench package --target y", ["yarn"]),
        ("streambench peek log.numbers --from o", ["oldest"]),
        ("streambench run --until c", ["caught-up"]),
    ],
)
def test_the_tab_key_completes_the_values_of_options(
    project: Project, words: str, completed: list[str]
) -> None:
    assert project.completes(words) == completed


def test_a_reader_that_goes_away_ends_a_listing_quietly(project: Project) -> None:
    project.fill(20_000, partitions=1)
    with project.start("peek", "log.numbers", "--limit", "20000", "--json", *C) as job:
        assert job.stdout is not None and job.stderr is not None
        job.stdout.readline()
        job.stdout.close()
        assert job.stderr.read() == ""
    assert job.returncode == 141


def test_the_python_call_and_the_command_agree_on_checkpoints(project: Project) -> None:
    project.fill(4)
    sb.run(project.config)
    assert [(row["task"], row["processed"]) for row in project.rows("checkpoints")] == [
        ("Partition 0", "1"),
        ("Partition 1", "1"),
    ]


def test_the_installed_command_runs_in_a_process_of_its_own(project: Project) -> None:
    project.fill(5)
    for arguments, expected in (
        (("run", "job.properties", "--until", "caught-up"), "5 messages"),
        (("--version",), sb.__version__),
    ):
        with project.start(*arguments) as job:
            out, errors = job.communicate()
        assert job.returncode == 0, errors
        assert expected in out


def test_a_line_that_says_nothing_new_is_shown_once_a_minute_at_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    lines = _Lines(lambda: now)
    idle = ContainerSnapshot("up-1", 0, "running", "", 0, 5, (), (), {}, {})
    printed = []
    for at in range(5, 200, 5):
        now = float(at)
        lines.show([structs.replace(idle, processed=6 if at >= 100 else 5)])
        if capsys.readouterr().out:
            printed.append(at)
    assert printed == [5, 65, 100, 160]


def test_asking_for_a_number_of_messages_shows_that_they_are_waited_for(project: Project) -> None:
    project.fill(2)
    done = project.run("run", "job.properties", "--messages", "2")
    assert "it stops after 2 messages, and waits for them" in done.stderr
    assert project.run("run", "job.properties", "--until", "caught-up").stderr == ""


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (None, "there is no file"),
        ("def up(:", "line 1"),
        ("class Up:\n    def init(self, context):\n        1 / 0\n    process = print", "division by zero"),
    ],
)
def test_a_job_that_cannot_start_shows_its_error_alone(
    project: Project, code: str | None, problem: str
) -> None:
    project.configure({"task.class": "broken.py:Up"})
    project.fill(2)
    if code is not None:
        (project.directory / "broken.py").write_text(code)
    done = project.run("run", "job.properties", "--messages", "2")
    assert done.returncode == 1
    assert problem in done.stderr
    assert "it stops after" not in done.stderr


def test_a_reader_that_has_seen_enough_ends_peek_without_a_word(project: Project) -> None:
    project.fill(3)
    read, write = os.pipe()
    os.close(read)
    with project.start("peek", "log.numbers", *C, stdout=write) as peek:
        os.close(write)
        assert peek.communicate()[1] == ""
    assert peek.returncode == 141
