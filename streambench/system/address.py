"""Addresses: where the partitions of a stream are listened for, and sent to."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.locks import not_for_children
from streambench.metrics.log_reporter import LISTENING

_LAST_PORT = 65_535
_PAUSE_S = 0.1

_Opened = TypeVar("_Opened")


class Address(Struct, frozen=True):
    """A host (a name or an IP address) and a port; port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def family(self) -> socket.AddressFamily:
        """IPv6 for an IPv6 address, else IPv4: names are looked up there."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def addresses(config: Config, key: str, partitions: int) -> list[Address]:
    """The addresses of all partitions.

    They are given as ``host:port`` (consecutive ports from there on; of port 0, any free ones), or as one
    ``host:port`` for each, separated by commas. A host that is left out is 127.0.0.1. Raises ConfigError."""
    given = [_parsed(config, key, text) for text in config.names(key)]
    if len(given) == partitions:
        return given
    if len(given) != 1:
        raise config.error(
            key,
            f"{len(given)} addresses for {partitions} partitions: give one for each, or one whose ports are "
            "counted on from it",
        )
    host, port = given[0].host, given[0].port
    if port + partitions - 1 > _LAST_PORT:
        raise config.error(
            key, f"{partitions} partitions take the ports from {port} on, beyond the last one, {_LAST_PORT}"
        )
    return [Address(host, port + number if port else 0) for number in range(partitions)]


def _parsed(config: Config, key: str, text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = "", text
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) <= _LAST_PORT):
        raise config.error(key, f"'{text}' is no address: write HOST:PORT, for example 127.0.0.1:7000")
    return Address(host or "127.0.0.1", int(port))


def announce(what: object, place: str, *, asked: int) -> None:
    """Log at which address a stream or partition takes messages. ``asked``: the port of the configuration;
    where that is 0, nothing else shows which it is, and this is a warning."""
    logging.getLogger(LISTENING).log(
        logging.INFO if asked else logging.WARNING, "%s listens on %s", what, place
    )


def listening_socket(address: Address, backlog: int, receive_buffer: int = 0) -> socket.socket:
    """A socket that listens at an address. ``receive_buffer``: the size of the kernel's buffer of each
    connection in bytes, 0 for what it chooses. Raises OSError."""
    found = not_for_children(socket.socket(address.family, socket.SOCK_STREAM))
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        found.bind((address.host, address.port))
        found.listen(backlog)
        found.setblocking(False)
    except BaseException:
        found.close()
        raise
    return found


def listen(
    open_: Callable[[], _Opened], patience_s: float, config: Config, key: str, address: Address
) -> _Opened:
    """Have ``open_`` listen at an address, and return its result. Where another process listens there, it is
    tried again for so long. That may be an older start of the same job, which has not noticed its replacement
    yet. Raises ConfigError."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return open_()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= until:
                raise _cannot_listen(config, key, address, error) from error
        time.sleep(_PAUSE_S)


def _cannot_listen(config: Config, key: str, address: Address, error: OSError) -> ConfigError:
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        remedy = "the job may run already, or another program has the port: stop it, or give another port"
    else:
        remedy = "give an address of this machine and a port that you may use"
    return config.error(key, f"cannot listen on {address}: {reason}; {remedy}")
