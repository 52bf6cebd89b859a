"""Files as streams."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.chunk import Undecodable
from streambench.errors import (
    ConfigError,
    CorruptDataError,
    OffsetError,
    SerdeError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Sender, SystemConsumer
from streambench.system.file import FileSystemFactory
from streambench.system.systems import Systems
from tests.system.files import SSP, STREAM, Files, written


def as_csv(rows: list[list[str]], terminator: str = "\r\n") -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator=terminator, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode()


# Reading


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".jsonl.gz"])
def test_lines_of_json_are_messages_as_they_are(tmp_path: Path, ending: str) -> None:
    written(tmp_path / f"flights{ending}", b'{"a": 1}\n{"a":2}\r\n\n{"a":3}')
    read = Files(tmp_path).read()
    assert [envelope.message for envelope in read] == [b'{"a": 1}', b'{"a":2}', b'{"a":3}']
    assert [envelope.offset for envelope in read] == ["8", "17", "25"]
    assert {(envelope.ssp, envelope.key, envelope.timestamp) for envelope in read} == {(SSP, None, None)}


@pytest.mark.parametrize("ending", [".txt", ".log", ".log.gz"])
def test_every_line_of_a_text_is_a_message(tmp_path: Path, ending: str) -> None:
    written(tmp_path / f"flights{ending}", b"one\n\n\xff two \n")
    assert Files(tmp_path).messages() == [b"one", b"", b"\xff two "]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_rows_become_json_objects_of_strings(tmp_path: Path, ending: str) -> None:
    written(tmp_path / f"flights{ending}", 'id,"the name"\n1,"Zürich, HB\nGleis ""3"""\n\n2,\n'.encode())
    assert [orjson.loads(message) for message in Files(tmp_path).messages()] == [
        {"id": "1", "the name": 'Zürich, HB\nGleis "3"'},
        {"id": "2", "the name": ""},
    ]


@pytest.mark.parametrize(("ending", "head"), [(".jsonl", b""), (".csv", b"a\n"), (".txt", b"")])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, ending: str, head: bytes) -> None:
    written(tmp_path / f"flights{ending}", b"\xef\xbb\xbf" + head + b"7\n")
    (message,) = Files(tmp_path).messages()
    assert orjson.loads(message) in (7, {"a": "7"})
    assert Files(tmp_path).metadata()[0].newest == str(4 + len(head))


FORMATS = st.sampled_from([".jsonl", ".txt", ".csv", ".csv.gz", ".jsonl.gz"])
CELLS = st.text(st.sampled_from('ab,"\n\r ü'), max_size=5)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes, list[Any]]:
    """A file's ending and contents, and the messages in it."""
    ending = draw(FORMATS)
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    if ending.startswith(".csv"):
        rows = draw(st.lists(st.tuples(CELLS, CELLS.map(lambda cell: cell + "x")), max_size=6))
        data = as_csv([["a", "b"], *map(list, rows)], newline)
        wanted: list[Any] = [{"a": a, "b": b} for a, b in rows]
    else:
        lines = draw(st.lists(st.integers(0, 10**6).map(str), max_size=6))
        data = newline.join([*lines, ""]).encode()
        wanted = [line.encode() for line in lines]
    return ending, data.removesuffix(newline.encode()) if draw(st.booleans()) else data, wanted


def decoded(ending: str, message: Any) -> Any:
    return orjson.loads(message) if ending.startswith(".csv") else message


@given(file=files(), at_most=st.integers(1, 4))
def test_whatever_is_in_a_file_offsets_lead_to_it(
    tmp_path_factory: pytest.TempPathFactory, file: Any, at_most: int
) -> None:
    """From each message's own offset reading begins with it, from the following one with the next; and the
    admin says the same."""
    ending, data, wanted = file
    path = tmp_path_factory.mktemp("files")
    written(path / f"flights{ending}", data)
    files = Files(path)
    read = files.read(at_most=at_most)
    assert [decoded(ending, envelope.message) for envelope in read] == wanted
    here, admin = files.metadata()[0], files.admin()
    if not read:
        assert (here.oldest, here.newest) == (None, None)
        assert files.read(here.upcoming or "") == []
        return
    assert (here.oldest, here.newest, here.upcoming) == (
        read[0].offset,
        read[-1].offset,
        admin.after(read[-1].offset),
    )
    for at, envelope in enumerate(read):
        assert files.read(envelope.offset, at_most) == read[at:]
        assert files.read(admin.after(envelope.offset), at_most) == read[at + 1 :]
    offsets = [envelope.offset for envelope in read]
    assert [admin.compare(one, other) for one, other in zip(offsets, offsets[1:], strict=False)] == [-1] * (
        len(offsets) - 1
    )


