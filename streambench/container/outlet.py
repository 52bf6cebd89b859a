"""The outlets of a container: from what tasks sent to what producers take."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from streambench.errors import MessageTooLargeError, SerdeError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.system.api import Appends, Sender, nothing_to_settle
from streambench.system.partitioner import key_bytes, partition_for

if TYPE_CHECKING:
    from streambench.container.handles import Outgoing

_REMEMBERED_KEYS = 100_000
_LONGEST_KEY = 1_000
_LONGEST = 16_000
_SETTLED_AFTER = 1_000

Put = Callable[[str, Any], None]
"""Takes a message from a source."""
Unserialisable = Callable[[str, OutgoingMessageEnvelope, Exception], None]
"""Told of a source, a message that cannot be encoded or is not what the system takes (too large, say), and the error; raises or not."""


class Quick(NamedTuple):
    """What ``Outlets`` need to put plain messages by themselves: how they are appended, how long they may be, and where they go by their
    keys (as far as that is known), or in turn. ``only_one``: there is one partition only."""

    appends: Appends
    longest: int
    known: dict[Any, int]
    turns: Iterator[int]
    only_one: bool


class Outlet(NamedTuple):
    """What takes the messages for one output stream: ``put`` any of them; ``quick`` plain ones, None where there is no quicker way.
    ``settle``: see ``Appends``."""

    put: Put
    quick: Quick | None = None
    settle: Callable[[], object] = nothing_to_settle


def outlet(
    stream: SystemStream, send: Sender, appends: Appends | None, partitions: int, key_serde: Serde | None, message_serde: Serde | None,
    unserialisable: Unserialisable,
) -> Outlet:  # fmt: skip
    """What takes the messages for one output stream: encodes them, chooses the partition, and hands them on to ``send``, or to
    ``appends`` (``SystemProducer.appends``) where there are any.

    A closure, not an object: this runs with every message that is sent.
    """
    key_to_bytes = None if key_serde is None else key_serde.to_bytes
    message_to_bytes = None if message_serde is None else message_serde.to_bytes
    known: dict[Any, int] = {}
    turns = itertools.cycle(range(partitions))
    only_one = partitions == 1
    extends, largest, settle = appends or _NO_APPENDS
    longest = min(_LONGEST, largest - _LONGEST_KEY)

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
        if (
            type(message) is bytes and len(message) <= longest and (key is None or (type(key) is bytes and len(key) <= _LONGEST_KEY))
            and envelope.timestamp is None and envelope.headers is None
        ):  # fmt: skip
            # Some encoders (orjson) return bytes from a buffer of 4 kB that lives as long as they do: keep a copy of the right size.
            extends[partition]((key, b"%b" % message, None))
            return
        try:
            send(source, envelope, key, message, partition)
        except (SerdeError, MessageTooLargeError) as error:
            unserialisable(source, envelope, error)

    if appends is None or key_serde is not None or message_serde is not None:
        return Outlet(put, None, settle)
    return Outlet(put, Quick(appends, longest, known, turns, only_one), settle)


class Outlets:
    """The outlets of all streams that a container sends to. ``outlet_of`` finds that for a message of a source, or raises.

    ``send`` takes messages in order; ``failed_at`` is its place in the list when it raised last. ``may_wait``: whether all streams seen so
    far are such that messages are only kept at first, so that it is all the same when they are sent. ``settle`` sees to what is left to be
    seen to from time to time (``Appends.settle``; not ``anyway``: if there were messages since), and returns how many messages there were
    since it was called last. After ``refuse(error)``, which may be called on another thread, ``send`` raises ``error``.
    """

    def __init__(self, outlet_of: Callable[[str, Any], Outlet]) -> None:
        put: Put = _nowhere
        appends, longest, known, turns, only_one = _NOT_QUICK
        extends = appends.partitions
        settles: list[Callable[[], object]] = []
        stream: Any = _nowhere
        sent = unsettled = 0
        self.may_wait = False
        self.failed_at = 0

        # One function for all of it, which has the outlet of the message before at hand: most jobs send plain messages to one stream most
        # of the time, and a call for each part of the work takes longer than the work. Messages are copied for the reason given in
        # ``put``; what came in as it is has the right size.
        def send(outgoing: Outgoing) -> None:
            nonlocal put, extends, longest, known, turns, only_one, stream, unsettled
            left = iter(outgoing)
            try:
                for source, envelope, origin, message, key in left:
                    try:
                        to = envelope.system_stream
                    except AttributeError:
                        to = None
                    if to is not stream:
                        put, quick, settle = outlet_of(source, envelope)
                        stream = to
                        appends, longest, known, turns, only_one = quick or _NOT_QUICK
                        extends = appends.partitions
                        self.may_wait = quick is not None and (self.may_wait or not settles)
                        if settle not in settles:
                            settles.append(settle)
                    if (
                        message is None or len(message) > longest
                        or envelope.partition is not None or envelope.timestamp is not None
                    ):  # fmt: skip
                        put(source, envelope)
                        continue
                    if origin is None or message is not origin.message:
                        message = b"%b" % message
                    if key is None:
                        extends[next(turns)]((None, message, None))
                        continue
                    if only_one:
                        if len(key) <= _LONGEST_KEY:
                            extends[0]((key, message, None))
                            continue
                    else:
                        try:
                            partition = known[key]
                        except KeyError:
                            pass
                        else:
                            extends[partition]((key, message, None))
                            continue
                    put(source, envelope)
            except BaseException:
                self.failed_at = len(outgoing) - operator.length_hint(left) - 1
                raise
            unsettled += len(outgoing)
            if unsettled >= _SETTLED_AFTER:
                settle_all()

        def settle_all() -> None:
            nonlocal sent, unsettled
            sent, unsettled = sent + unsettled, 0
            for settle in settles:
                settle()

        def settle_and_count(anyway: bool = True) -> int:
            nonlocal sent
            if anyway or unsettled:
                settle_all()
            count, sent = sent, 0
            return count

        def refuse(error: Exception) -> None:
            nonlocal outlet_of, stream

            def refusing(source: str, envelope: Any) -> Outlet:
                raise error

            outlet_of, stream = refusing, _nowhere

        self.send = send
        self.settle = settle_and_count
        self.refuse = refuse


def _partition(key: Any, partitions: int, known: dict[Any, int]) -> int:
    partition = partition_for(hashed_bytes(key), partitions)
    # Only keys whose equality is that of their bytes: 1 == 1.0 == True, but they are not hashed alike.
    if type(key) in (bytes, str) and len(key) <= _LONGEST_KEY:
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


def _nowhere(source: str, envelope: Any) -> None:
    raise AssertionError(f"there is no outlet for {envelope} of {source}")


_NO_APPENDS = Appends((), -1, nothing_to_settle)
_NOT_QUICK = Quick(_NO_APPENDS, -1, {}, iter(()), False)
