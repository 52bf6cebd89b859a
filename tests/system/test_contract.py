"""All systems keep the contract of a system."""

from __future__ import annotations

import re
import sqlite3
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streambench.container.inputs import consumers
from streambench.system.memory import memory_streams
from streambench.system.systems import Systems
from streambench.testing.systems import SystemContract, SystemUnderTest
from tests.conftest import CHECKOUT
from tests.ports import free_port, free_ports
from tests.system import listed, queued


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container stops, and knows that it has caught up, when the poll of its reader has ended."""
    monkeypatch.setattr(consumers, "_READER_POLL_MS", 10)


class TestMemory(SystemContract):
    survives = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        memory_streams("sys").partitions.clear()
        return {"samza.factory": "memory"}


class TestLog(SystemContract):
    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {"samza.factory": "log", "path": directory / "log"}


class _Files(SystemContract):
    keys = tombstones = any_bytes = timestamps = headers = False
    deletes = grows = False


class TestJsonLines(_Files):
    empty_messages = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {"samza.factory": "file", "path": directory / "files", "follow": "true"}


class TestText(_Files):
    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {"samza.factory": "file", "path": directory / "files", "format": "text", "follow": "true"}


class _Pulled(SystemContract):
    """Simple plug-ins."""

    tombstones = timestamps = headers = False
    bounds = ordered = creates = deletes = grows = lists = False


class TestTables(_Pulled):
    """The example of the documentation."""

    ordered = True
    most_partitions = 1

    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {
            "samza.factory": f"{CHECKOUT}/docs/examples/tables.py:TableSystem",
            "path": directory / "tables.db",
        }

    def create(self, system: SystemUnderTest, name: str, partitions: int) -> None:
        assert partitions == 1
        with sqlite3.connect(system.directory / "tables.db") as db:
            db.execute(
                f'CREATE TABLE "{name}" (id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, message BLOB)'
            )
        db.close()


class TestTablesWithBounds(TestTables):
    """The same, with what the documentation says of bounds."""

    bounds = True

    def settings(self, directory: Path) -> Mapping[str, Any]:
        example = (CHECKOUT / "docs" / "examples" / "tables.py").read_text()
        (snippet,) = re.findall(
            r"```python\n(def bounds.*?)```", (CHECKOUT / "docs" / "plugin.md").read_text(), re.DOTALL
        )
        (directory / "bounded.py").write_text(
            f"{example}\n{textwrap.indent(snippet, '    ')}\n\nfrom streambench import PartitionMetadata\n"
        )
        return {"samza.factory": f"{directory}/bounded.py:TableSystem", "path": directory / "tables.db"}


class TestOpaqueOffsets(_Pulled):
    """A plug-in that only its two methods know, and whose offsets say nothing of their order."""

    chooses_partitions = survives = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        listed.streams.clear()
        return {"samza.factory": "tests.system.listed.Opaque"}

    def create(self, system: SystemUnderTest, name: str, partitions: int) -> None:
        listed.streams[name] = [[] for _ in range(partitions)]


class TestNumberedOffsets(_Pulled):
    """A plug-in that has everything one may have."""

    ordered = bounds = creates = lists = True
    survives = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        listed.streams.clear()
        return {"samza.factory": "tests.system.listed.Numbered"}


class TestComparedOffsets(_Pulled):
    """A plug-in whose offsets can be compared, though it is unknown which comes next."""

    ordered = bounds = True
    survives = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        listed.streams.clear()
        return {"samza.factory": "tests.system.listed.Compared"}

    def create(self, system: SystemUnderTest, name: str, partitions: int) -> None:
        listed.streams[name] = [[] for _ in range(partitions)]


class TestQueues(SystemContract):
    """A system that keeps nothing once it was acknowledged."""

    replayable = deletes = grows = lists = False
    redelivers = True

    def settings(self, directory: Path) -> Mapping[str, Any]:
        queued.broker.clear()
        return {"samza.factory": "tests.system.queued.QueueSystem"}


class TestWebhook(SystemContract):
    """A webhook that posts to itself, several messages in one request. A key is an HTTP header, which cannot
    be any bytes."""

    replayable = keys = timestamps = tombstones = empty_messages = any_bytes = False
    chooses_partitions = creates = deletes = grows = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {
            "samza.factory": "webhook", "port": free_port(), "headers": "*", "post.messages": 20,
            "streams.stream.max.body.bytes": 6 << 20,
        }  # fmt: skip


class _Net(SystemContract):
    """Direct communication: streams are configured, and are there only while somebody listens."""

    replayable = survives = bounds = creates = deletes = grows = False
    most_partitions = 2
    kind: ClassVar[str]

    def settings(self, directory: Path) -> Mapping[str, Any]:
        address = f"127.0.0.1:{_ports(self.kind, directory)}"
        return {"samza.factory": self.kind, "streams.stream.listen": address, "acknowledge.within.ms": "50"}

    def create(self, system: SystemUnderTest, name: str, partitions: int) -> None:
        system.config = system.config.with_values({f"systems.sys.streams.{name}.partitions": partitions})
        system.systems = Systems(system.config)


@cache
def _ports(kind: str, directory: Path) -> int:
    return free_ports(2, kind)


class TestTcpEnvelopes(_Net):
    kind = "tcp"

    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {**super().settings(directory), "framing": "envelope"}


class TestTcpLengths(_Net):
    kind = "tcp"
    keys = tombstones = timestamps = headers = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {**super().settings(directory), "framing": "length"}


class TestTcpLines(_Net):
    kind = "tcp"
    keys = tombstones = timestamps = headers = any_bytes = False


class TestUdp(_Net):
    kind = "udp"
    keys = tombstones = timestamps = headers = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {"samza.factory": "udp", "streams.stream.listen": f"127.0.0.1:{_ports(self.kind, directory)}"}


class TestUdpLines(TestUdp):
    any_bytes = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        return {**super().settings(directory), "framing": "lines", "sequence": "true"}