def test_a_position_inside_a_line_means_that_line(tmp_path: Path) -> None:
    written(tmp_path / "flights.jsonl", b"100\n200\n300\n")
    assert Files(tmp_path).messages("5") == [b"200", b"300"]
    assert Files(tmp_path).messages("12") == []


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".csv"])
def test_lines_longer_than_what_is_read_at_once_are_one_message(tmp_path: Path, ending: str) -> None:
    long = b'"' + b"x" * 120_000 + b'"'
    lines = [b'"a"', long, b'"b"', *[b'"c"'] * 100_000, long]
    written(tmp_path / f"flights{ending}", b"\n".join(lines))
    read = Files(tmp_path).messages(at_most=40_000)
    if ending == ".csv":
        assert [orjson.loads(message)["a"] for message in read] == [line.decode()[1:-1] for line in lines[1:]]
    else:
        assert read == lines


def test_a_line_of_megabytes_is_one_message(tmp_path: Path) -> None:
    written(tmp_path / "flights.txt", b"x" * 3_000_000 + b"\nend\n")
    assert [len(message) for message in Files(tmp_path).messages()] == [3_000_000, 3]


def test_partitions_are_read_apart_and_an_unwanted_one_loses_nothing(tmp_path: Path) -> None:
    written(tmp_path / "flights" / "0.jsonl", b"1\n2\n")
    written(tmp_path / "flights" / "1.jsonl", b"3\n")
    written(tmp_path / "flights" / "_SUCCESS", b"")
    files, other = Files(tmp_path), SystemStreamPartition("files", "flights", 1)
    assert sorted(files.metadata()) == [0, 1]
    consumer = FileSystemFactory().get_consumer("files", files.config, MetricsRegistry())
    consumer.register(SSP, "0")
    consumer.register(other, "0")
    consumer.start()
    assert [envelope.message for envelope in consumer.poll({SSP: 1}, 0)] == [b"1"]
    assert not consumer.at_head(SSP) and not consumer.at_head(other)
    assert [envelope.message for envelope in consumer.poll({other: 5}, 0)] == [b"3"]
    assert [envelope.message for envelope in consumer.poll({SSP: 5}, 0)] == [b"2"]
    assert consumer.at_head(SSP) and consumer.at_head(other)


@pytest.mark.parametrize(
    ("ending", "data", "keys"),
    [
        (
            ".jsonl",
            b'{"id":"a"}\n{"id":5}\n{"x":1}\nno json\n[1]\n{"id":null}\n',
            [b"a", b"5", None, None, None, None],
        ),
        (".csv", b"id,x\na,1\n,2\n", [b"a", b""]),
    ],
)
def test_a_key_can_be_taken_from_a_field(
    tmp_path: Path, ending: str, data: bytes, keys: list[bytes | None]
) -> None:
    written(tmp_path / f"flights{ending}", data)
    assert [envelope.key for envelope in Files(tmp_path, key__field="id").read()] == keys


# Broken files


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize(
    ("rows", "line", "what", "raw"),
    [
        (b"1,2\n3\n5,6\n", 4, "1 fields, but the header has 2 columns", b"3"),
        (b"1,2\r\n3,4,5\r\n5,6\r\n", 4, "3 fields", b"3,4,5"),
        (b"1,2\n\n3\n5,6", 5, "1 fields", b"3"),
        (b'1,"2\n2"\n3,"4\n5,6\n', 5, "does not end", b'3,"4'),
        (b'1,2\n3,"4"x\n5,6\n', 4, "expected after", b'3,"4"x'),
        (b'1,2\n\n3,"4\n5,6\n"7,8\n', 7, "expected after", b'3,"4'),
        (b"1,2\n3,4\r5\n5,6\n", 4, "unquoted field$", b"3,4\r5"),
        (b"1,2\n3,\xff\n5,6\n", 4, "not UTF-8", b"3,\xff"),
        (b'1,2\n3,"\n\xff"\n5,6\n', 5, "not UTF-8: invalid start byte at byte 0 of the line", b'3,"\n\xff"'),
    ],
)
@pytest.mark.parametrize("at_most", [1, 1000])
def test_a_broken_row_is_a_message_with_bytes_and_an_error_with_its_line(
    tmp_path: Path, ending: str, rows: bytes, line: int, what: str, raw: bytes, at_most: int
) -> None:
    written(tmp_path / f"flights{ending}", b'"a\n",b\n' + rows)
    files = Files(tmp_path, key__field="b")
    read = files.read(at_most=at_most)
    first, broken, next_one = read[:3]
    assert isinstance(broken, Undecodable)
    assert (broken.key, broken.message) == (None, raw)
    assert re.search(
        rf"files\.flights\.0@{broken.offset}: .*flights{re.escape(ending)}, line {line}: .*{what}",
        str(broken.error),
    )
    assert [first.key[:1], orjson.loads(next_one.message)] == [b"2", {"a\n": "5", "b": "6"}]
    here, admin = files.metadata()[0], files.admin()
    assert (here.oldest, here.newest) == (read[0].offset, read[-1].offset)
    for at, each in enumerate(read):
        again = files.read(admin.after(each.offset), at_most)
        assert [(one.offset, one.message) for one in again] == [
            (one.offset, one.message) for one in read[at + 1 :]
        ]
        inside = files.read(each.offset, at_most)
        assert [one.offset for one in inside] == [one.offset for one in read[at:]]
        if at == 1:
            assert str(inside[0].error) == str(broken.error)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("header", "what"), [(b"a,b,a\n", "column 'a' stands twice"), (b"a,b\n", "no column 'id'")]
)
def test_a_wrong_header_is_an_error(tmp_path: Path, header: bytes, what: str) -> None:
    written(tmp_path / "flights.csv", header + b"1,2\n")
    with pytest.raises(CorruptDataError, match=f"line 1: .*{what}"):
        Files(tmp_path, key__field="id").read()


