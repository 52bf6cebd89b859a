"""Ports of this machine for servers that tests start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def free_ports(count: int, kind: str = "tcp") -> int:
    """The first of so many consecutive ports that are free."""
    while True:
        held: list[socket.socket] = []
        try:
            for number in range(count):
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
                held.append(sock)
                sock.bind(("127.0.0.1", held[0].getsockname()[1] + number if number else 0))
            port: int = held[0].getsockname()[1]
            return port
        except (OSError, OverflowError):
            continue
        finally:
            for sock in held:
                sock.close()
