"""Which serdes apply to which stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.serde.registry import serde_named

DEAD_LETTERS = "task.dead.letter.stream"
"""The key that names the stream of what could not be decoded or encoded."""


class StreamSerdes:
    """The serdes of a job's streams, each made when first asked for, and once per name. The dead-letter stream has none: it holds bytes as
    they were found."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._by_name: dict[str, Serde] = {}
        self._by_stream: dict[SystemStream, tuple[Serde | None, Serde | None]] = {}
        dead_letters = dead_letter_stream(config)
        if dead_letters is not None:
            self._by_stream[dead_letters] = (None, None)

    def for_stream(self, stream: SystemStream) -> tuple[Serde | None, Serde | None]:
        """The serdes of keys and of messages, each the stream's own, else its system's; None: bytes go through untouched.

        Raises ConfigError that names the key with the wrong name."""
        if stream not in self._by_stream:
            self._by_stream[stream] = (self._of(stream, "samza.key.serde"), self._of(stream, "samza.msg.serde"))
        return self._by_stream[stream]

    def _of(self, stream: SystemStream, setting: str) -> Serde | None:
        key = self._config.stream_key(stream.system, stream.stream, setting)
        name = self._config.text(key)
        if name is None:
            return None
        if name not in self._by_name:
            self._by_name[name] = serde_named(self._config, name, key=key)
        return self._by_name[name]


def dead_letter_stream(config: Config) -> SystemStream | None:
    """The dead-letter stream of a job, None where it has none. Raises ConfigError where the key does not name a stream."""
    name = config.text(DEAD_LETTERS)
    if name is None:
        return None
    try:
        return SystemStream.parse(name)
    except ConfigError as error:
        raise config.error(DEAD_LETTERS, str(error)) from None


def readable(serde: Serde | None, data: Any, failed: Callable[[Exception], None] | None = None) -> Any:
    """What a key or message says, for people to look at: decoded, or as it is where it cannot be, of which ``failed`` is told.

    It never raises: where wrong bytes must not pass, call the serde itself."""
    if serde is None or data is None:
        return data
    try:
        return serde.from_bytes(data)
    except Exception as error:
        if failed is not None:
            failed(error)
        return data
