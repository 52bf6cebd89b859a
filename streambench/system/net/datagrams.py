"""The check of messages that are sent as datagrams."""

from __future__ import annotations

from typing import Any, NamedTuple

from streambench.errors import MessageTooLargeError, SerdeError, no_tombstone, shortened
from streambench.system.net.settings import UdpSettings


class DatagramCheck(NamedTuple):
    """Checks messages. ``most``: the bytes of the largest one; ``are_lines``: several share a datagram."""

    most: int
    are_lines: bool

    @classmethod
    def of(cls, settings: UdpSettings) -> DatagramCheck:
        are_lines = settings.framing == "lines"
        return cls(min(settings.max_message_bytes, settings.largest_datagram - are_lines), are_lines)

    def check(self, name: str, message: Any) -> None:
        """Raise SerdeError or MessageTooLargeError for a message that the partition of this name refuses."""
        if message is None:
            raise SerdeError(no_tombstone(name, "a datagram"))
        if type(message) is not bytes:
            kind = f"a {type(message).__name__}"
            raise SerdeError(
                f"{name}: a datagram is bytes, and this message is {kind}: set a serde, "
                "samza.msg.serde=json say"
            )
        if len(message) > self.most:
            raise MessageTooLargeError(
                f"{name}: a message of {len(message)} bytes does not go into a datagram, which takes "
                f"{self.most} (max.message.bytes)"
            )
        if self.are_lines and b"\n" in message:
            raise SerdeError(
                f"{name}: this message holds a newline, and would be several lines: "
                f"{shortened(message)}; set framing=datagram"
            )
