"""Framing: how messages stand in a stream of bytes, and how they are found in it again.

``lines``: each message, then a newline. ``length``: 4 bytes (big-endian) that say how many follow, then
those. ``envelope``: as ``length``, but what follows is a MessagePack map of ``message``, ``key``,
``timestamp`` and ``headers``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Struct

from streambench.chunk import Chunk, numbered
from streambench.errors import MessageTooLargeError, SerdeError, shortened
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition

LONGEST_FRAME = 0xFFFF_FFFF
_HEADER = 4
_ENVELOPE = 32  # what MessagePack adds to a key and a message, at most


# As every system has it: what no timestamp can be is refused to its sender.
_Milliseconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Envelope(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A message with what belongs to it, as it stands in a frame. Bytes are of MessagePack's type bin."""

    message: bytes | None
    key: bytes | None = None
    timestamp: _Milliseconds | None = None
    headers: dict[str, bytes] | None = None


class Splitter(ABC):
    """Finds the messages in what one connection sends.

    ``unfinished``: how many bytes it holds of a message whose end has not come. ``refusal``: why nothing that
    follows can be read, None as long as all is well; ``is_too_large`` distinguishes the two reasons.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self.refusal: str | None = None
        self.is_too_large = False
        self._most = max_message_bytes
        self._rest = bytearray()

    @property
    def unfinished(self) -> int:
        return len(self._rest)

    @abstractmethod
    def split(self, data: bytes) -> list[Any]:
        """The messages that end in ``data``, which follows what came before."""

    def forget(self) -> None:
        """Drop what is unfinished."""
        self._rest = bytearray()

    def _refuse_length(self, at_least: int) -> None:
        self.is_too_large = True
        self.refusal = (
            f"a message of {at_least} bytes or more is larger than the {self._most} that are allowed "
            "(max.message.bytes)"
        )
        self.forget()


class Lines(Splitter):
    def split(self, data: bytes) -> list[Any]:
        lines = data.split(b"\n")
        longest = len(data) + len(self._rest)
        last = lines.pop()
        if lines:
            if self._rest:
                lines[0] = bytes(self._rest) + lines[0]
            self._rest = bytearray(last)
        else:
            self._rest += last
        if longest > self._most:
            for at, line in enumerate(lines):
                if len(line) > self._most:
                    self._refuse_length(len(line))
                    return lines[:at]
            if len(self._rest) > self._most:
                self._refuse_length(len(self._rest))
        return lines


class Lengths(Splitter):
    def __init__(self, max_message_bytes: int) -> None:
        super().__init__(max_message_bytes)
        self._needed = _HEADER

    def split(self, data: bytes) -> list[Any]:
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
        messages: list[Any] = []
        at, size, most, from_bytes = 0, len(data), self._most, int.from_bytes
        self._needed = _HEADER
        while size - at >= _HEADER:
            start = at + _HEADER
            length = from_bytes(data[at:start], "big")
            end = start + length
            if length > most:
                self._refuse_length(length)
                return messages
            if end > size:
                self._needed = end - at
                break
            messages.append(data[start:end])
            at = end
        self._rest = bytearray(data[at:])
        return messages


class Envelopes(Lengths):
    _decode = msgspec.msgpack.Decoder(Envelope).decode

    def split(self, data: bytes) -> list[Any]:
        found: list[Envelope] = []
        for frame in super().split(data):
            try:
                found.append(self._decode(frame))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.is_too_large = False
                self.refusal = f"a frame is no envelope: {error}"
                self.forget()
                break
        return found


class Framing(ABC):
    """Makes frames of messages, and chunks of what a Splitter found."""

    splitter: ClassVar[type[Splitter]]

    def __init__(self, stream: SystemStream, max_message_bytes: int) -> None:
        self._stream = stream
        self._most = min(max_message_bytes, LONGEST_FRAME)

    @abstractmethod
    def frame(self, envelope: OutgoingMessageEnvelope, key: Any, message: Any) -> bytes:
        """The bytes that are sent for a message. Raises SerdeError, MessageTooLargeError."""

    @property
    def largest(self) -> int:
        """The length of key and message up to which a frame of them is never too long."""
        return self._most

    def frames(self, keys: list[bytes | None], messages: list[bytes]) -> list[bytes]:
        """``frame`` for messages that are not too long, without timestamps and headers. Raises SerdeError."""
        frame, bare = self.frame, OutgoingMessageEnvelope(self._stream, None)
        return [frame(bare, key, message) for key, message in zip(keys, messages, strict=True)]

    def chunk(self, ssp: SystemStreamPartition, start: int, found: list[Any]) -> Chunk:
        """The messages, of which the first has the offset ``start``."""
        return Chunk(ssp, numbered(start, start + len(found)), [None] * len(found), found)

    def _checked(self, what: str, message: Any) -> bytes:
        if type(message) is not bytes:
            kind = "None" if message is None else f"a {type(message).__name__}"
            remedy = "set a serde, for example samza.msg.serde=json"
            if message is None:
                remedy = "only framing=envelope carries None"
            raise SerdeError(f"{self._stream}: {what} is bytes, and this message is {kind}: {remedy}")
        if len(message) > self._most:
            self._refuse(len(message))
        return bytes(message)  # the same object

    def _refuse(self, length: int) -> None:
        raise MessageTooLargeError(
            f"{self._stream}: a message of {length} bytes is larger than max.message.bytes, {self._most}"
        )


class LineFraming(Framing):
    """A line has no key, time or headers: what is to be kept of them belongs into the message."""

    splitter = Lines

    def frame(self, envelope: OutgoingMessageEnvelope, key: Any, message: Any) -> bytes:
        if type(message) is not bytes or len(message) > self._most:
            self._checked("a line", message)
        if b"\n" in message:
            raise SerdeError(
                f"{self._stream}: this message holds a newline, and would be several lines: "
                f"{shortened(message)}; set framing=length"
            )
        framed: bytes = message + b"\n"
        return framed

    def frames(self, keys: list[bytes | None], messages: list[bytes]) -> list[bytes]:
        if b"\n" in b"".join(messages):
            return super().frames(keys, messages)
        return [message + b"\n" for message in messages]


class LengthFraming(Framing):
    """A frame has no key, time or headers."""

    splitter = Lengths

    def frame(self, envelope: OutgoingMessageEnvelope, key: Any, message: Any) -> bytes:
        frame = self._checked("a frame", message)
        return len(frame).to_bytes(_HEADER, "big") + frame


class EnvelopeFraming(Framing):
    """Everything that a message has is sent."""

    splitter = Envelopes

    @property
    def largest(self) -> int:
        return self._most - _ENVELOPE

    def frame(self, envelope: OutgoingMessageEnvelope, key: Any, message: Any) -> bytes:
        for what in (message, key):
            if what is not None:
                self._checked("what an envelope carries", what)
        headers = None if envelope.headers is None else dict(envelope.headers)
        try:
            data = msgspec.msgpack.encode(Envelope(message, key, envelope.timestamp, headers))
        except TypeError as error:
            raise SerdeError(f"{self._stream}: this message makes no envelope: {error}") from error
        if len(data) > self._most:
            self._refuse(len(data))
        return len(data).to_bytes(_HEADER, "big") + data

    def chunk(self, ssp: SystemStreamPartition, start: int, found: list[Any]) -> Chunk:
        timestamps: list[int | None] = [each.timestamp for each in found]
        headers: list[Any] = [each.headers for each in found]
        return Chunk(
            ssp,
            numbered(start, start + len(found)),
            [each.key for each in found],
            [each.message for each in found],
            timestamps if any(each is not None for each in timestamps) else None,
            headers if any(headers) else None,
        )


FRAMINGS: dict[str, type[Framing]] = {
    "lines": LineFraming,
    "length": LengthFraming,
    "envelope": EnvelopeFraming,
}
