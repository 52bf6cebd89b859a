"""``send``: tombstones, headers, times and whole envelopes; what ``peek --json`` prints is sent as it was."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.cli.envelopes import add_base64, envelope_of, json_row
from streambench.config import Config
from streambench.model import SystemStream
from streambench.serde.plain import plain
from streambench.serde.registry import serde_named
from streambench.serde.streams import readable
from tests.cli.test_commands import C, lines
from tests.cli.test_looking import put
from tests.job.project import Project

NOON = 1_767_355_200_000


def test_tombstones_have_keys_headers_and_a_time(project: Project) -> None:
    project.fill(0, partitions=2)
    arguments = (
        "--tombstone",
        "a",
        "--tombstone",
        "b",
        "--header",
        "why=gdpr",
        "--timestamp",
        "2026-01-02T12:00:00Z",
    )
    told = project.ok("send", "log.numbers", *arguments, "--json", *C)
    assert json.loads(told) == {"stream": "log.numbers", "messages": 2}
    rows = project.rows("peek", "log.numbers")
    assert sorted(row["key"] for row in rows) == ["a", "b"]
    assert {(row["message"], row["timestamp"], row["headers"]["why"]) for row in rows} == {
        (None, NOON, "gdpr")
    }


def test_a_tombstone_has_the_partition_of_its_key(project: Project) -> None:
    project.fill(0, partitions=5)
    project.ok(
        "send", "log.numbers", "--key-field", "k", *C, stdin=lines(*({"k": f"k{n}"} for n in range(9)))
    )
    project.ok("send", "log.numbers", *(word for n in range(9) for word in ("--tombstone", f"k{n}")), *C)
    rows = project.rows("peek", "log.numbers", "--limit", "99")
    assert len(rows) == 18 and len({(row["key"], row["partition"]) for row in rows}) == 9


def test_the_key_of_a_tombstone_is_written_with_the_serde(project: Project) -> None:
    project.configure({"systems.log.samza.key.serde": "long"})
    project.fill(0)
    project.ok("send", "log.numbers", "--tombstone", "5", *C)
    assert project.rows("peek", "log.numbers")[0]["key"] == 5
    assert "cannot be encoded with LongSerde" in project.fails("send", "log.numbers", "--tombstone", "x", *C)


def test_times_are_taken_from_a_field(project: Project) -> None:
    project.fill(0)
    rows = [{"t": NOON}, {"t": "2026-01-02T13:00:00.5+01:00"}]
    project.ok("send", "log.numbers", "--timestamp-field", "t", *C, stdin=lines(*rows))
    assert [row["timestamp"] for row in project.rows("peek", "log.numbers")] == [NOON, NOON + 500]
    for wrong in (
        '{"t": "noon"}',
        '{"t": "2026-01-02T12:00:00"}',
        '{"t": 1.5}',
        '{"t": true}',
        '{"t": "2026-01-02T12:00:00.0001Z"}',
        "{}",
    ):
        assert "line 1: " in project.fails("send", "log.numbers", "--timestamp-field", "t", *C, stdin=wrong)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"mesage": 1}', "no field 'mesage'"), ('{"key": "a"}', "no message in this envelope"),
        ("[1]", "a JSON object with a message"),
        ('{"message": 1, "partition": 7}', "has no partition 7"),
        ('{"message": 1, "partition": "0"}', "not a number from 0 on"),
        ('{"message": 1, "headers": {"a": 1}}', "names and texts"),
        ('{"message_base64": "?"}', "is not base64"),
        ('{"message": "x", "error": "broken"}', "could not be decoded"),
        ('{"message": 1, "timestamp": "x"}', "is no time"),
    ],
)  # fmt: skip
def test_an_envelope_that_is_none_is_named_and_nothing_is_sent(
    project: Project, line: str, what: str
) -> None:
    project.fill(0)
    error = project.fails("send", "log.numbers", "--envelopes", *C, stdin=f'{{"message": 1}}\n{line}\n')
    assert "standard input, line 2: " in error and what in error and "nothing has been sent" in error
    assert project.rows("peek", "log.numbers") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tombstone", "a", "--text"), ("--envelopes", "--key-field", "k"),
        ("--envelopes", "--header", "a=b"), ("--header", "a"),
        ("--timestamp-field", "t", "--timestamp", "5"), ("--header", "a=1", "--header", "a=2"),
        ("--timestamp", "noon"),
    ],
)  # fmt: skip
def test_options_that_exclude_each_other_are_refused(project: Project, arguments: tuple[str, ...]) -> None:
    assert project.run("send", "log.numbers", *arguments, *C).returncode == 2


def test_a_name_that_stands_twice_in_an_object_is_refused(project: Project) -> None:
    project.fill(0)
    assert "line 1: the name 'a' stands twice" in project.fails(
        "send", "log.numbers", *C, stdin='{"a": {"a": 1, "a": 2}}\n'
    )


def test_peek_and_send_copy_a_stream_exactly(project: Project) -> None:
    project.configure(
        {"systems.log.samza.msg.serde": "json", "systems.log.streams.raw.samza.msg.serde": None}
    )
    values = [None, 2**80, {"a": [1e-12, 1.0, None]}, "text"]
    for n, value in enumerate(values):
        put(
            project,
            "log.a",
            value,
            key=f"k{n}",
            timestamp=NOON + n,
            headers={"plain": b"x", "bytes": b"\xff\x00", "esc": b"\\xff"},
        )
    project.ok("streams", "create", "log.b", "--partitions", "1", *C)
    printed = project.ok("peek", "log.a", "--json", *C)
    project.ok("send", "log.b", "--envelopes", *C, stdin=printed)
    assert project.ok("peek", "log.b", "--json", *C) == printed
    assert [json.loads(line)["message"] for line in printed.splitlines()] == values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5,
)  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "json": JSON,
    "string": st.text(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "bytes": st.binary(),
    "msgpack": JSON.filter(lambda value: not _is_large(value))
    | st.floats()
    | st.binary()
    | st.dictionaries(st.integers(0, 9) | st.binary() | st.text(), st.binary() | st.floats()),
}


def _is_large(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        return True
    return False


@pytest.mark.parametrize("name", sorted(VALUES))
@given(data=st.data())
def test_any_message_comes_back_from_its_line(name: str, data: st.DataObject) -> None:
    serde = serde_named(Config(), name, key="systems.log.samza.msg.serde")
    value = data.draw(VALUES[name])
    given_bytes = (
        data.draw(st.sampled_from([None, b"\xff\x00", b"null", b"", b'"', b" 1"])) if value is None else None
    )
    raw = given_bytes if value is None else serde.to_bytes(value)
    headers = data.draw(st.dictionaries(st.text(st.characters(codec="utf-8")), st.binary(), max_size=2))
    row: dict[str, Any] = {"key": readable(serde, raw), "message": readable(serde, raw), "headers": headers}
    add_base64(row, {"key": raw, "message": raw}, {"key": serde, "message": serde})
    envelope = envelope_of(json_row(row), SystemStream("log", "b"), (serde, serde), None)
    assert dict(envelope.headers or {}) == headers
    for again in (envelope.key, envelope.message):
        assert again == raw or repr(serde.from_bytes(again)) == repr(readable(serde, raw))


def test_messages_are_shown_as_json_and_long_ones_cut(project: Project) -> None:
    project.configure({"systems.log.samza.msg.serde": "msgpack"})
    for value in ({"a": None, "b": True, "c": b"x\xff", "d": math.inf}, ["x" * 5_000], "line\nbreak"):
        put(project, "log.shown", value)
    first, second, third = project.ok("peek", "log.shown", *C).splitlines()
    assert first.endswith('{"a":null,"b":true,"c":"x\\\\xff","d":"inf"}')
    assert second.endswith("x... (4,004 more characters)") and len(second) < 1_100
    assert third.endswith("line\\nbreak")
    rows = project.rows("peek", "log.shown")
    assert (
        rows[0]["message"] == plain({"a": None, "b": True, "c": b"x\xff", "d": math.inf})
        and "message_base64" in rows[0]
    )
    assert rows[1]["message"] == ["x" * 5_000] and "message_base64" not in rows[1]
