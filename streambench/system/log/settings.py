"""Settings of a log, for the whole system and for single streams.

A stream keeps the settings of its creation. The configuration of the stream takes precedence over them,
and they over that of the system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.suggestions import suggest, suggest_or_list
from streambench.system.settings import SettingsTable, SystemSettings, fields, required, setting

PATH = "the directory that holds the streams"


@dataclass(frozen=True, kw_only=True)
class _Directory(SystemSettings):
    path: Path = required(PATH)


@dataclass(frozen=True, kw_only=True)
class StreamSettings(SystemSettings):
    """The settings that each stream may have for itself. A segment is a file of a partition."""

    segment_bytes: int = setting(
        128 << 20, "a segment (a file of a partition) that has this size is followed by a new one"
    )
    retention_ms: int = setting(-1, "what is older is deleted, by whole segments; negative: kept for ever")
    retention_bytes: int = setting(
        -1,
        "what a partition holds beyond this is deleted, oldest first, by whole segments; negative: all is "
        "kept",
    )
    cleanup_policy: Literal["delete", "compact"] = setting(
        "delete", "delete: by retention; compact: the last message of each key stays"
    )
    delete_retention_ms: int = setting(86_400_000, "compact: how long it can be read that a key was deleted")
    min_compaction_lag_ms: int = setting(0, "compact: what is younger stays, and removes nothing older")


@dataclass(frozen=True, kw_only=True)
class Settings(StreamSettings):
    """The settings in force for one system, or for one of its streams."""

    fsync: Literal["flush", "batch", "never"] = setting(
        "flush",
        "when what was written is forced to the disk: at each flush (hence commit), after each batch, or "
        "never",
    )
    linger_ms: int = setting(250, "how long a message waits for others to be written with it as one batch")
    batch_messages: int = setting(10_000, "how many messages are written as one batch at most")
    batch_bytes: int = setting(
        4 << 20, "how many bytes are written as one batch; a larger message is a batch of its own"
    )
    lock_lease_ms: int = setting(
        30_000,
        "a process that shows no sign of life for so long while it holds the lock of a partition is replaced",
    )
    max_message_bytes: int = setting(
        16 << 20, "the most that key, value and headers of one message may take together"
    )
    fail_on_data_loss: bool = setting(
        True, "false: a reader that meets a gap or damage warns and continues behind it; true: it fails"
    )

    def with_values(
        self, values: Mapping[str, Any], prefix: str = "", config: Config | None = None
    ) -> Settings:
        """A copy with other values, named as in a configuration (``retention.ms``). Raises ConfigError that
        names the key, and its place in ``config``, where that is given."""
        for key in values:
            if key.replace(".", "_") not in fields(type(self)):
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
    for stream, name, key in SETTINGS.of_streams(config, system):
        value = config.text(key) if name in SETTINGS.stream_names else None
        if value is not None:
            found.setdefault(stream, {})[name] = value
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
