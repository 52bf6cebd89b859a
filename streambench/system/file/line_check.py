"""The check of messages that become lines of files."""

from __future__ import annotations

from typing import Any

from streambench.errors import SerdeError, no_tombstone


def check_line(name: str, file: object, *, is_json: bool, message: Any) -> None:
    """Raise SerdeError for a message that cannot be one line of ``file``, that of the partition ``name``."""
    if message is None:
        raise SerdeError(no_tombstone(name, "a file"))
    if type(message) is not bytes:
        raise SerdeError(
            f"{name}: a line of a file is bytes, and this message is a "
            f"{type(message).__name__}: set a serde, for "
            f"example systems.{name.partition('.')[0]}.samza.msg.serde=json"
        )
    if b"\n" in message:
        raise SerdeError(f"{name}: this message holds a newline, and would be several lines of {file}")
    if not message and is_json:
        raise SerdeError(f"{name}: an empty message is no line of JSON")
