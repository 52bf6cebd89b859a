"""Step 4: stream writers serialise the output of tasks and hand it to producers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from streambench.errors import MessageTooLargeError, SerdeError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.rows import check_headers, check_timestamp
from streambench.serde.api import Serde
from streambench.system.api import Append, PartitionAppenders, Sender, no_limits
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

    extend_of: Sequence[Append]
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


class StreamWriters:
    """The writers of all streams that a container sends to. ``writer_of`` finds that for a message of a
    source, or raises.

    ``failed_index`` is the place in the list at which ``send`` raised last. ``can_defer``: sends may be
    deferred by a few messages, since all streams so far only keep a message at first.
    """

    __slots__ = (
        "_fresh", "_is_first", "_limits", "_quick", "_put", "_sent", "_stream", "_writer_of", "can_defer",
        "failed_index",
    )  # fmt: skip

    def __init__(self, writer_of: Callable[[str, Any], StreamWriter]) -> None:
        self._writer_of = writer_of
        self._stream: Any = _nowhere
        self._put: Write = _nowhere
        self._quick: tuple[Sequence[Append], int, dict[Any, int], Iterator[int], bool] = _NOT_QUICK
        self._limits: list[Callable[[], object]] = []
        self._sent = self._fresh = 0
        self._is_first = True
        self.can_defer = False
        self.failed_index = 0

    # One function, without a call for each part of the work, which would take longer than the work: most jobs
    # send plain messages to one stream. A message is copied, since some encoders (orjson) return bytes from a
    # buffer of 4 kB that lives as long as they do; an input that is passed on has the right size.
    def send(self, collected: Collected) -> None:
        """Step 4. Hand messages to their producers, in order. The writer is looked up where the stream
        changes. Plain bytes go into the producer's list at once, everything else through ``put``. Every
        1,000 messages the producers append the batches that are full."""
        extend_of, longest, known, keyless, only_one = self._quick
        left = iter(collected)
        try:
            for source, envelope, origin, message, key in left:
                try:
                    stream = envelope.system_stream
                except AttributeError:
                    stream = None
                # By identity: to compare the names would take longer, and most tasks send to one object.
                if stream is not self._stream:
                    self._change_to(stream, source, envelope)
                    extend_of, longest, known, keyless, only_one = self._quick
                if (
                    message is None or len(message) > longest
                    or envelope.partition is not None or envelope.timestamp is not None
                ):  # fmt: skip
                    self._put(source, envelope)
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
                self._put(source, envelope)
        except BaseException:
            self.failed_index = len(collected) - operator.length_hint(left) - 1
            raise
        self._fresh = fresh = self._fresh + len(collected)
        if fresh >= _LIMITS_AFTER:
            self._apply_all_limits()

    def _change_to(self, stream: Any, source: str, envelope: Any) -> None:
        """Look up the writer of another stream than that of the message before."""
        self._put, quick, limit = self._writer_of(source, envelope)
        self._stream, self._quick = stream, (*(quick or _NOT_QUICK),)
        self.can_defer = quick is not None and (self.can_defer or self._is_first)
        self._is_first = False
        if limit not in self._limits:
            self._limits.append(limit)

    def apply_limits(self, only_fresh: bool = False) -> int:
        """Apply the limits of all producers; the number of messages since the last call. ``only_fresh``: not
        where no message came since."""
        if self._fresh or not only_fresh:
            self._apply_all_limits()
        count, self._sent = self._sent, 0
        return count

    def _apply_all_limits(self) -> None:
        """Have the producers append what has reached its limit in size or time."""
        self._sent, self._fresh = self._sent + self._fresh, 0
        for limit in self._limits:
            limit()

    def pending(self) -> int:
        """The number of messages since the last ``apply_limits``."""
        return self._sent + self._fresh

    def forget(self) -> None:
        """Look up the writers again."""
        self._apply_all_limits()
        self._stream, self._is_first, self.can_defer = _nowhere, True, False

    def close_for_writes(self, error: Exception) -> None:
        """Have ``send`` raise ``error`` from now on. Any thread may call it."""

        def refusing(source: str, envelope: Any) -> StreamWriter:
            raise error

        self._writer_of, self._stream = refusing, _nowhere


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

    Messages go to ``send``, or to ``appends`` (``SystemProducer.appends``) where there are any. ``keyless``:
    the partitions of messages without a key, where an earlier writer of the stream has begun with them."""
    keyless = rotation(partitions) if keyless is None else keyless
    encoder = Encoder(
        stream, send, appends or _NO_APPENDS, partitions, key_serde, message_serde, keyless, unserialisable
    )
    apply_limits = no_limits if appends is None else appends.apply_limits
    if appends is None or key_serde is not None or message_serde is not None:
        return StreamWriter(encoder.put, None, apply_limits)
    quick = FastAppend(appends.partitions, encoder.longest, encoder.known, keyless, partitions == 1)
    return StreamWriter(encoder.put, quick, apply_limits)


