"""Step 4: stream writers serialise the output of tasks and hand it to producers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from streambench.errors import MessageTooLargeError, SerdeError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.system.api import PartitionAppenders, Sender, no_limits
from streambench.system.partitioner import key_bytes, partition_for

if TYPE_CHECKING:
    from streambench.container.outputs.collected import Collected

_REMEMBERED_KEYS = 100_000
_LONGEST_KEY = 1_000
_LONGEST = 16_000
_LIMITS_AFTER = 1_000

Write = Callable[[str, Any], None]
"""Takes the name of the sending task and its message, encodes the message and hands it to a producer."""
OnUnserialisable = Callable[[str, OutgoingMessageEnvelope, Exception], None]
"""Called with a source, a message that cannot be encoded or is not what the system takes (too large, say),
and the error; raises or not."""


class FastAppend(NamedTuple):
    """The parts by which ``StreamWriters`` append plain messages.

    They are the appenders, the largest size, the partitions of known keys, and the next partition of messages
    without a key. ``only_one``: there is one partition only."""

    appends: PartitionAppenders
    longest: int
    known: dict[Any, int]
    keyless: Iterator[int]
    only_one: bool


class StreamWriter(NamedTuple):
    """The writer of one output stream: ``put`` takes any message; ``quick`` plain ones, None where there is
    no quicker way. ``apply_limits``: that of ``PartitionAppenders``."""

    put: Write
    quick: FastAppend | None = None
    apply_limits: Callable[[], object] = no_limits


def stream_writer(
    stream: SystemStream,
    send: Sender,
    appends: PartitionAppenders | None,
    partitions: int,
    key_serde: Serde | None,
    message_serde: Serde | None,
    unserialisable: OnUnserialisable,
    keyless: Iterator[int] | None = None,
) -> StreamWriter:
    """Make the writer of one output stream.

    It encodes messages, chooses the partition, and passes them to ``send``, or to ``appends``
    (``SystemProducer.appends``) where there are any. ``keyless``: the partitions of messages without a key,
    where an earlier writer of the stream has begun with them.

    A closure, not an object: this runs with every message that is sent.
    """
    key_to_bytes = None if key_serde is None else key_serde.to_bytes
    message_to_bytes = None if message_serde is None else message_serde.to_bytes
    known: dict[Any, int] = {}
    keyless = rotation(partitions) if keyless is None else keyless
    only_one = partitions == 1
    extend_of, largest, apply_limits = appends or _NO_APPENDS
    longest = min(_LONGEST, largest - _LONGEST_KEY)

    # Any, not OutgoingMessageEnvelope: what users have put into one may be of any type, which a compiled
    # module would not bear.
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
                        partition = next(keyless)
                    else:
                        try:
                            partition = known[hashed]
                        except (KeyError, TypeError):
                            partition = _partition(hashed, partitions, known)
            elif not isinstance(partition, int) or not 0 <= partition < partitions:
                raise SerdeError(
                    f"partition {partition!r} is out of range: {stream} has {partitions}, numbered from 0"
                )
        except Exception as error:
            unserialisable(source, envelope, error)
            return
        if (
            type(message) is bytes
            and len(message) <= longest
            and (key is None or (type(key) is bytes and len(key) <= _LONGEST_KEY))
            and envelope.timestamp is None
            and envelope.headers is None
        ):
            # Some encoders (orjson) return bytes from a buffer of 4 kB that lives as long as they do: keep a
            # copy of the right size.
            extend_of[partition]((key, b"%b" % message, None))
            return
        try:
            send(source, envelope, key, message, partition)
        except (SerdeError, MessageTooLargeError) as error:
            unserialisable(source, envelope, error)

    if appends is None or key_serde is not None or message_serde is not None:
        return StreamWriter(put, None, apply_limits)
    return StreamWriter(put, FastAppend(appends, longest, known, keyless, only_one), apply_limits)


def rotation(partitions: int) -> Iterator[int]:
    """The partitions of messages without a key, in turn."""
    return itertools.cycle(range(partitions))


class StreamWriters:
    """The writers of all streams that a container sends to. ``writer_of`` finds that for a message of a
    source, or raises.

    Its methods are closures, since they share what they know of the last message. ``failed_index`` is the
    place in the list at which ``send`` raised last. ``can_defer``: sends may be deferred by a few messages,
    since all streams so far only keep a message at first.
    """

    def __init__(self, writer_of: Callable[[str, Any], StreamWriter]) -> None:
        put: Write = _nowhere
        appends, longest, known, keyless, only_one = _NOT_QUICK
        extend_of = appends.partitions
        limits: list[Callable[[], object]] = []
        stream: Any = _nowhere
        sent = fresh = 0
        is_first = True
        self.can_defer = False
        self.failed_index = 0

        # One function, without a call for each part of the work, which would take longer than the work: most
        # jobs send plain messages to one stream. Messages are copied for the reason given in ``put``; an
        # input that is passed on has the right size.
        def send(collected: Collected) -> None:
            """Step 4. Hand messages to their producers, in order. The writer is looked up where the stream
            changes. Plain bytes go into the producer's list at once, everything else through ``put``. Every
            1,000 messages the producers append the batches that are full."""
            nonlocal put, extend_of, longest, known, keyless, only_one, stream, fresh, is_first
            left = iter(collected)
            try:
                for source, envelope, origin, message, key in left:
                    try:
                        to = envelope.system_stream
                    except AttributeError:
                        to = None
                    # By identity: to compare the names would take longer, and most tasks send to one object.
                    if to is not stream:
                        put, quick, limit = writer_of(source, envelope)
                        stream = to
                        appends, longest, known, keyless, only_one = quick or _NOT_QUICK
                        extend_of = appends.partitions
                        self.can_defer = quick is not None and (self.can_defer or is_first)
                        is_first = False
                        if limit not in limits:
                            limits.append(limit)
                    if (
                        message is None or len(message) > longest
                        or envelope.partition is not None or envelope.timestamp is not None
                    ):  # fmt: skip
                        put(source, envelope)
                        continue
                    if origin is None or message is not origin.message:
                        message = b"%b" % message
                    if key is None:
                        extend_of[next(keyless)]((None, message, None))
                        continue
                    if only_one:
                        if len(key) <= _LONGEST_KEY:
                            extend_of[0]((key, message, None))
                            continue
                    else:
                        # A key that is new is hashed in ``put``.
                        try:
                            partition = known[key]
                        except KeyError:
                            pass
                        else:
                            extend_of[partition]((key, message, None))
                            continue
                    put(source, envelope)
            except BaseException:
                self.failed_index = len(collected) - operator.length_hint(left) - 1
                raise
            fresh += len(collected)
            if fresh >= _LIMITS_AFTER:
                apply_all_limits()

        def apply_all_limits() -> None:
            """Have the producers append what has reached its limit in size or time."""
            nonlocal sent, fresh
            sent, fresh = sent + fresh, 0
            for limit in limits:
                limit()

        def apply_limits(only_fresh: bool = False) -> int:
            """Apply the limits of all producers; the number of messages since the last call. ``only_fresh``:
            not where no message came since."""
            nonlocal sent
            if fresh or not only_fresh:
                apply_all_limits()
            count, sent = sent, 0
            return count

        def close_for_writes(error: Exception) -> None:
            """Have ``send`` raise ``error`` from now on. Any thread may call it."""
            nonlocal writer_of, stream

            def refusing(source: str, envelope: Any) -> StreamWriter:
                raise error

            writer_of, stream = refusing, _nowhere

        def pending() -> int:
            """The number of messages since the last ``apply_limits``."""
            return sent + fresh

        def forget() -> None:
            """Look up the writers again."""
            nonlocal stream, is_first
            apply_all_limits()
            stream, is_first, self.can_defer = _nowhere, True, False

        self.send = send
        self.forget = forget
        self.pending = pending
        self.apply_limits = apply_limits
        self.close_for_writes = close_for_writes


def _partition(key: Any, partitions: int, known: dict[Any, int]) -> int:
    partition = partition_for(hashed_bytes(key), partitions)
    # Only keys whose equality is that of their bytes: 1 == 1.0 == True, but they are not hashed alike.
    if type(key) in (bytes, str) and len(key) <= _LONGEST_KEY:
        if len(known) >= _REMEMBERED_KEYS:
            known.clear()
        known[key] = partition
    return partition


def hashed_bytes(key: Any) -> bytes:
    """The bytes that the partitioner hashes. Only streams in memory may have keys that are neither bytes, str
    nor int: they count as their JSON."""
    if isinstance(key, (bytes, str, int)) and not isinstance(key, bool):
        return key_bytes(key)
    try:
        return orjson.dumps(key, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise SerdeError(
            f"a key of type {type(key).__name__} has no partition: give bytes, str or int, or set partition"
        ) from error


def _nowhere(source: str, envelope: Any) -> None:
    raise AssertionError(f"there is no writer for {envelope} of {source}")


_NO_APPENDS = PartitionAppenders((), -1, no_limits)
_NOT_QUICK = FastAppend(_NO_APPENDS, -1, {}, iter(()), False)
