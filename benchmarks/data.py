"""The messages that everything is measured with: JSON of about 60 bytes, 10,000 users, 12 partitions by
user."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import cache

import orjson

PARTITIONS = 12


@dataclass(frozen=True)
class Messages:
    """``all`` in the order made; ``partitions``: the same, dealt out by user."""

    all: list[bytes]
    partitions: list[list[bytes]]


@cache
def messages(count: int) -> Messages:
    """``count`` messages: {"user": one of 10,000, "n": 0 to 9, "pad": some text}; the same ones each time."""
    chance = random.Random(7)
    made: list[bytes] = []
    partitions: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for _ in range(count):
        user = f"user{chance.randrange(10_000)}"
        message = orjson.dumps(
            {"user": user, "n": chance.randrange(10), "pad": "x" * chance.randrange(20, 30)}
        )
        message = b"%b" % message
        made.append(message)
        partitions[zlib.crc32(user.encode()) % PARTITIONS].append(message)
    return Messages(made, partitions)
