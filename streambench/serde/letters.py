"""Dead letters: messages that failed, as they were, with headers that give the reason and the source."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import orjson

from streambench.errors import SerdeError, class_name, described
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope
from streambench.serde.plain import plain
from streambench.user_code import is_ours

LETTER = "dead-letter."
"""The begin of the headers that make a message a dead letter."""
REASON = f"{LETTER}reason"
"""The header of a dead letter that says why it is one."""
_TRACEBACK = f"{LETTER}traceback"
_SIZE = f"{LETTER}size"
_MOST_OF_A_REASON = 1_000
_MOST_OF_A_TRACEBACK = 4_000
_CUTS = ((64 << 10, 1_000), (4 << 10, 400), (0, 100))


def letter_headers(
    error: Exception,
    headers: Mapping[Any, Any] | None,
    source: IncomingMessageEnvelope | None,
    facts: Mapping[str, str],
) -> dict[str, bytes]:
    """The headers of a dead letter: those that the message had, and why it is one. ``source``: what was read;
    ``facts``: more to say."""
    cause = error.__cause__ if isinstance(error, SerdeError) and error.__cause__ is not None else error
    known = {**facts, "reason": described(cause)[:_MOST_OF_A_REASON], "exception": class_name(type(cause))}
    if source is not None:
        known |= {"source": str(source.ssp), "offset": source.offset}
        if source.timestamp is not None:
            known["timestamp"] = str(source.timestamp)
    own = headers.items() if isinstance(headers, Mapping) else ()
    kept = {str(name): as_bytes(value) or b"" for name, value in own}
    return kept | {LETTER + name: value.encode(errors="backslashreplace") for name, value in known.items()}


def user_traceback(error: BaseException) -> str:
    """The traceback of an exception as text, without frames of streambench; of a very long one its end."""
    whole = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = whole
    while each is not None:
        each.stack = traceback.StackSummary.from_list(
            [frame for frame in each.stack if not is_ours(frame.filename)]
        )
        each = each.__cause__ or each.__context__
    return "".join(whole.format()).rstrip()[-_MOST_OF_A_TRACEBACK:]


def shorter(letter: OutgoingMessageEnvelope) -> OutgoingMessageEnvelope | None:
    """A dead letter that is too large for its stream, cut.

    It has less of the message, its key and the reason, and no headers of the message. ``dead-letter.size``
    has the number of bytes of message and key. None where nothing is left to cut.

    It goes to the same partition: by the whole key, where none is given."""
    message, key = letter.message or b"", letter.key or b""
    size = b"%d" % (len(message) + len(key))
    ours: dict[str, bytes] = {
        name: value for name, value in (letter.headers or {}).items() if name.startswith(LETTER)
    }
    ours.setdefault(_SIZE, size)
    for most, of_reason in _CUTS:
        headers = {**ours, REASON: ours.get(REASON, b"")[:of_reason]}
        if _TRACEBACK in ours:
            headers[_TRACEBACK] = ours[_TRACEBACK][-of_reason:]
        if (
            len(message) > most
            or len(key) > most // 64
            or headers != {**(letter.headers or {}), _SIZE: ours[_SIZE]}
        ):
            return OutgoingMessageEnvelope(
                letter.system_stream,
                letter.message and message[:most],
                letter.key and key[: most // 64],
                letter.key if letter.partition_key is None else letter.partition_key,
                letter.partition,
                headers=headers,
            )
    return None


def as_bytes(value: Any) -> bytes | None:
    """Bytes as they are; of any other object its closest form: text as UTF-8, JSON of dicts and lists,
    else the repr."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    shown = plain(value)
    return shown.encode() if isinstance(shown, str) else orjson.dumps(shown)