@pytest.mark.parametrize("cut", [5, -3])
def test_a_damaged_compressed_file_is_an_error_that_names_it(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "flights.jsonl.gz", b"1\n" * 1000)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptDataError, match=r"flights\.jsonl\.gz is damaged"):
        Files(tmp_path).read()
    path.write_bytes(b"no gzip at all")
    with pytest.raises(CorruptDataError, match=r"flights\.jsonl\.gz is damaged"):
        Files(tmp_path).metadata()


@pytest.mark.parametrize(
    ("offset", "what"), [("9", "behind the end"), ("x", "no offset"), ("-1", "no offset"), ("²", "no offset")]
)
@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".txt.gz"])
def test_an_offset_that_is_none_is_an_error(tmp_path: Path, ending: str, offset: str, what: str) -> None:
    written(tmp_path / f"flights{ending}", b"1\n2\n")
    with pytest.raises(OffsetError, match=what):
        Files(tmp_path).read(offset)


# Which files


def test_a_file_is_a_stream_by_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "access.2024.log.gz", b"GET\n")
    files, stream = Files(path), SystemStream("files", "access.2024")
    assert files.admin().streams() == [stream]
    assert files.messages(ssp=SystemStreamPartition("files", "access.2024", 0)) == [b"GET"]
    with pytest.raises(
        UnknownStreamError, match=r"access\.2024\.log\.gz is one file, and its stream is files\.access\.2024"
    ):
        files.metadata()


def test_a_stream_may_have_a_path_and_a_format_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path / "elsewhere" / "data.dat", b"1\n")
    files = Files(tmp_path, **{"streams.flights.path": str(path), "streams.flights.format": "text"})
    assert files.messages() == [b"1"]
    assert files.admin().streams() == [STREAM]


def test_a_directory_tells_its_streams(tmp_path: Path) -> None:
    for name in ("b.csv", "a.x.jsonl.gz", ".hidden.jsonl", "other.pdf", "parts/0.txt", "nothing/readme"):
        written(tmp_path / name, b"")
    assert [stream.stream for stream in Files(tmp_path).admin().streams()] == ["a.x", "b", "parts"]


def test_a_missing_file_is_an_error_that_names_the_path_and_what_is_there(tmp_path: Path) -> None:
    written(tmp_path / "flight.jsonl", b"")
    told = rf"no stream files\.flights: no file {tmp_path}/flights\.jsonl .*did you mean files\.flight\?"
    with pytest.raises(UnknownStreamError, match=told):
        Files(tmp_path).metadata()
    with pytest.raises(UnknownStreamError, match="gone.jsonl"):
        Files(tmp_path, **{"streams.flights.path": "gone.jsonl"}).metadata()
    with pytest.raises(UnknownStreamError):
        Files(tmp_path).consumer()


def test_streams_outside_the_directory_cannot_be_named(tmp_path: Path) -> None:
    written(tmp_path / "secret.txt", b"x\n")
    with pytest.raises(UnknownStreamError):
        Files(tmp_path / "data").metadata(SystemStream("files", "../secret"))


