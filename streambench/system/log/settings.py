"""Settings of a log, for the whole system and for single streams.

A stream keeps the settings of its creation. The configuration of the stream takes precedence over them,
and they over that of the system.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.suggestions import suggest, suggest_or_list
from streambench.system.settings import SettingsTable, SystemSettings, doc

PATH = "the directory that holds the streams"


class _Directory(SystemSettings, frozen=True):
    path: Annotated[Path, doc(PATH)]


class StreamSettings(SystemSettings, frozen=True):
    """The settings that each stream may have for itself. A segment is a file of a partition."""

    segment_bytes: Annotated[
        int, doc("a segment (a file of a partition) that has this size is followed by a new one")
    ] = 128 << 20
    retention_ms: Annotated[
        int, doc("what is older is deleted, by whole segments; negative: kept for ever")
    ] = -1
    retention_bytes: Annotated[
        int,
        doc(
            "what a partition holds beyond this is deleted, oldest first, by whole segments; "
            "negative: all is kept"
        ),
    ] = -1
    cleanup_policy: Annotated[
        Literal["delete", "compact"],
        doc("delete: by retention; compact: the last message of each key stays"),
    ] = "delete"
    delete_retention_ms: Annotated[int, doc("compact: how long it can be read that a key was deleted")] = (
        86_400_000
    )
    min_compaction_lag_ms: Annotated[
        int, doc("compact: what is younger stays, and removes nothing older")
    ] = 0


class Settings(StreamSettings, frozen=True):
    """The settings in force for one system, or for one of its streams."""

    fsync: Annotated[
        Literal["flush", "batch", "never"],
        doc(
            "when what was written is forced to the disk: at each flush (hence commit), after each batch, "
            "or never"
        ),
    ] = "flush"
    linger_ms: Annotated[
        int, doc("how long a message waits for others to be written with it as one batch")
    ] = 250
    batch_messages: Annotated[int, doc("how many messages are written as one batch at most")] = 10_000
    batch_bytes: Annotated[
        int, doc("how many bytes are written as one batch; a larger message is a batch of its own")
    ] = 4 << 20
    lock_lease_ms: Annotated[
        int,
        doc(
            "a process that shows no sign of life for so long while it holds the lock of a partition is "
            "replaced"
        ),
    ] = 30_000
    max_message_bytes: Annotated[
        int, doc("the most that key, value and headers of one message may take together")
    ] = 16 << 20
    fail_on_data_loss: Annotated[
        bool,
        doc("false: a reader that meets a gap or damage warns and continues behind it; true: it fails"),
    ] = True

    def with_values(
        self, values: Mapping[str, Any], prefix: str = "", config: Config | None = None
    ) -> Settings:
        """A copy with other values, named as in a configuration (``retention.ms``). Raises ConfigError that
        names the key, and its place in ``config``, where that is given."""
        for key in values:
            if key.replace(".", "_") not in self.__struct_fields__:
                hint = suggest(key, SETTINGS.stream_names)
                raise ConfigError(
                    f"{prefix}{key} is no setting of a log{hint and f'; {hint}'}", key=prefix + key
                )
        return self.with_texts(values, prefix, config)


SETTINGS = SettingsTable("log", system=(_Directory, Settings), both=(StreamSettings,))


def configured_streams(system: str, config: Config) -> dict[str, dict[str, str]]:
    """The configuration of single streams (``systems.<s>.streams.<t>.retention.ms``), by stream.
    Raises ConfigError."""
    found: dict[str, dict[str, str]] = {}
    for stream, setting, key in SETTINGS.of_streams(config, system):
        value = config.text(key) if setting in SETTINGS.stream_names else None
        if value is not None:
            found.setdefault(stream, {})[setting] = value
    for stream, values in found.items():
        Settings().with_values(values, f"systems.{system}.streams.{stream}.", config)
    return found


def stream_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a stream is created with, checked and under their names in a configuration. Raises
    ConfigError."""
    found = {key.replace("_", "."): value for key, value in values.items() if value is not None}
    for key in found:
        if key not in SETTINGS.stream_names:
            hint = suggest_or_list(key, SETTINGS.stream_names)
            raise ConfigError(f"{key} is no setting of a stream of a log; {hint}", key=key)
    checked = Settings().with_values(found)
    return {key: getattr(checked, key.replace(".", "_")) for key in sorted(found)}
