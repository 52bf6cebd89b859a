"""Batches of rows as messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streambench.config import Config
from streambench.errors import SerdeError
from streambench.serde.arrow import ArrowSerde
from streambench.serde.registry import serde_named

ROWS = {"a": [1, None, 3], "s": ["x", "", None], "l": [[1.5], [], None]}
BATCH = pa.RecordBatch.from_pydict(ROWS).replace_schema_metadata({"k": "v"})
TABLE = pa.table(ROWS)
VALUES = [
    BATCH,
    BATCH.slice(1, 1),
    BATCH.slice(0, 0),
    TABLE,
    pa.concat_tables([TABLE, TABLE]),
    TABLE.slice(0, 0),
    TABLE.schema.empty_table(),
]


@pytest.mark.parametrize("value", VALUES)
def test_batches_come_back_as_batches_and_tables_as_tables(value: Any) -> None:
    serde = serde_named(Config(), "arrow", key="systems.log.samza.msg.serde")
    back = serde.from_bytes(serde.to_bytes(value))
    assert type(back) is type(value)
    assert back.equals(value, check_metadata=True)


def test_dictionaries_survive() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b", "a"]).dictionary_encode()], ["d"])
    assert ArrowSerde().from_bytes(ArrowSerde().to_bytes(batch)).equals(batch)


@pytest.mark.parametrize("value", [ROWS, [1], b"bytes", pa.array([1])])
def test_other_things_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="takes a pyarrow RecordBatch or Table"):
        ArrowSerde().to_bytes(value)


@pytest.mark.parametrize("cut", [0, 1, 8, 100, -1, -9])
def test_what_is_cut_off_is_refused(cut: int) -> None:
    data = ArrowSerde().to_bytes(pa.table({"a": list(range(100))}))
    with pytest.raises((OSError, pa.ArrowInvalid, SerdeError)):
        ArrowSerde().from_bytes(data[:cut])


def test_bytes_behind_the_stream_are_refused() -> None:
    with pytest.raises(SerdeError, match="3 bytes are left over"):
        ArrowSerde().from_bytes(ArrowSerde().to_bytes(BATCH) + b"abc")
