"""Stores as DataFrames, read in this process: the state as of the last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench import Config, ConfigError

pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from streambench.spark.source.data_source import StreamDataSource
from streambench.spark.source.options import as_options
from streambench.testing.clock import ManualClock
from tests.container.stateful import Job

STORES = {"stores.s.factory": "memory", "stores.s.key.serde": "string"}


def entries(config: Config, schema: StructType | None = None, store: str = "s") -> list[dict[str, Any]]:
    source = StreamDataSource({**as_options(config), "store": store})
    reader = source.reader(schema or source.schema())
    return [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]


def test_a_store_is_what_its_task_had_at_the_last_commit(tmp_path: Path) -> None:
    job = Job(tmp_path, STORES)
    assert entries(job.config) == []
    job.run(("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("c", ""))
    wanted = [
        {"task": "Partition 0", "key": "a", "value": "3"},
        {"task": "Partition 0", "key": "b", "value": "2"},
    ]
    assert sorted(entries(job.config), key=lambda row: row["key"]) == wanted
    # What was not committed is no part of it, though it may be in the changelog.
    job.run(("a", "5"), ("d", "6"), crash=True)
    assert sorted(entries(job.config), key=lambda row: row["key"]) == wanted


def test_a_store_goes_back_with_a_rewind(tmp_path: Path) -> None:
    job = Job(tmp_path, STORES)
    job.run(("a", "1"))
    job.run(("a", "2"))
    job.rewind(1)
    assert [row["value"] for row in entries(job.config)] == ["1"]


def test_a_compacted_changelog_gives_the_same_store(tmp_path: Path) -> None:
    job = Job(tmp_path, STORES)
    for value in range(5):
        state = job.run(*((f"k{n}", f"{value}-{n}") for n in range(40)), ("k7", ""))
    job.compact()
    assert {row["key"]: row["value"] for row in entries(job.config)} == state


def test_an_entry_that_has_expired_is_left_out(tmp_path: Path) -> None:
    job = Job(tmp_path, {**STORES, "stores.s.ttl.ms": "60000"}, ManualClock(0))
    job.run(("a", "1"))
    assert entries(job.config) == []
    job.clock = None
    job.run(("b", "1"))
    assert [row["key"] for row in entries(job.config)] == ["b"]


def test_values_are_decoded_to_a_schema(tmp_path: Path) -> None:
    job = Job(tmp_path, STORES)
    job.run(("a", '{"n": 1, "m": 2}'), ("b", "{}"))
    config = job.config.with_values({"stores.s.msg.serde": "json"})
    schema = StructType([StructField("n", IntegerType()), StructField("key", StringType())])
    assert entries(config, schema) == [{"n": 1, "key": "a"}, {"n": None, "key": "b"}]


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    config = Job(tmp_path, {**STORES, "stores.s.changelog": "none"}).config
    with pytest.raises(ConfigError, match="there is no store 'state'; there are s"):
        entries(config, store="state")
    with pytest.raises(ConfigError, match=r"'s' has no changelog.*stores.s.changelog"):
        entries(config)
