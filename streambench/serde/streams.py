"""The serdes of each stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streambench.chunk import Undecodable
from streambench.config import Config
from streambench.errors import ConfigError, SerdeError, described, shortened
from streambench.model import IncomingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.serde.registry import can_read, serde_named

DEAD_LETTERS = "task.dead.letter.stream"
"""The key that names the stream of what could not be decoded or encoded."""


_LOOK = 40


class StreamSerdes:
    """The serdes of a job's streams, each made when first asked for, and once per name. The dead-letter
    stream has none: it holds bytes as they were found."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._by_name: dict[str, Serde] = {}
        self._by_stream: dict[SystemStream, tuple[Serde | None, Serde | None]] = {}
        dead_letters = dead_letter_stream(config)
        if dead_letters is not None:
            self._by_stream[dead_letters] = (None, None)

    def for_stream(self, stream: SystemStream) -> tuple[Serde | None, Serde | None]:
        """The serdes of keys and of messages, each the stream's own, else its system's; None: bytes go
        through untouched.

        Raises ConfigError that names the key with the wrong name."""
        if stream not in self._by_stream:
            self._by_stream[stream] = (
                self._serde(stream, "samza.key.serde"),
                self._serde(stream, "samza.msg.serde"),
            )
        return self._by_stream[stream]

    def names_for(self, stream: SystemStream) -> tuple[str | None, str | None]:
        """The names of the serdes in the configuration."""
        if self._by_stream.get(stream) == (None, None):
            return None, None
        return self._name(stream, "samza.key.serde")[1], self._name(stream, "samza.msg.serde")[1]

    def can_read(self, name: str, written: str) -> bool:
        """Return True where the serde of this name reads what that of the other name wrote."""
        return can_read(self._config, name, written)

    def _name(self, stream: SystemStream, setting: str) -> tuple[str, str | None]:
        key = self._config.stream_key(stream.system, stream.stream, setting)
        return key, self._config.text(key)

    def _serde(self, stream: SystemStream, setting: str) -> Serde | None:
        key, name = self._name(stream, setting)
        if name is None:
            return None
        if name not in self._by_name:
            self._by_name[name] = serde_named(self._config, name, key=key)
        return self._by_name[name]


def dead_letter_stream(config: Config) -> SystemStream | None:
    """The dead-letter stream of a job, None where it has none. Raises ConfigError where the key does not name
    a stream."""
    name = config.text(DEAD_LETTERS)
    if name is None:
        return None
    try:
        return SystemStream.parse(name)
    except ConfigError as error:
        raise config.error(DEAD_LETTERS, str(error)) from None


def decoded(
    raw: IncomingMessageEnvelope, key_serde: Serde | None, message_serde: Serde | None
) -> IncomingMessageEnvelope | SerdeError:
    """A message as its task sees it.

    Where it cannot be decoded, the error is returned, not raised. It says where the message is, why it cannot
    be decoded, and what it looks like."""
    if type(raw) is Undecodable:
        return raw.error
    part, serde = "key", key_serde
    try:
        key = raw.key if serde is None or raw.key is None else serde.from_bytes(raw.key)
        part, serde = "message", message_serde
        message = raw.message if serde is None or raw.message is None else serde.from_bytes(raw.message)
    except Exception as cause:
        return undecodable(raw, part, serde, cause)
    return IncomingMessageEnvelope(raw.ssp, raw.offset, key, message, raw.timestamp, raw.headers)


def undecodable(raw: IncomingMessageEnvelope, part: str, serde: Serde | None, cause: Exception) -> SerdeError:
    """The error for a message of which this part ("key" or "message") cannot be decoded."""
    data = raw.key if part == "key" else raw.message
    look = shortened(data)
    if isinstance(data, bytes) and len(data) > _LOOK:
        look = f"{data[:_LOOK]!r}... ({len(data)} bytes)"
    error = SerdeError(
        f"{raw.ssp}@{raw.offset}, key {shortened(raw.key)}: cannot decode this message: {described(cause)} "
        f"({type(serde).__name__} was given the {part} {look})"
    )
    # Without the caller's frame, which may hold all that was read for as long as the error lives; what is
    # left are those of the serde.
    error.__cause__ = cause.with_traceback(cause.__traceback__ and cause.__traceback__.tb_next)
    return error


def readable(serde: Serde | None, data: Any, failed: Callable[[Exception], None] | None = None) -> Any:
    """Return a key or message for display: decoded, or as it is where that fails, which ``failed`` is called
    with.

    It never raises: where wrong bytes must not pass, call the serde itself."""
    if serde is None or data is None:
        return data
    try:
        return serde.from_bytes(data)
    except Exception as error:
        if failed is not None:
            failed(error)
        return data
