"""Keys go to the partitions that Kafka's Java client would choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import SerdeError
from streambench.system import partitioner
from streambench.system.partitioner import key_bytes, murmur2, partition_for


# From Kafka's own test of Utils.murmur2 (UtilsTest.java), as signed numbers.
@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_java_client(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed % (1 << 32)


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_the_partition_is_the_positive_hash_modulo_the_partitions(key: bytes, partitions: int) -> None:
    from kafka.partitioner.default import murmur2 as kafkas

    assert partition_for(key, partitions) == (kafkas(key) & 0x7FFFFFFF) % partitions


def test_what_is_remembered_of_keys_is_bounded() -> None:
    for number in range(partitioner._REMEMBERED + 1):
        partition_for(b"%d" % number, 7)
    assert len(partitioner._known) <= partitioner._REMEMBERED


def test_a_forgotten_key_goes_where_it_went_before() -> None:
    before = partition_for(b"key", 12)
    partitioner._known.clear()
    assert partition_for(b"key", 12) == before


def test_bytes_str_and_int_are_keys() -> None:
    assert key_bytes(b"\x00k") == b"\x00k"
    assert key_bytes("kälte") == "kälte".encode()
    assert key_bytes(1) == b"\0\0\0\0\0\0\0\x01"
    assert key_bytes(-1) == b"\xff" * 8


@pytest.mark.parametrize("key", [1.5, None, True, ["a"], 1 << 63])
def test_anything_else_is_a_clear_error(key: object) -> None:
    with pytest.raises(SerdeError, match="partition key"):
        key_bytes(key)
