"""Ports of this machine for servers that tests start."""

from __future__ import annotations

import secrets
import socket

# Below those that the system gives to outgoing connections, of which one could take a port between the search
# and its use.
_FIRST, _BEHIND_LAST = 20_000, 32_000


def free_port() -> int:
    """A port that nobody listens on."""
    return free_ports(1)


def free_ports(count: int, kind: str = "tcp") -> int:
    """The first of so many consecutive ports that are free."""
    while True:
        first = _FIRST + secrets.randbelow(_BEHIND_LAST - _FIRST - count)
        held: list[socket.socket] = []
        try:
            for number in range(first, first + count):
                sock = socket.socket(
                    socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
                )
                held.append(sock)
                sock.bind(("127.0.0.1", number))
            return first
        except OSError:
            continue
        finally:
            for sock in held:
                sock.close()