def test_a_partition_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "flights.jsonl", b"")
    with pytest.raises(UnknownStreamError, match=r"has no partition .*; it has 1, numbered from 0"):
        Files(tmp_path).consumer(ssp=SystemStreamPartition("files", "flights", 3))


def test_several_files_of_one_name_are_an_error_that_names_the_choice(tmp_path: Path) -> None:
    written(tmp_path / "flights.jsonl", b"")
    written(tmp_path / "flights.csv.gz", b"")
    with pytest.raises(
        StreamSystemError, match=r"flights\.jsonl, flights\.csv\.gz.*systems\.files\.streams\.flights\.path"
    ):
        Files(tmp_path).metadata()


def test_a_directory_without_partitions_is_no_stream(tmp_path: Path) -> None:
    written(tmp_path / "flights" / "readme.md", b"")
    with pytest.raises(UnknownStreamError, match=r"flights holds no partitions \(0\.jsonl"):
        Files(tmp_path).metadata()


def test_a_gap_in_the_partitions_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "flights" / "0.jsonl", b"")
    written(tmp_path / "flights" / "2.jsonl", b"")
    with pytest.raises(StreamSystemError, match="no file of partition 1"):
        Files(tmp_path).metadata()


@pytest.mark.parametrize(
    ("settings", "key", "what"),
    [
        ({"format": "xml"}, "systems.files.format", "not one of jsonl, csv, text"),
        (
            {"streams.flights.follow": "perhaps"},
            "systems.files.streams.flights.follow",
            "neither true nor false",
        ),
        ({"streams.flights.follw": "true"}, "systems.files.streams.flights.follw", "did you mean follow"),
        ({"format": "text", "key.field": "id"}, "systems.files.key.field", "have no fields"),
        ({"streams.flights.path": "data.dat"}, "systems.files.format", "does not show"),
    ],
)
def test_wrong_settings_are_reported_under_their_key(
    tmp_path: Path, settings: dict[str, str], key: str, what: str
) -> None:
    written(tmp_path / "flights.jsonl", b"1\n")
    written(tmp_path / "data.dat", b"1\n")
    if "streams.flights.path" in settings:
        settings = {"streams.flights.path": str(tmp_path / "data.dat")}
    with pytest.raises(ConfigError, match=what) as raised:
        Files(tmp_path, **settings).metadata()
    assert raised.value.key == key


def test_unknown_settings_of_the_system_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"systems\.files\.folow: .*did you mean systems\.files\.follow"):
        Systems(Files(tmp_path, folow="true").config).admin("files")


def test_a_compressed_file_cannot_be_followed(tmp_path: Path) -> None:
    written(tmp_path / "flights.jsonl.gz", b"1\n")
    with pytest.raises(ConfigError, match=r"systems\.files\.follow: .*compressed"):
        Files(tmp_path, follow="true").consumer()


# Growing files


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def poll(consumer: SystemConsumer) -> list[Any]:
    """All that is there now."""
    read: list[Any] = []
    while more := consumer.poll({SSP: 100}, 0):
        read += [envelope.message for envelope in more]
    return read


