"""Options of the format: what they mean, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StringType, StructField, StructType

from streambench import Config, ConfigError, SystemStream
from streambench.spark.source.data_source import StreamDataSource
from streambench.spark.source.options import as_options, parse

KEYS = {"systems.log.samza.factory": "log", "systems.log.path": "streams"}


def test_a_stream_is_named_by_option_or_by_load() -> None:
    for name in ("stream", "STREAM", "path"):
        assert parse({**KEYS, name: "log.in"}).stream == SystemStream("log", "in")


def test_the_configuration_is_a_file_or_keys_or_both(tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    file.write_text("systems.log.samza.factory=log\nsystems.log.path=streams\n")
    both = parse({"config": str(file), "systems.log.linger.ms": "5"}).config
    assert both.path("systems.log.path") == tmp_path / "streams"
    assert both["systems.log.linger.ms"] == "5"
    assert parse(KEYS).config["systems.log.path"] == "streams"


def test_a_configuration_survives_as_options_with_its_references() -> None:
    config = Config.from_text("a.key=\\u00e9 = # \\\\ x\nb.password=${env:SECRET}\n", directory=Path("/some"))
    again = parse(as_options(config)).config
    assert (dict(again), again.directory) == (dict(config), Path("/some"))
    assert "SECRET" in as_options(config)["properties"]


def test_bounds_are_for_all_partitions_or_for_each() -> None:
    assert parse({**KEYS, "start": "oldest"}).start == {None: "oldest"}
    each = parse({**KEYS, "end": '{"0": 15, "3": "timestamp:2026-03-01"}'})
    assert each.end == {0: "15", 3: "timestamp:2026-03-01"}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"stram": "log.in"}, "stram is no option of streambench; did you mean stream?"),
        ({"stream": "in"}, "option stream: "),
        ({"start": "{0: 1}"}, "option start: .* is no JSON object of partitions"),
        ({"start": '{"a": "1"}'}, "option start: "),
        ({"columns": "ofset"}, "option columns: there is no column 'ofset'; did you mean offset?"),
        ({"maxMessagesPerTrigger": "0"}, "option maxMessagesPerTrigger: '0' is no whole number from 1 on"),
        ({"partitions": "0,x"}, "option partitions: '0,x' is no list of partitions"),
        ({"pushdown": "yes"}, "option pushdown: 'yes' is neither true nor false"),
        ({"config": "a", "properties": "b"}, "option properties: config is given as well"),
        ({"config": "/not/there.properties"}, "cannot read the configuration /not/there.properties"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        parse({**KEYS, **options})


@pytest.mark.parametrize(
    ("use", "options"),
    [
        ("read", {"maxMessagesPerTrigger": "5"}),
        ("read", {"writeId": "load"}),
        ("read of a store", {"store": "counts", "start": "oldest"}),
        ("readStream", {"end": "3"}),
        ("readStream", {"pushdown": "true"}),
        ("write", {"start": "oldest"}),
        ("writeStream", {"writeId": "load"}),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(use: str, options: dict[str, str]) -> None:
    source = StreamDataSource({**KEYS, **options, **({} if "store" in options else {"stream": "log.in"})})
    begin = {
        "read": source.reader,
        "read of a store": source.reader,
        "readStream": source.streamReader,
        "write": lambda schema: source.writer(schema, False),
        "writeStream": lambda schema: source.streamWriter(schema, False),
    }[use]
    given = [*options][-1]
    with pytest.raises(ConfigError, match=f"option {given}: a {use} does nothing with it, and takes"):
        begin(StructType([StructField("message", StringType())]))


def test_a_missing_configuration_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="option config: name the properties file"):
        parse({"stream": "log.in"})
