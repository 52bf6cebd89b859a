"""Arrays of few values are what pyarrow would make of them, and pandas is not imported for them."""

import subprocess
import sys

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streambench.system.log.arrays import binaries, int64s


@given(st.lists(st.none() | st.binary(max_size=20), max_size=300))
def test_binaries_are_what_pyarrow_makes_of_the_same_values(values):
    made = binaries(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_int64s_are_what_pyarrow_makes_of_the_same_values(values):
    made = int64s(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.int64()))


def test_a_few_messages_are_written_and_read_without_importing_pandas(tmp_path):
    script = (
        "import sys\nfrom streambench.system.log import open_log\n"
        f"log = open_log({str(tmp_path)!r})\nlog.create('a')\npartition = log.partition('a', 0)\n"
        "partition.append([b'k', None], [b'v', None])\npartition.flush()\n"
        "assert sum(batch.num_rows for batch in partition.read(0, 10)) == 2\nassert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
