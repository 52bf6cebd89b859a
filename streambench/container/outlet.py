"""The outlet of one output stream: from what a task sent to what a producer takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from streambench.errors import SerdeError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.system.api import Append, Sender
from streambench.system.partitioner import key_bytes, partition_for

_REMEMBERED_KEYS = 100_000

Put = Callable[[str, OutgoingMessageEnvelope], None]
"""Takes a message from a source."""


def outlet(
    stream: SystemStream, send: Sender, appends: Sequence[Append] | None, partitions: int, key_serde: Serde | None,
    message_serde: Serde | None, unserialisable: Callable[[str, OutgoingMessageEnvelope, Exception], None],
) -> Put:  # fmt: skip
    """What takes the messages for one output stream: encodes them, chooses the partition, and hands them on to ``send``, or to
    ``appends`` (``SystemProducer.appends``) where there are any.

    A closure, not an object: this runs with every message that is sent. ``unserialisable`` is told of what cannot be encoded, or is not
    what the system takes, and raises or not.
    """
    key_to_bytes = None if key_serde is None else key_serde.to_bytes
    message_to_bytes = None if message_serde is None else message_serde.to_bytes
    known: dict[Any, int] = {}
    turns = itertools.cycle(range(partitions))
    only_one = partitions == 1

    # Any, not OutgoingMessageEnvelope: what users have put into one may be of any type, which a compiled module would not bear.
    def put(source: str, envelope: Any) -> None:
        key, message, partition = envelope.key, envelope.message, envelope.partition
        try:
            if key_to_bytes is not None and key is not None:
                key = key_to_bytes(key)
            if message_to_bytes is not None and message is not None:
                message = message_to_bytes(message)
            if partition is None:
                if only_one:
                    partition = 0
                else:
                    hashed = key if envelope.partition_key is None else envelope.partition_key
                    if hashed is None:
                        partition = next(turns)
                    else:
                        try:
                            partition = known[hashed]
                        except (KeyError, TypeError):
                            partition = _partition(hashed, partitions, known)
            elif not isinstance(partition, int) or not 0 <= partition < partitions:
                raise SerdeError(f"partition {partition!r} is out of range: {stream} has {partitions}, numbered from 0")
        except Exception as error:
            unserialisable(source, envelope, error)
            return
        try:
            if appends is not None and envelope.timestamp is None and envelope.headers is None:
                # Some encoders (orjson) return bytes from a buffer of 4 kB that lives as long as they do: keep a copy of the right size.
                appends[partition]((key, b"%b" % message if type(message) is bytes else message, None))
            else:
                send(source, envelope, key, message, partition)
        except SerdeError as error:
            unserialisable(source, envelope, error)

    return put


def _partition(key: Any, partitions: int, known: dict[Any, int]) -> int:
    partition = partition_for(hashed_bytes(key), partitions)
    # Only keys whose equality is that of their bytes: 1 == 1.0 == True, but they are not hashed alike.
    if type(key) in (bytes, str):
        if len(known) >= _REMEMBERED_KEYS:
            known.clear()
        known[key] = partition
    return partition


def hashed_bytes(key: Any) -> bytes:
    """What the partitioner hashes. Only streams in memory may have keys that are neither bytes, str nor int: they count as their JSON."""
    if isinstance(key, (bytes, str, int)) and not isinstance(key, bool):
        return key_bytes(key)
    try:
        return orjson.dumps(key, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise SerdeError(f"a key of type {type(key).__name__} has no partition: give bytes, str or int, or set partition") from error
