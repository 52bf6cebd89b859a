"""Which serdes the messages of a stream have."""

from __future__ import annotations

from streambench.config import Config
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.serde.registry import serde_named


class StreamSerdes:
    """The serdes of streams, as ``samza.key.serde`` and ``samza.msg.serde`` say: of the stream, else of its system, else none."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._known: dict[SystemStream, tuple[Serde | None, Serde | None]] = {}

    def for_stream(self, stream: SystemStream) -> tuple[Serde | None, Serde | None]:
        """The serde of keys and that of messages; None: they pass through untouched. Raises ConfigError."""
        if stream not in self._known:
            self._known[stream] = (self._serde(stream, "key"), self._serde(stream, "msg"))
        return self._known[stream]

    def _serde(self, stream: SystemStream, kind: str) -> Serde | None:
        key = self._config.stream_key(stream.system, stream.stream, f"samza.{kind}.serde")
        name = self._config.text(key)
        return None if name is None else serde_named(self._config, name, key=key)
