"""The partitioner: from a key to a partition, the same on every machine, in every process, and in Kafka's
Java client.

The hash is murmur2 with Kafka's seed. In plain Python it costs about a microsecond per key, so what it gave
is remembered.
"""

from __future__ import annotations

from typing import Any

from streambench.errors import SerdeError

_REMEMBERED = 100_000
_known: dict[bytes, int] = {}


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key among ``partitions``, as Kafka's default partitioner has it."""
    positive = _known.get(key)
    if positive is None:
        if len(_known) >= _REMEMBERED:
            # Of so many keys few come again soon; beginning again is cheaper than keeping an
            # order of use.
            _known.clear()
        positive = _known[key] = murmur2(key) & 0x7FFFFFFF
    return positive % partitions


def key_bytes(key: Any) -> bytes:
    """The bytes that a partition key is hashed by: bytes as they are, str as UTF-8, int as 8 bytes
    big-endian.

    Raises SerdeError for anything else (and for an int beyond 64 bits)."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, int) and not isinstance(key, bool):
        try:
            return key.to_bytes(8, "big", signed=True)
        except OverflowError:
            raise SerdeError(f"the partition key {key} does not fit into 64 bits; use a str") from None
    raise SerdeError(
        f"a partition key must be bytes, str or int, not {type(key).__name__}; give a partition_key that is"
    )


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of Kafka (org.apache.kafka.common.utils.Utils.murmur2), as an unsigned
    number."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        h = h * 0x5BD1E995 & 0xFFFFFFFF ^ k
    if length != whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return h ^ h >> 15