class Encoder:
    """Encodes the messages to one stream, chooses their partitions, and hands them to the producer."""

    __slots__ = (
        "_extend_of", "_key_to_bytes", "_keyless", "_message_to_bytes", "_only_one", "_partitions", "_send",
        "_stream", "_unserialisable", "known", "longest",
    )  # fmt: skip

    def __init__(
        self,
        stream: SystemStream,
        send: Sender,
        appends: PartitionAppenders,
        partitions: int,
        key_serde: Serde | None,
        message_serde: Serde | None,
        keyless: Iterator[int],
        unserialisable: OnUnserialisable,
    ) -> None:
        self._stream = stream
        self._send = send
        self._extend_of = appends.partitions
        self._partitions = partitions
        self._only_one = partitions == 1
        self._key_to_bytes = None if key_serde is None else key_serde.to_bytes
        self._message_to_bytes = None if message_serde is None else message_serde.to_bytes
        self._keyless = keyless
        self._unserialisable = unserialisable
        self.known: dict[Any, int] = {}
        self.longest = min(_LONGEST, appends.largest - _LONGEST_KEY)

    # Any, not OutgoingMessageEnvelope: what users have put into one may be of any type.
    def put(self, source: str, envelope: Any) -> None:
        """Encode a message and choose its partition, then hand it to the producer."""
        key, message, partition = envelope.key, envelope.message, envelope.partition
        key_to_bytes, message_to_bytes = self._key_to_bytes, self._message_to_bytes
        try:
            if key_to_bytes is not None and key is not None:
                key = key_to_bytes(key)
            if message_to_bytes is not None and message is not None:
                message = message_to_bytes(message)
            if partition is not None:
                self._check(partition)
            elif self._only_one:
                partition = 0
            else:
                hashed = key if envelope.partition_key is None else envelope.partition_key
                if hashed is None:
                    partition = next(self._keyless)
                else:
                    try:
                        partition = self.known[hashed]
                    except (KeyError, TypeError):
                        partition = _partition(hashed, self._partitions, self.known)
        except Exception as error:
            self._unserialisable(source, envelope, error)
            return
        timestamp, headers = envelope.timestamp, envelope.headers
        if (
            type(message) is bytes
            and len(message) <= self.longest
            and (key is None or (type(key) is bytes and len(key) <= _LONGEST_KEY))
            and timestamp is None
            and headers is None
        ):
            # A copy, as in ``send``.
            self._extend_of[partition]((key, b"%b" % message, None))
            return
        try:
            # Here, and not only in a producer: what is refused is the same in all systems, and in a replay.
            if timestamp is not None or headers is not None:
                check_timestamp(self._stream, timestamp)
                check_headers(self._stream, headers)
            self._send(source, envelope, key, message, partition)
        except (SerdeError, MessageTooLargeError) as error:
            self._unserialisable(source, envelope, error)

    def _check(self, partition: Any) -> None:
        """Raise SerdeError for a partition that the stream has not."""
        if not isinstance(partition, int) or not 0 <= partition < self._partitions:
            raise SerdeError(
                f"partition {partition!r} is out of range: {self._stream} has {self._partitions}, numbered "
                "from 0"
            )


def rotation(partitions: int) -> Iterator[int]:
    """The partitions of messages without a key, in turn."""
    return itertools.cycle(range(partitions))


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
_NOT_QUICK = FastAppend((), -1, {}, iter(()), False)
