"""The identity of a process, by which another one on the same machine knows when it has ended."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

from msgspec import Struct


class ProcessIdentity(Struct, frozen=True):
    """A process of one machine: since the start of the machine and in a namespace of processes, a number and
    the time when it began."""

    host: str
    namespace: str
    number: int
    began: str

    @property
    def is_here(self) -> bool:
        """True where it is known on this machine if the process runs."""
        return bool(self.namespace) and (self.host, self.namespace) == (socket.gethostname(), _namespace())

    @property
    def is_gone(self) -> bool:
        """True where it is certain that the process has ended."""
        return self.is_here and _began(self.number) != self.began


def identity_of(number: int) -> ProcessIdentity | None:
    """The identity of a process that runs here; None where the operating system does not say."""
    began = _began(number)
    namespace = _namespace()
    return ProcessIdentity(socket.gethostname(), namespace, number, began) if began and namespace else None


def has_ended(host: str, number: int) -> bool:
    """True where it is certain that a process of this machine has ended, of which no more is known."""
    return host == socket.gethostname() and bool(boot_id()) and not _began(number)


def is_stopped(host: str, number: int) -> bool:
    """True where a process of this machine is known to stand still, by SIGSTOP, say."""
    fields = _fields(number) if host == socket.gethostname() else []
    return fields[:1] == ["T"]


def ancestor(program: str) -> ProcessIdentity | None:
    """The nearest process above this one that runs a program, by its short name.

    None where there is none, or the operating system does not say."""
    number = os.getpid()
    while fields := _fields(number):
        if _program(number) == program:
            return identity_of(number)
        number = int(fields[1])
    return None


def _program(number: int) -> str:
    try:
        return Path(f"/proc/{number}/comm").read_text().strip()
    except OSError:
        return ""


@cache
def boot_id() -> str:
    """The identity of this start of the machine; empty where the operating system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        boot, processes = boot_id(), os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return f"{boot} {processes}" if boot else ""


def _began(number: int) -> str:
    fields = _fields(number)
    return fields[19] if fields and fields[0] not in ("Z", "X") else ""


def _fields(number: int) -> list[str]:
    """The status of a process from Linux, from its state on: the name before it may hold anything."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