def test_a_followed_file_gives_whole_lines_as_they_come(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.jsonl", b"1\n2")
    files = Files(tmp_path, follow="true")
    consumer = files.consumer()
    assert poll(consumer) == [b"1"]
    assert poll(consumer) == []
    assert consumer.at_head(SSP)
    assert files.metadata()[0] == PartitionMetadata("1", "1", "2")
    append(path, b"2\n3\n")
    assert files.metadata()[0] == PartitionMetadata("1", "6", "7")
    assert poll(consumer) == [b"22", b"3"]
    assert consumer.at_head(SSP)


def test_at_the_head_means_the_head_as_of_the_last_poll(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.jsonl", b"1\n2\n")
    consumer = Files(tmp_path, follow="true").consumer()
    assert not consumer.at_head(SSP)
    consumer.poll({SSP: 1}, 0)
    append(path, b"3\n")
    consumer.poll({SSP: 1}, 0)
    assert not consumer.at_head(SSP)
    assert poll(consumer) == [b"3"]
    assert consumer.at_head(SSP)


@pytest.mark.parametrize("files", [["t.jsonl"], ["t.txt"], ["t/0.jsonl", "t/1.txt"], []], ids=str)
def test_the_check_knows_the_format_of_each_file_also_of_a_new_one(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, b"")
    systems, stream = Systems(Files(tmp_path).config), SystemStream("files", "t")
    check = systems.check(stream)
    if not files:
        systems.create(stream)
    send = systems.producer("files", MetricsRegistry()).sender(stream)
    for number in range(len(files) or 1):
        assert refused(check, stream, number) == refused(send, stream, number)


def refused(send: Sender, stream: SystemStream, partition: int) -> str:
    """The error for an empty message, or nothing."""
    try:
        send("task", OutgoingMessageEnvelope(stream, b""), None, b"", partition)
    except SerdeError as error:
        return str(error)
    return ""


def test_a_followed_csv_file_may_begin_empty_and_gives_whole_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.csv", b"")
    files = Files(tmp_path, follow="true")
    admin, consumer = files.admin(), files.consumer()
    assert poll(consumer) == []
    assert consumer.at_head(SSP)
    append(path, b"a,")
    assert poll(consumer) == []
    append(path, b'b\n1,"x\n')
    assert poll(consumer) == []
    assert consumer.at_head(SSP)
    assert admin.metadata([STREAM])[STREAM][0].newest is None
    append(path, b'y"\n2,z\n')
    assert [orjson.loads(message) for message in poll(consumer)] == [
        {"a": "1", "b": "x\ny"},
        {"a": "2", "b": "z"},
    ]
    assert admin.metadata([STREAM])[STREAM][0] == PartitionMetadata("11", "15", "16")


def test_a_file_that_is_not_followed_ends_where_it_ended_at_the_start(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.jsonl", b"1\n2")
    consumer = Files(tmp_path).consumer()
    append(path, b"2\n3\n")
    assert poll(consumer) == [b"1", b"2"]
    assert poll(consumer) == []
    assert consumer.at_head(SSP)


def test_a_line_read_before_it_was_complete_is_read_again_when_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.jsonl", b"1\n2")
    files = Files(tmp_path)
    following = files.admin().after(files.read()[-1].offset)
    assert files.read(following) == []
    append(path, b"2\n")
    assert files.messages(following) == [b"22"]


@pytest.mark.parametrize("follow", ["true", "false"])
def test_a_file_that_was_cut_is_an_error(tmp_path: Path, follow: str) -> None:
    path = written(tmp_path / "flights.jsonl", b"1\n" * 300_000)
    consumer = Files(tmp_path, follow=follow).consumer()
    consumer.poll({SSP: 10}, 0)
    os.truncate(path, 4)
    with pytest.raises(
        OffsetError, match=r"files\.flights\.0: .*flights\.jsonl was cut to 4 bytes.*samza\.reset\.offset"
    ):
        while True:
            assert consumer.poll({SSP: 100_000}, 0)


def test_a_followed_file_that_was_rotated_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.log", b"1\n")
    consumer = Files(tmp_path, follow="true").consumer()
    assert poll(consumer) == [b"1"]
    path.rename(tmp_path / "flights.log.1")
    with pytest.raises(OffsetError, match=r"flights\.log was removed"):
        poll(consumer)
    written(path, b"2\n")
    with pytest.raises(OffsetError, match=r"flights\.log was replaced by another file"):
        poll(consumer)


# Writing


def test_real_files_are_read_to_their_end(real_streams: Path) -> None:
    files = Files(real_streams)
    for stream in ("flights", "airports", "weather", "weblog"):
        here = files.metadata(SystemStream("files", stream))[0]
        read = files.read(ssp=SystemStreamPartition("files", stream, 0))
        assert (read[0].offset, read[-1].offset) == (here.oldest, here.newest)
        if stream != "weblog":
            assert all(isinstance(orjson.loads(envelope.message), dict) for envelope in read)


@pytest.mark.parametrize("pattern", ["data/*.jsonl", "data/flight?.jsonl", "da[t]a/flights.jsonl"])
def test_a_pattern_is_no_path_and_its_error_names_key_and_directory(
    tmp_path: Path, pattern: str
) -> None:
    written(tmp_path / "data" / "flights.jsonl", b"{}\n")
    given = str(tmp_path / pattern)
    for key, files in (
        ("path", Files(Path(given))),
        ("streams.flights.path", Files(tmp_path / "data", streams__flights__path=given)),
    ):
        with pytest.raises(
            ConfigError, match=rf"systems\.files\.{key}: .* is a pattern, .*: write the directory, {tmp_path}"
        ) as told:
            files.metadata()
        assert told.value.key == f"systems.files.{key}"


def test_a_path_with_the_signs_of_a_pattern_that_is_there_is_a_path(tmp_path: Path) -> None:
    written(tmp_path / "data [1]" / "flights.jsonl", b"{}\n")
    assert Files(tmp_path / "data [1]").messages() == [b"{}"]
    assert Files(tmp_path / "data [1]" / "other.jsonl").admin().create(SystemStream("files", "other"), 1)
