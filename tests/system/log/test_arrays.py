"""Arrow arrays of Python values, with pandas imported and without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from streambench.system.log.arrays import FEW, binary_column, int64_column, longest_message

BYTES = [[], [b"a", None, b""], [b"x"] * (FEW + 1), [None, b"abc"] * FEW]
NUMBERS = [[], [1, None, -(2**63)], [None] * 3, [2**63 - 1, 5], [None, 7] * FEW]


WITHOUT_PANDAS = """
import sys
import pyarrow as pa
from streambench.system.log import open_log
from streambench.system.log.arrays import *

HEADERS = pa.map_(pa.string(), pa.binary())
binary_column([b"x"] * 1000)
int64_column([None, 1] * 1000)
assert longest_message(binaries([b"a", None]), binaries([b"bc", b"d"]), pa.nulls(2, HEADERS)) == 3
with open_log(sys.argv[1]) as log:
    log.create("s", 1)
    log.partition("s", 0).append([b"k", None], [b"v", None], timestamps=[1, None])
sys.exit("pandas" in sys.modules)
"""


@pytest.fixture(params=["with pandas", "without"])
def pandas_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without":
        monkeypatch.delitem(sys.modules, "pandas", raising=False)
    else:
        pytest.importorskip("pandas")


@pytest.mark.usefixtures("pandas_or_not")
def test_columns_are_what_pyarrow_makes() -> None:
    for values in BYTES:
        assert binary_column(values).equals(pa.array(values, pa.binary()))
    for numbers in NUMBERS:
        assert int64_column(numbers).equals(pa.array(numbers, pa.int64()))


@pytest.mark.usefixtures("pandas_or_not")
@pytest.mark.parametrize("wrong", [["1"], [2**63]])
def test_what_is_no_number_is_refused_as_by_pyarrow(wrong: list[int | None]) -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)):
        int64_column(wrong)


def test_values_are_converted_and_appended_without_pandas(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path)], check=True)


def test_the_longest_message_is_counted_with_its_headers() -> None:
    keys, values = pa.array([b"k", None, None, b"key"], pa.binary()), pa.array([b"1", b"12", b"1", b""])
    headers = pa.array(
        [[("a", b"123")], None, [("ä", b"1234"), ("b", None)], []], pa.map_(pa.string(), pa.binary())
    )
    for start, longest in enumerate([8, 8, 8, 3]):
        assert longest_message(*(each[start:] for each in (keys, values, headers))) == longest
    assert longest_message(keys[:2], values[:2], headers[:2]) == 6
    assert longest_message(keys[:0], values[:0], headers[:0]) == 0
