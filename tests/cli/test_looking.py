"""Streams that hold what is no text, streams that are damaged, and pipes that nobody reads."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.serde.streams import StreamSerdes
from streambench.system.systems import Systems
from tests.job.project import Project

C = ("-c", "job.properties")
SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
SALE = {"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "raw": b"\x1b[31m\xff", "price": Decimal("1.25")}


def put(project: Project, stream: str, message: object, **more: object) -> None:
    """A message in a stream of one partition, written with its serde."""
    named = sb.SystemStream.parse(stream)
    systems = Systems(project.config)
    systems.create(named, 1)
    with writing(systems, named, 1, "test", StreamSerdes(project.config).for_stream(named)) as writer:
        writer.send([sb.OutgoingMessageEnvelope(named, message, **more)])  # type: ignore[arg-type]
    systems.close()


@pytest.fixture
def avro(project: Project) -> Project:
    (project.directory / "sale.avsc").write_text(json.dumps(SCHEMA))
    project.configure(
        {
            "systems.log.streams.sales.samza.msg.serde": "sale", "serializers.registry.sale.class": "avro",
            "serializers.registry.sale.schema": "sale.avsc",
        }
    )  # fmt: skip
    return project


def test_what_json_does_not_know_is_shown_as_text(avro: Project) -> None:
    put(avro, "log.sales", SALE)
    (row,) = avro.rows("peek", "log.sales")
    assert row["message"] == {"at": "2026-01-01T00:00:00+00:00", "raw": "\x1b[31m\\xff", "price": "1.25"}


def test_a_message_stays_in_its_line_and_moves_no_cursor(project: Project) -> None:
    project.configure({"systems.log.samza.msg.serde": None})
    put(project, "log.raw", b"\x1b[31mred\nblue\x00\xff", headers={"why": b"a\nb"})
    (line,) = project.ok("peek", "log.raw", *C).splitlines()
    assert line.endswith(r"\x1b[31mred\nblue\x00\xff  why=a\nb")


@pytest.mark.parametrize("message", [{"k": [2**70]}, {b"\xff": 1}, {"a": {(1, 2): None}}])
def test_messages_that_are_no_json_are_rows_of_json_all_the_same(project: Project, message: object) -> None:
    (project.directory / "repr.py").write_text(
        "import streambench as sb\n"
        "class Repr(sb.Serde):\n"
        "    def to_bytes(self, value): return repr(value).encode()\n"
        "    def from_bytes(self, data): return eval(data)\n"
    )
    project.configure(
        {"systems.log.streams.odd.samza.msg.serde": "repr", "serializers.registry.repr.class": "repr.py:Repr"}
    )
    put(project, "log.odd", message)
    (row,) = project.rows("peek", "log.odd")
    assert isinstance(row["message"], dict)


def test_json_lines_are_sent_by_their_schema(avro: Project) -> None:
    avro.configure(
        {
            "systems.log.streams.ids.samza.msg.serde": "ids",
            "serializers.registry.ids.class": "avro",
            "serializers.registry.ids.schema": '"long"',
        }
    )
    avro.ok("streams", "create", "log.ids", *C)
    avro.ok("send", "log.ids", *C, stdin="1\n2\n")
    assert [row["message"] for row in avro.rows("peek", "log.ids")] == [1, 2]
    assert "line 2" in avro.fails("send", "log.ids", *C, stdin="1\n2.5\n")


def test_an_offset_beyond_the_end_is_an_error(project: Project) -> None:
    project.fill(4)
    told = project.fails("peek", "log.numbers", "--from", "9", *C)
    assert "beyond the end of all partitions" in told
    assert "write --from oldest, newest, or an offset before the end" in told


def test_where_there_is_nothing_yet_it_is_said(project: Project) -> None:
    project.fill(0)
    done = project.run("peek", "log.numbers", *C)
    assert (done.returncode, done.stdout) == (0, "")
    assert "there is nothing yet in log.numbers" in done.stderr


def test_a_key_from_right_to_left_turns_nothing_else_around(project: Project) -> None:
    project.fill(0)
    project.ok("send", "log.numbers", "--key-field", "k", *C, stdin='{"k": "\u05d0\u05d1", "n": 1}\n')
    assert "  \u2068\u05d0\u05d1\u2069  " in project.ok("peek", "log.numbers", *C)
    assert project.rows("peek", "log.numbers")[0]["key"] == "\u05d0\u05d1"


def test_following_ends_when_nobody_reads_any_more(project: Project) -> None:
    project.fill(1, partitions=1)
    follower = project.start("peek", "log.numbers", "--follow", *C)
    assert follower.stdout is not None and follower.stderr is not None
    assert "log.numbers.0@0" in follower.stdout.readline()
    follower.stdout.close()
    try:
        assert follower.wait(60) == 141
        assert follower.stderr.read() == ""
    finally:
        follower.kill()
        follower.wait()
        follower.stderr.close()


def test_a_damaged_stream_does_not_hide_the_others(project: Project) -> None:
    project.fill(1)
    project.fill(1, stream="broken")
    (damaged,) = project.directory.rglob("broken/stream.json")
    damaged.write_text("{")
    assert str(damaged) in project.fails("streams", "list", *C)
    done = project.run("streams", "list", "--json", *C)
    assert {json.loads(line)["stream"] for line in done.stdout.splitlines()} == {"log.numbers"}


def test_a_run_says_what_became_dead_letters(project: Project) -> None:
    project.fill(2, partitions=1)
    project.configure({"systems.log.samza.msg.serde": None})
    put(project, "log.numbers", b"{")
    project.configure({"task.dead.letter.stream": "log.dead"})
    assert "1 undecodable message dead-lettered; committed" in project.ok(
        "run", "job.properties", "--until", "caught-up", "-q"
    )
    (row,) = project.rows("peek", "log.dead")
    assert row["message"] == "{" and row["headers"]["dead-letter.source"] == "log.numbers.0"


def test_a_row_that_cannot_be_read_is_shown_as_it_stands_with_the_reason(project: Project) -> None:
    (project.directory / "rows.csv").write_bytes(b"a,b\n1,2\n3\n4,5\n")
    project.configure(
        {
            "systems.files.samza.factory": "file",
            "systems.files.path": ".",
            "systems.files.samza.msg.serde": "json",
        }
    )
    rows = project.rows("peek", "files.rows")
    assert [row["message"] for row in rows] == [{"a": "1", "b": "2"}, "3", {"a": "4", "b": "5"}]
    assert [("rows.csv, line 3: 1 fields" in row["error"]) if "error" in row else None for row in rows] == [
        None,
        True,
        None,
    ]


def test_a_limit_of_any_size_shows_all_there_is(project: Project) -> None:
    project.configure({"systems.log.samza.msg.serde": "json"})
    put(project, "log.few", 1)
    (row,) = project.rows("peek", "log.few", "--limit", "9" * 25)
    assert row["message"] == 1
